"""Sections of the files that people write, and errors that name the field, the value and what is allowed.

A field's description says in words what is allowed there: errors quote it. Nothing is guessed, no unknown field is
passed over, a key written twice is refused, and all problems of a file are told at once.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from autotuner.domain.study import GREYBOX
from autotuner.errors import InvalidInput

FRACTION: dict[str, Any] = {"fraction": True}
"""Pass it as `json_schema_extra` of a field that is a fraction: errors then show how a percentage is written."""

NAME_PATTERN = r"^[a-z0-9][a-z0-9-]{0,62}$"
"""What a target or a workload may be called: its name becomes part of study ids, file names and leases."""

SAMPLERS = (GREYBOX, "tpe", "gp", "random")
"""Samplers that a file may name."""


class Section(BaseModel):
    """A part of a file. Each field's description says in words what is allowed there: errors quote it."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


S = TypeVar("S", bound=Section)


class InvalidFields(InvalidInput):
    """Several fields cannot be used; as an InvalidInput it is the first of them, its sentence tells all."""

    def __init__(self, problems: tuple[InvalidInput, ...]) -> None:
        first = problems[0]
        super().__init__(first.field, first.value, first.allowed)
        self.args = (problems,)
        self.problems = problems

    def __str__(self) -> str:
        return "\n".join(map(str, self.problems))


class _Loader(yaml.SafeLoader):
    """YAML without surprises: a key that is written twice is an error, not a silent loss of the first value."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, Hashable) and key in seen and key_node.tag != "tag:yaml.org,2002:merge":
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} is written twice", key_node.start_mark
                )
            if isinstance(key, Hashable):
                seen.add(key)
        return super().construct_mapping(node, deep)


def read_file(path: Path, kind: str) -> str:
    """Return the text of a file. kind: what it should be (`target file`). Raises InvalidInput."""
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(kind, str(path), "the path of a readable text file (UTF-8)") from error


def parse_yaml(text: str, kind: str, name: str) -> object:
    """Return what YAML text means. kind, name: what it is and where it came from. Raises InvalidInput."""
    try:
        return yaml.load(text, Loader=_Loader)  # noqa: S506 - a safe loader, and stricter
    except (yaml.YAMLError, RecursionError) as error:
        raise InvalidInput(kind, name, f"a YAML file; {_yaml_problem(error)}") from error


def _yaml_problem(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or (str(error).splitlines() or ["it cannot be read"])[0]
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}" if mark is not None else str(problem)


def validated(model: type[S], content: object, kind: str) -> S:
    """Return the content of a file as `model`. Raises InvalidInput, telling all fields that cannot be used."""
    if not isinstance(content, Mapping):
        raise InvalidInput(kind, content, f"a mapping with the fields {', '.join(model.model_fields)}")
    try:
        return model.model_validate(content)
    except ValidationError as error:
        problems = problems_in(model, error.errors(include_url=False))
        raise problems[0] if len(problems) == 1 else InvalidFields(problems) from error


def problems_in(model: type[Section], found: Iterable[ErrorDetails]) -> tuple[InvalidInput, ...]:
    """Return what pydantic found wrong with the content of a `model`, in our words: one problem a field."""
    return tuple(_unique(_problem(model, each) for each in found))


def _unique(problems: Iterator[InvalidInput]) -> Iterator[InvalidInput]:
    """The first problem of each field: a value that fits no member of a union fails once for each of them."""
    seen: set[str] = set()
    for problem in problems:
        if problem.field not in seen:
            seen.add(problem.field)
            yield problem


def _problem(model: type[Section], found: ErrorDetails) -> InvalidInput:
    """One of pydantic's findings in our words."""
    place = [str(part) for part in found["loc"] if part != "[key]"]
    field = ".".join(place)
    if found["type"] == "extra_forbidden":
        known = ", ".join(_section(model, place[:-1]).model_fields)
        return InvalidInput(field, found["input"], f"one of the fields {known}")
    innermost = _field(model, place)
    allowed = (innermost.description if innermost is not None else None) or found["msg"]
    if found["type"] == "missing":
        return InvalidInput(field, None, f"{allowed} (required)")
    return InvalidInput(field, found["input"], allowed + _percentage(innermost, found["input"]))


def _percentage(field: FieldInfo | None, value: object) -> str:
    """How a percentage is written as a fraction, where one was given."""
    extra = field.json_schema_extra if field is not None else None
    if not isinstance(extra, Mapping) or not extra.get("fraction"):
        return ""
    text = str(value).strip()
    try:
        number = float(text.removesuffix("%"))
    except ValueError:
        return ""
    meant = text.endswith("%") or number > 1.0
    return f"; a fraction, not a percentage: {number:g} % is {number / 100:g}" if meant else ""


def _section(model: type[Section], path: Sequence[str]) -> type[Section]:
    """The section that a path of field names and positions leads to, as far as it is one."""
    section = model
    for name in path:
        if name.isdigit():
            continue
        field = section.model_fields.get(name)
        nested = list(_sections_in(field.annotation)) if field is not None else []
        if not nested:
            break
        section = nested[0]
    return section


def _sections_in(annotation: Any) -> Iterator[type[Section]]:
    if isinstance(annotation, type) and issubclass(annotation, Section):
        yield annotation
    for argument in get_args(annotation):
        yield from _sections_in(argument)


def _field(model: type[Section], path: Sequence[str]) -> FieldInfo | None:
    """The innermost field on a path."""
    for length in range(len(path), 0, -1):
        field = _section(model, path[: length - 1]).model_fields.get(path[length - 1])
        if field is not None:
            return field
    return None

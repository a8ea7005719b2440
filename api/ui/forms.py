"""Forms as a browser sends them: read whole, known to be of this session, and turned into what a section takes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeVar
from urllib.parse import parse_qsl

from fastapi import Depends, Request
from pydantic import BaseModel, ValidationError
from starlette.types import Scope

from api.ui.rendering import renderer_of
from api.ui.session import check_same_site
from autotuner.errors import InvalidInput
from autotuner.sections import InvalidFields, Section, validated

MOST_FIELDS = 50
LONGEST_TEXT = 2_000

TOKEN = "form_token"  # noqa: S105 - the name of a field

WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
NUMBER = re.compile(r"[+-]?([0-9]{1,18}(\.[0-9]{0,18})?|\.[0-9]{1,18})([eE][+-]?[0-9]{1,3})?")
DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")

S = TypeVar("S", bound=Section)
Q = TypeVar("Q", bound=BaseModel)


async def _sent(request: Request) -> dict[str, str]:
    check_same_site(request.scope)
    body = await request.body()
    try:
        pairs = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=MOST_FIELDS)
    except ValueError as error:
        raise InvalidInput("form", "(not shown)", f"a form of at most {MOST_FIELDS} fields") from error
    # A line break of a text field comes as two characters.
    return {name: value.replace("\r\n", "\n").strip() for name, value in pairs}


async def _of_session(request: Request) -> Mapping[str, str]:
    form = await _sent(request)
    renderer_of(request).sessions.check_form(request.scope, form.pop(TOKEN, ""))
    return form


Open = Annotated[Mapping[str, str], Depends(_sent)]
"""A form that needs no session, sent from a page of ours."""

Form = Annotated[Mapping[str, str], Depends(_of_session)]
"""A form that a page of this session sent: every page that writes takes one. Raises Forbidden, InvalidInput."""


def reason_of(form: Mapping[str, str], *, needed: bool = False) -> str:
    """Return the reason that a form gives. Raises InvalidInput for one that is too long, or missing though needed."""
    reason = form.get("reason", "")
    if len(reason) > 1000 or (needed and not reason):
        allowed = f"a text of {1 if needed else 0} to 1000 characters"
        raise InvalidInput("reason", reason[:100], allowed)
    return reason


def section_of(section: type[S], form: Mapping[str, str], lists: Sequence[str] = ()) -> S:
    """Return what a form says as a section; empty fields are left out. lists: fields that hold several values.

    Raises InvalidInput, naming every field that cannot be used.
    """
    content: dict[str, Any] = {}
    for name, text in form.items():
        if name in lists:
            content[name] = re.split(r"[\s,]+", text.strip(" ,\n")) if text.strip(" ,\n") else []
        elif text:
            content[name] = _value(section, name, text)
    return validated(section, content, "form")


def _value(section: type[Section], name: str, text: str) -> Any:
    """A text as the field's type, or as it is: the section then says what it would have taken."""
    field = section.model_fields.get(name)
    kind = field.annotation if field is not None else str
    if kind is int and WHOLE.fullmatch(text):
        return int(text)
    if kind is float and NUMBER.fullmatch(text):
        return float(text)
    if kind is bool:
        return text == "on"
    return text


def problems_in(error: InvalidInput) -> dict[str, str]:
    """Return what is wrong with each field of a form, as a sentence beside it."""
    found = error.problems if isinstance(error, InvalidFields) else (error,)
    return {_innermost(each.field): f"Allowed: {each.allowed}" for each in found}


def _innermost(path: str) -> str:
    """The name at the end of a path of names and positions: `blackout_dates` of `form.blackout_dates.0`."""
    return [part for part in path.split(".") if not part.isdigit()][-1]


def question(kind: type[Q], scope: Scope) -> Q:
    """Return what the address asks of a list; a day is its first moment, what is left empty is not asked.

    Raises InvalidInput for what the list cannot be asked.
    """
    asked = parse_qsl(scope.get("query_string", b"").decode("latin-1"))
    content = {name: f"{text}T00:00:00Z" if DAY.fullmatch(text) else text for name, text in asked if text}
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(map(str, first["loc"]))
        raise InvalidInput(field, str(first.get("input"))[:LONGEST_TEXT], first["msg"]) from error

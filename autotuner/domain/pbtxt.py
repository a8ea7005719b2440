"""A complete model configuration as the text of a `config.pbtxt`, for the repository that owns production.

Triton's JSON uses the field names of its protobuf schema, so the text form can be written from it without the
schema, except for what JSON does not tell apart: enum values from strings, and maps from messages.
Schema: `model_config.proto` of triton-inference-server/common; a test checks the two lists against it.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from autotuner.domain.configuration import Configuration, ModelConfig, with_configuration
from autotuner.errors import InvalidInput

ENUM_FIELDS = frozenset({"data_type", "format", "kind", "priority", "timeout_action"})
STRING_MAPS = frozenset(
    {"cc_model_filenames", "input", "input_map", "inputs", "metric_tags", "output_map", "parameters"},
)
NUMBER_MAPS = frozenset({"priority_queue_policy"})
NUMERIC_TEXT = re.compile(r"-?\d+")
FIELD_NAME = re.compile(r"[a-z][a-z0-9_]*")

# Fields of the schema whose value is text even when it looks like a number.
TEXT_FIELDS = frozenset(
    {
        "backend",
        "data_file",
        "default_model_filename",
        "family",
        "host_policy",
        "input_data_file",
        "input_name",
        "label_filename",
        "model_name",
        "model_namespace",
        "name",
        "op_library_filename",
        "output_name",
        "platform",
        "profile",
        "runtime",
        "source_input",
        "string_value",
        "target_name",
    },
)


def config_pbtxt(config: ModelConfig) -> str:
    """Return the text of a `config.pbtxt` that means `config`: loading it reads back as the same configuration.

    config: as Triton's JSON gives it; fields at their default (empty, 0, false) are left out. Raises InvalidInput
    for a name that is not a field.
    """
    return "\n".join(_message(config, "")) + "\n"


def patch(config: ModelConfig, configuration: Configuration, path: str = "config.pbtxt") -> str:
    """Return the unified diff that turns the text of `config` into that of `config` with `configuration`.

    Empty when nothing changes. path: the file's path in the repository, as `git apply` or `patch -p1` wants it.
    """
    old = config_pbtxt(config).splitlines(keepends=True)
    new = config_pbtxt(with_configuration(config, configuration)).splitlines(keepends=True)
    return "".join(difflib.unified_diff(old, new, f"a/{path}", f"b/{path}"))


def _message(fields: Mapping[str, Any], indent: str) -> Iterator[str]:
    for name, value in fields.items():
        if not FIELD_NAME.fullmatch(name):
            raise InvalidInput(
                "config", name, "field names of Triton's schema, in lower case with underscores"
            )
        yield from _field(name, value, indent)


def _field(name: str, value: Any, indent: str) -> Iterator[str]:
    if name in STRING_MAPS | NUMBER_MAPS and isinstance(value, Mapping):
        for key, item in value.items():
            yield f"{indent}{name} {{"
            yield f"{indent}  key: {key if name in NUMBER_MAPS else _quoted(key)}"
            yield from _one("value", item, f"{indent}  ", text=True)
            yield f"{indent}}}"
    elif isinstance(value, list) and not any(isinstance(item, Mapping) for item in value):
        if value:
            yield f"{indent}{name}: [{', '.join(_scalar(name, item) for item in value)}]"
    elif isinstance(value, list):
        for item in value:
            yield from _one(name, item, indent)
    elif isinstance(value, Mapping) or not _is_default(name, value):
        yield from _one(name, value, indent)


def _one(name: str, value: Any, indent: str, *, text: bool = False) -> Iterator[str]:
    if isinstance(value, Mapping):
        yield f"{indent}{name} {{"
        yield from _message(value, f"{indent}  ")
        yield f"{indent}}}"
    else:
        yield f"{indent}{name}: {_quoted(value) if text else _scalar(name, value)}"


def _is_default(name: str, value: Any) -> bool:
    return value in (None, "", 0, False) or (name not in TEXT_FIELDS and value == "0")


def _scalar(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str):
        return str(value)
    if name in ENUM_FIELDS or (name not in TEXT_FIELDS and NUMERIC_TEXT.fullmatch(value)):
        return value
    return _quoted(value)


def _quoted(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)

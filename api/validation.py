"""What the framework finds wrong with a request, in our words: the field, the value and what is allowed.

The handlers raise; the context around the request answers, as it does for every other error.
"""

from __future__ import annotations

from typing import Any, cast

from fastapi.exceptions import RequestValidationError
from pydantic_core import ErrorDetails
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from api.context import LARGEST_BODY_BYTES
from api.problems import NotAllowed, TooLarge
from autotuner.errors import AutotunerError, InvalidInput, NotFound, Refused
from autotuner.sections import InvalidFields, Section, problems_in

PARAMETER_ERRORS_SHOWN = 20


async def on_invalid_request(request: Request, error: Exception) -> Response:
    """Raise what is wrong with the parameters or the body of a request."""
    assert isinstance(error, RequestValidationError)
    problems = tuple(_problems(request, error))[:PARAMETER_ERRORS_SHOWN]
    raise problems[0] if len(problems) == 1 else InvalidFields(problems) from error


async def on_http_error(_request: Request, error: Exception) -> Response:
    """Raise what the framework itself refuses."""
    assert isinstance(error, HTTPException)
    raise _translated(error) from error


def _translated(error: HTTPException) -> AutotunerError:
    if error.status_code == 404:
        return NotFound("address", "this one")
    if error.status_code == 405:
        return NotAllowed(tuple((error.headers or {}).get("Allow", "").split(", ")))
    if error.status_code == 413:
        return TooLarge(LARGEST_BODY_BYTES)
    if error.status_code == 400:
        return InvalidInput("body", "(not shown)", "a JSON body")
    return Refused(str(error.detail))


def _problems(request: Request, error: RequestValidationError) -> list[InvalidInput]:
    body = [found for found in error.errors() if found["loc"][0] == "body"]
    others = [_parameter(found) for found in error.errors() if found["loc"][0] != "body"]
    return [*others, *_of_body(_body_section(request), body)]


def _parameter(found: dict[str, Any]) -> InvalidInput:
    name = ".".join(str(part) for part in found["loc"][1:])
    return InvalidInput(name, found.get("input"), found["msg"])


def _of_body(section: type[Section] | None, found: list[Any]) -> list[InvalidInput]:
    if not found:
        return []
    if found[0]["type"] == "json_invalid":
        return [InvalidInput("body", "(not shown)", f"JSON; {found[0]['ctx']['error']}")]
    if section is None or len(found[0]["loc"]) == 1:
        return [InvalidInput("body", "(not shown)", "a JSON object, sent as application/json")]
    inside = [cast(ErrorDetails, {**each, "loc": each["loc"][1:]}) for each in found]
    return list(problems_in(section, inside))


def _body_section(request: Request) -> type[Section] | None:
    """The section that the body of this request is read into."""
    field = getattr(request.scope.get("route"), "body_field", None)
    section = getattr(getattr(field, "field_info", None), "annotation", None)
    return section if isinstance(section, type) and issubclass(section, Section) else None

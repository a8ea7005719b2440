"""The OpenAPI description: what FastAPI knows of the routes, and what the guard and the context add to each of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from api.problems import KINDS, MEDIA_TYPE, UNEXPECTED, Kind
from api.schemas.problem import Problem
from api.scopes import Rule
from autotuner.domain.access import Scope

ABOUT = """\
Closed-loop tuning of NVIDIA Triton Inference Server: targets and their SLO budgets, studies, trials with their
evidence, promotions, and the audit.

Times are RFC 3339 with their zone; durations carry their unit (`30s`) or have it in the field's name. Errors are
`application/problem+json` with a stable `type`. Lists are pages: pass `next_cursor` on as `cursor`. What changes has an
`ETag`; a change needs it in `If-Match`. Every answer has an `X-Request-ID`.
"""

BY_SLUG: Mapping[str, Kind] = {kind.slug: kind for _, kind in KINDS}

BODY_METHODS = ("POST", "PUT", "PATCH")


def problems(*slugs: str) -> dict[int | str, dict[str, Any]]:
    """Return the `responses` of a route that may also end in these problems."""
    found: dict[int, list[str]] = {}
    for slug in slugs:
        kind = BY_SLUG[slug]
        found.setdefault(kind.status, []).append(kind.title)
    return {status: _response(" / ".join(titles)) for status, titles in found.items()}


def _response(title: str) -> dict[str, Any]:
    return {"description": title, "model": Problem, "content": {MEDIA_TYPE: {}}}


def describe(app: FastAPI, rules: Iterable[Rule]) -> dict[str, Any]:
    """Return the description of `app`, with the scope and the problems of every route."""
    made = get_openapi(
        title="autotuner", version=app.version, openapi_version="3.1.0", description=ABOUT, routes=app.routes
    )
    components = made.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    schemas["Problem"] = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas |= schemas["Problem"].pop("$defs", {})
    components["securitySchemes"] = {
        "bearer": {
            "type": "http",
            "scheme": "bearer",
            "description": "A token made by `autotuner token create`, or a JWT of the configured issuer.",
        }
    }
    for rule in rules:
        _complete(made["paths"][rule.path][rule.method.lower()], rule)
    return made


def _complete(operation: dict[str, Any], rule: Rule) -> None:
    responses = operation["responses"]
    slugs = ["unexpected"]
    if rule.scope is not None:
        operation["security"] = [{"bearer": []}]
        operation["x-scope"] = rule.scope.value
        operation["description"] = _with_scope(operation.get("description", ""), rule.scope)
        slugs += ["unauthenticated", "forbidden", "too-many-requests", "unavailable"]
    if "422" in responses or operation.get("parameters") or "requestBody" in operation:
        responses.pop("422", None)
        slugs += ["invalid-input"]
    if rule.method in BODY_METHODS:
        slugs += ["too-large"]
    for slug in slugs:
        kind = BY_SLUG.get(slug, UNEXPECTED)
        responses.setdefault(str(kind.status), {"description": kind.title, "content": {MEDIA_TYPE: {}}})
    for response in responses.values():
        _complete_response(response)


def _complete_response(response: dict[str, Any]) -> None:
    """A problem has one schema and one media type, wherever FastAPI put them."""
    content = response.get("content", {})
    if MEDIA_TYPE in content:
        content.pop("application/json", None)
        content[MEDIA_TYPE] = {"schema": {"$ref": "#/components/schemas/Problem"}}
    response.setdefault("headers", {})["X-Request-ID"] = {
        "description": "The request's id, as the logs have it.",
        "schema": {"type": "string"},
    }


def _with_scope(description: str, scope: Scope) -> str:
    return f"{description}\n\nNeeds the scope `{scope}`.".strip()

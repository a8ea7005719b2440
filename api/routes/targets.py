"""Targets: registered, read, changed, retired, and tried."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Body, Query, Response

from api.dependencies import App, Caller
from api.description import problems
from api.lists import ReadRoute
from api.paging import cursor_of, window
from api.parameters import IfMatch, TargetName, etag, expected_mark
from api.schemas.questions import TargetsAsked
from api.schemas.targets import (
    EXAMPLE_SECTIONS,
    EXAMPLE_TARGET,
    ConnectionAnswer,
    TargetAnswer,
    TargetChange,
    connection_answer,
    target_answer,
)
from api.schemas.wire import Page
from autotuner.addresses import AllowList, check_addresses
from autotuner.bootstrap import Application
from autotuner.domain.registration import Registration, Wanted
from autotuner.errors import InvalidInput, Outdated
from autotuner.sections import validated
from autotuner.target_file import TargetFile, slo_section_of
from autotuner.targets import MUST_BE_NEW, Asked, register, retire, try_connections

router = APIRouter(prefix="/v1/targets", tags=["Targets"], route_class=ReadRoute)

ETAG: dict[str, Any] = {
    "ETag": {"description": "Pass it in If-Match to change what was read.", "schema": {"type": "string"}}
}
BY_NAME = "targets by name"


@router.get("", response_model=Page[TargetAnswer], summary="Targets by name")
def list_targets(app: App, asked: Annotated[TargetsAsked, Query()]) -> Page[TargetAnswer]:
    """Return targets with the budgets that are in force, by name."""
    found = app.catalogue.targets(window(BY_NAME, "s", asked), retired=asked.retired)
    return Page[TargetAnswer](
        items=[target_answer(each) for each in found.items], next_cursor=cursor_of(BY_NAME, found.mark)
    )


@router.post(
    "",
    response_model=TargetAnswer,
    status_code=201,
    responses={201: {"headers": ETAG}, **problems("conflict")},
    summary="Register a target and its SLO budget",
)
def create_target(
    app: App,
    caller: Caller,
    response: Response,
    asked: Annotated[TargetFile, Body(openapi_examples={"small vision model": {"value": EXAMPLE_TARGET}})],
) -> TargetAnswer:
    """Register a new target, or a retired one anew. Its addresses must be allowed (AUTOTUNER_TARGET_ADDRESSES)."""
    target = asked.target()
    check_addresses(target, _allowed(app))
    wanted = Wanted(target, asked.budget(caller.actor), asked.study.defaults())
    made = register(app.registry, app.clock, wanted, Asked(caller.actor, asked.slo.reason, MUST_BE_NEW))
    response.headers["Location"] = f"{router.prefix}/{made.target.name}"
    return _answer(made, response)


@router.get(
    "/{name}",
    response_model=TargetAnswer,
    responses={200: {"headers": ETAG}, **problems("not-found")},
    summary="A target",
)
def read_target(app: App, name: TargetName, response: Response) -> TargetAnswer:
    """Return a target as it is registered, retired or not."""
    return _answer(app.registry.registration(name), response)


@router.put(
    "/{name}",
    response_model=TargetAnswer,
    responses={
        200: {"headers": ETAG},
        **problems("not-found", "refused", "outdated", "precondition-required"),
    },
    summary="Change a target",
)
def change_target(
    app: App,
    caller: Caller,
    name: TargetName,
    response: Response,
    change: Annotated[
        TargetChange, Body(openapi_examples={"small vision model": {"value": EXAMPLE_SECTIONS}})
    ],
    if_match: IfMatch = None,
) -> TargetAnswer:
    """Replace everything but the SLO budget. Studies that run keep what they were started with."""
    if change.name != name:
        raise InvalidInput("name", change.name, f"{name}, as in the address")
    before = _as_read(app.registry.registration(name), if_match)
    said = change.model_dump(mode="json", exclude={"reason"}, exclude_unset=True)
    asked = validated(TargetFile, {**said, "slo": slo_section_of(before.slo)}, "body")
    target = asked.target()
    check_addresses(target, _allowed(app))
    defaults = replace(asked.study.defaults(), max_dispersion=before.defaults.max_dispersion)
    wanted = Wanted(target, defaults=defaults)
    changed = register(app.registry, app.clock, wanted, Asked(caller.actor, change.reason, before.mark))
    return _answer(changed, response)


@router.delete(
    "/{name}",
    response_model=TargetAnswer,
    responses={
        200: {"headers": ETAG},
        **problems("not-found", "conflict", "outdated", "precondition-required"),
    },
    summary="Retire a target",
)
def retire_target(
    app: App,
    caller: Caller,
    name: TargetName,
    response: Response,
    reason: Annotated[str, Query(max_length=1000, description="Why; recorded in the audit.")] = "",
    if_match: IfMatch = None,
) -> TargetAnswer:
    """Let no study of it start any more. Its history stays; registering it anew brings it back."""
    before = _as_read(app.registry.registration(name), if_match)
    retired = retire(app.registry, app.clock, name, Asked(caller.actor, reason, before.mark))
    return _answer(retired, response)


@router.post(
    "/{name}/check",
    response_model=ConnectionAnswer,
    responses=problems("not-found"),
    summary="Try whether everything it names can be reached",
)
def check_target(app: App, name: TargetName) -> ConnectionAnswer:
    """Read servers, gateway and metrics once, as a study would, and change nothing."""
    kept = app.registry.registration(name)
    check_addresses(kept.target, _allowed(app))
    return connection_answer(try_connections(kept.target, app.worlds(kept.target), app.pools.reads))


def _allowed(app: Application) -> AllowList:
    return AllowList.read(app.settings.target_addresses)


def _tag(kept: Registration) -> str:
    """What the answer depends on: the target's own mark, and the version of its budget."""
    return f"{kept.mark}.{kept.slo.version}"


def _as_read(kept: Registration, if_match: str | None) -> Registration:
    """Return a target that is still as the caller read it. Raises PreconditionMissing, Outdated."""
    subject = f"target {kept.target.name}"
    expected = expected_mark(subject, if_match)
    if expected != _tag(kept):
        raise Outdated(subject, f"it has changed since it was read: expected {expected}, found {_tag(kept)}")
    return kept


def _answer(kept: Registration, response: Response) -> TargetAnswer:
    response.headers["ETag"] = etag(_tag(kept))
    return target_answer(kept)

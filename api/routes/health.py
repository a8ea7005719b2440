"""Does it live, can it be used, what does it measure of itself, who am I to it, and how is it used."""

from __future__ import annotations

from collections.abc import Callable

from anyio import CapacityLimiter, move_on_after, to_thread
from fastapi import APIRouter, Request, Response

from api.dependencies import App, Caller
from api.schemas.health import Check, Health, Me, Readiness
from autotuner import __version__
from autotuner.bootstrap import Application
from autotuner.errors import AutotunerError
from autotuner.telemetry.logs import starred
from autotuner.telemetry.metrics import MEDIA_TYPE, Instruments

router = APIRouter(tags=["Service"])

ANSWER_SECONDS = 5.0
"""How long the database may take to say that it works."""

PROBES = 4
"""Checks that may be waiting for it at the same time, in threads that no request needs."""


@router.get("/healthz", response_model=Health, summary="Whether the process answers")
async def healthz() -> Health:
    """Ask nothing of anybody else: a database that is away is no reason to restart this process."""
    return Health(status="ok", version=__version__)


@router.get(
    "/readyz",
    response_model=Readiness,
    responses={503: {"model": Readiness, "description": "Not ready; the checks say what, and why"}},
    summary="Whether requests can be served now, and what is not ready",
)
async def readyz(app: App, request: Request, response: Response) -> Readiness:
    """Check the database, its schema, then whether it takes writes. 503 while one of them cannot be used."""
    instruments: Instruments = request.app.state.instruments
    checks = await _within(app, request.app.state.probes)
    ready = all(check.ready for check in checks)
    instruments.ready.set(int(ready))
    response.status_code = 200 if ready else 503
    return Readiness(ready=ready, checks=checks)


async def _within(app: Application, probes: CapacityLimiter) -> list[Check]:
    """Return the checks, or that the database has not answered: one that hangs must not make this hang too."""
    with move_on_after(ANSWER_SECONDS):
        return await to_thread.run_sync(_checks, app, abandon_on_cancel=True, limiter=probes)
    return [Check(name="database", ready=False, detail=f"no answer within {ANSWER_SECONDS:g} s")]


def _checks(app: Application) -> list[Check]:
    found: list[Check] = []
    wanted: tuple[tuple[str, Callable[[], object]], ...] = (
        ("database", app.schema_is_current),
        ("schema", app.require_current_schema),
        ("writes", app.require_writes),
    )
    for name, check in wanted:
        try:
            check()
        except AutotunerError as error:
            found.append(Check(name=name, ready=False, detail=starred(str(error))))
            break
        found.append(Check(name=name, ready=True, detail=""))
    return found


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"description": "Prometheus' text format", "content": {"text/plain": {}}}},
    summary="The service's own metrics",
)
def metrics(request: Request) -> Response:
    """Return every metric of this process in Prometheus' text format; docs/api.md lists them."""
    instruments: Instruments = request.app.state.instruments
    return Response(instruments.page(), media_type=MEDIA_TYPE)


@router.get("/v1/me", response_model=Me, summary="Who the service takes you for")
def me(caller: Caller) -> Me:
    """Return the actor that the audit would record, and the scopes held."""
    return Me(actor=caller.actor, scopes=sorted(caller.scopes), source=caller.source)


@router.get(
    "/v1/openapi.json",
    response_class=Response,
    responses={200: {"description": "OpenAPI 3.1", "content": {"application/json": {}}}},
    summary="This description",
)
def description(request: Request) -> Response:
    """Return what this service can be asked, as OpenAPI 3.1."""
    made: bytes = request.app.state.description()
    return Response(made, media_type="application/json")

"""Does it live, can it be used, what does it measure of itself, who am I to it, and how is it used."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import APIRouter, Request, Response

from api.dependencies import App, Caller
from api.schemas.health import Check, Health, Me, Readiness
from autotuner import __version__
from autotuner.bootstrap import Application
from autotuner.errors import AutotunerError
from autotuner.telemetry.logs import starred
from autotuner.telemetry.metrics import MEDIA_TYPE, Instruments

router = APIRouter(tags=["Service"])


@router.get("/healthz", response_model=Health, summary="Whether the process answers")
def healthz() -> Health:
    """Ask nothing of anybody else: a database that is away is no reason to restart this process."""
    return Health(status="ok", version=__version__)


@router.get(
    "/readyz",
    response_model=Readiness,
    responses={503: {"model": Readiness, "description": "Not ready; the checks say what, and why"}},
    summary="Whether requests can be served now, and what is not ready",
)
def readyz(app: App, request: Request, response: Response) -> Readiness:
    """Check the database, then its schema. 503 while one of them cannot be used."""
    instruments: Instruments = request.app.state.instruments
    checks = _checks(app)
    ready = all(check.ready for check in checks)
    instruments.ready.set(int(ready))
    response.status_code = 200 if ready else 503
    return Readiness(ready=ready, checks=checks)


def _checks(app: Application) -> list[Check]:
    found: list[Check] = []
    wanted: tuple[tuple[str, Callable[[], object]], ...] = (
        ("database", app.schema_is_current),
        ("schema", app.require_current_schema),
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

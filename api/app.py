"""The application factory: routes, guard, context and description around one `Application`."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from api.context import Context, Surroundings
from api.description import describe
from api.guard import Gate, Guard, Known
from api.limits import Limiter
from api.routes import audit, budgets, events, health, promotions, schedules, studies, targets, trials
from api.scopes import RULES, RuleBook
from api.validation import on_http_error, on_invalid_request
from autotuner import __version__
from autotuner.access import identify
from autotuner.bootstrap import Application
from autotuner.domain.access import Identity
from autotuner.telemetry.metrics import Instruments

ROUTERS = (
    health.router,
    targets.router,
    budgets.router,
    studies.router,
    events.router,
    trials.router,
    promotions.router,
    schedules.router,
    audit.router,
)


def create(application: Application) -> FastAPI:
    """Return the API over `application`, which stays the caller's to close.

    Raises LookupError when a route has no rule: nothing is ever served without one.
    """
    app = FastAPI(
        title="autotuner", version=__version__, openapi_url=None, docs_url=None, redoc_url=None, debug=False
    )
    for router in ROUTERS:
        app.include_router(router)
    rules = RuleBook(RULES)
    rules.check_complete(routes())
    instruments = Instruments()
    app.state.application = application
    app.state.instruments = instruments
    app.state.seats = events.Seats(application.settings.api_streams, instruments.streams)
    app.state.description = functools.cache(lambda: json.dumps(describe(app, RULES)).encode())
    app.add_exception_handler(RequestValidationError, on_invalid_request)
    app.add_exception_handler(HTTPException, on_http_error)
    # The last one added is the outermost: Context, then Guard, then the routes.
    app.add_middleware(Guard, gate=_gate(application, rules))
    app.add_middleware(Context, surroundings=Surroundings(application.clock, instruments))
    return app


def routes() -> Iterator[tuple[str, str]]:
    """Yield method and path of every route."""
    for router in ROUTERS:
        for route in router.routes:
            assert isinstance(route, APIRoute)
            yield from ((method, route.path) for method in route.methods or ())


def _gate(application: Application, rules: RuleBook) -> Gate:
    def known(credential: str) -> Identity:
        return identify(application.tokens, application.issuer, application.clock, credential)

    settings, clock = application.settings, application.clock
    return Gate(
        rules=rules,
        identify=known,
        known=Known(clock),
        callers=Limiter(settings.api_requests_per_minute, clock),
        failures=Limiter(settings.api_failures_per_minute, clock),
    )

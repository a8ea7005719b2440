"""The application factory: routes, guard, context and description around one `Application`."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Iterator

from anyio import CapacityLimiter
from fastapi import APIRouter, FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Scope

from api.context import Context, Surroundings, as_problem
from api.description import describe
from api.dispatch import ByRule
from api.guard import Gate, Guard, Known
from api.limits import Limiter
from api.routes import (
    audit,
    budgets,
    diagnosis,
    events,
    health,
    promotions,
    schedules,
    spans,
    studies,
    targets,
    trials,
)
from api.scopes import RULES, RuleBook
from api.ui import web
from api.ui.failures import failure, is_page
from api.ui.rendering import Renderer
from api.ui.rules import PAGES
from api.ui.session import Sessions
from api.validation import on_http_error, on_invalid_request
from autotuner import __version__
from autotuner.access import identify
from autotuner.bootstrap import Application
from autotuner.domain.access import Identity

ROUTERS = (
    health.router,
    targets.router,
    budgets.router,
    diagnosis.router,
    studies.router,
    events.router,
    trials.router,
    promotions.router,
    schedules.router,
    spans.router,
    audit.router,
)


def create(application: Application) -> FastAPI:
    """Return the API over `application`, which stays the caller's to close.

    Raises LookupError when a route has no rule: nothing is ever served without one.
    """
    app = FastAPI(
        title="autotuner", version=__version__, openapi_url=None, docs_url=None, redoc_url=None, debug=False
    )
    app.router.routes.append(ByRule((*_routes(ROUTERS), *_routes(web.ROUTERS))))
    for router in (*ROUTERS, *web.ROUTERS):
        app.include_router(router)
    rules = RuleBook((*RULES, *PAGES))
    rules.check_complete((*routes(), *pages()))
    instruments = application.instruments
    renderer = Renderer(Sessions(application.clock, application.settings.ui_session_key.get_secret_value()))
    gate = _gate(application, rules, renderer.sessions)
    app.state.application = application
    app.state.instruments = instruments
    app.state.probes = CapacityLimiter(health.PROBES)
    app.state.seats = events.Seats(application.settings.api_streams, instruments.streams)
    app.state.gate = gate
    app.state.renderer = renderer
    app.state.description = functools.cache(lambda: json.dumps(describe(app, RULES)).encode())
    app.add_exception_handler(RequestValidationError, on_invalid_request)
    app.add_exception_handler(HTTPException, on_http_error)
    # The last one added is the outermost: Context, then Guard, then the routes.
    app.add_middleware(Guard, gate=gate)
    app.add_middleware(
        Context, surroundings=Surroundings(application.clock, instruments, _responding(renderer))
    )
    return app


def routes() -> Iterator[tuple[str, str]]:
    """Yield method and path of every route of the REST API."""
    yield from _served(ROUTERS)


def pages() -> Iterator[tuple[str, str]]:
    """Yield method and path of every page."""
    yield from _served(web.ROUTERS)


def _served(routers: Iterable[APIRouter]) -> Iterator[tuple[str, str]]:
    for route in _routes(routers):
        yield from ((method, route.path) for method in route.methods or ())


def _routes(routers: Iterable[APIRouter]) -> Iterator[APIRoute]:
    for router in routers:
        for route in router.routes:
            assert isinstance(route, APIRoute)
            yield route


def _responding(renderer: Renderer) -> Callable[[Scope, Exception, str], Response]:
    """Return what answers errors: browsers get a page, programs a problem."""

    def respond(scope: Scope, error: Exception, request_id: str) -> Response:
        if is_page(scope):
            return failure(renderer, scope, error, request_id)
        return as_problem(scope, error, request_id)

    return respond


def _gate(application: Application, rules: RuleBook, sessions: Sessions) -> Gate:
    def known(credential: str) -> Identity:
        return identify(application.tokens, application.issuer, application.clock, credential)

    settings, clock = application.settings, application.clock
    return Gate(
        rules=rules,
        identify=known,
        known=Known(clock),
        callers=Limiter("requests of", settings.api_requests_per_minute, application.allowances, clock),
        failures=Limiter("failures from", settings.api_failures_per_minute, application.allowances, clock),
        shown=functools.partial(web.shown_to, sessions),
    )

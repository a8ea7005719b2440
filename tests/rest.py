"""The REST API in this process, over a store in memory and a simulated target, with a token for every scope."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from fastapi.testclient import TestClient
from pydantic import SecretStr

from api.app import create
from autotuner.access import Wanted, issue_token
from autotuner.adapters.postgres import (
    Engine,
    PostgresAllowances,
    PostgresCatalogue,
    PostgresLeases,
    PostgresNights,
    PostgresRegistry,
    PostgresSpans,
    PostgresStore,
    PostgresTokens,
)
from autotuner.bootstrap import Application
from autotuner.domain.access import Scope
from autotuner.settings import Settings
from tests.command_line import Terminal

DATABASE_URL = "postgresql+psycopg://me:s3cret@nowhere/x"
LOOPBACK = "127.0.0.0/8"


def rest_settings(**changes: Any) -> Settings:
    """Settings of the API under test: the targets of the tests are on loopback, and tests ask quickly."""
    fields: dict[str, Any] = {
        "database_url": SecretStr(DATABASE_URL),
        "actor": "tester",
        "holder": "here",
        "target_addresses": LOOPBACK,
        "api_requests_per_minute": 1_000_000,
        "api_failures_per_minute": 1_000_000,
    }
    return Settings(**{**fields, **changes})


@dataclass
class Rest:
    """The API and what it works on. secrets: a token's secret for each scope; its actor is called like the scope."""

    application: Application
    client: TestClient
    terminal: Terminal
    secrets: dict[Scope, str] = field(default_factory=dict, repr=False)

    def headers(self, scope: Scope | None = Scope.ADMIN, **more: str) -> dict[str, str]:
        """Headers of somebody with one scope; of nobody for None."""
        named = {name.replace("_", "-"): value for name, value in more.items()}
        return named if scope is None else {"Authorization": f"Bearer {self.secrets[scope]}", **named}

    def ask(self, method: str, path: str, scope: Scope | None = Scope.ADMIN, **options: Any) -> Any:
        """Send one request as somebody with `scope`; headers may be given in `headers`."""
        headers = {**self.headers(scope), **options.pop("headers", {})}
        return self.client.request(method, path, headers=headers, **options)

    def get(self, path: str, scope: Scope | None = Scope.VIEWER, **options: Any) -> Any:
        """Send one GET and return the JSON of its answer, which must be 200."""
        answer = self.ask("GET", path, scope, **options)
        assert answer.status_code == 200, answer.text
        return answer.json()


def a_secret(application: Application, actor: str, *scopes: Scope, days: int = 30) -> str:
    """Issue a token and return its secret."""
    wanted = Wanted(actor, scopes, timedelta(days=days))
    return issue_token(application.tokens, application.clock, wanted, "tester")[1]


def as_it_is(application: Application) -> Application:
    """Return the application itself."""
    return application


def over_postgres(engine: Engine) -> Callable[[Application], Application]:
    """Return what puts an application over the database of `engine` instead of its store in memory."""

    def moved(application: Application) -> Application:
        return replace(
            application,
            store=PostgresStore(engine),
            registry=PostgresRegistry(engine),
            catalogue=PostgresCatalogue(engine),
            nights=PostgresNights(engine),
            tokens=PostgresTokens(engine),
            allowances=PostgresAllowances(engine),
            leases=PostgresLeases(engine),
            received=PostgresSpans(engine),
        )

    return moved


@contextmanager
def serving(
    terminal: Terminal | None = None,
    move: Callable[[Application], Application] = as_it_is,
    **changes: Any,
) -> Iterator[Rest]:
    """Give the API over a terminal's store, or where `move` puts it, with settings changed as said."""
    terminal = terminal or Terminal()
    terminal.settings = rest_settings(**changes)
    application = move(terminal.application(terminal.settings))
    with TestClient(create(application)) as client:
        secrets = {scope: a_secret(application, scope.value, scope) for scope in Scope}
        yield Rest(application, client, terminal, secrets)

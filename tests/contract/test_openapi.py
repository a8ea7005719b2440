"""The REST API does what its description says, whatever it is asked and whoever asks.

schemathesis makes requests from the description, right ones and wrong ones, for each route and scope. Nothing may end
in an answer that is not described, in one that does not fit its schema, or in an error nobody foresaw; and nothing may
be read or written without the scope.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    ignored_auth,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from api.scopes import RULES, Rule
from autotuner.adapters.memory_store import MemoryStore
from autotuner.adapters.postgres import open_engine, upgrade
from autotuner.domain.access import INCLUDED, Scope
from tests.command_line import TARGET, Terminal
from tests.postgres_server import PostgresServer
from tests.rest import Rest, over_postgres, serving
from tests.studies import TTL, a_rich_study, append

EXAMPLES = 10
"""Requests of each route, scope and mode."""

KNOWN = {"name": "vision", "study_id": "latest", "number": 1}
"""What is there to be asked for; chance would find none of it."""

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    negative_data_rejection,
    unsupported_method,
    ignored_auth,
]

# A stream lasts as long as its study; its own tests read it.
ASKED = [rule for rule in RULES if not rule.path.endswith("/events")]

# The others take nothing that could be wrong.
TAKING = [rule for rule in ASKED if rule.scope is not None and rule.path not in ("/metrics", "/v1/me")]


@pytest.fixture(scope="module", params=["memory", "postgres"])
def rest(request: pytest.FixtureRequest) -> Iterator[Rest]:
    """The API over a target with a study that has trials, in memory and in PostgreSQL."""
    if request.param == "memory":
        with serving(Terminal(store=MemoryStore())) as made:
            yield with_a_study(made)
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    with server.database() as url:
        upgrade(url)
        engine = open_engine(url)
        with serving(move=over_postgres(engine)) as made:
            yield with_a_study(made)
        engine.dispose()


def with_a_study(rest: Rest) -> Rest:
    """Record a target, and a study of it with every part filled."""
    rest.ask("POST", "/v1/targets", json=TARGET)
    store = rest.application.store
    study = a_rich_study(rest.application.registry.registration("vision").slo)
    bare = replace(study, trials=())
    store.create_study(bare)
    grant = rest.application.leases.acquire("vision", "worker-1", TTL)
    assert grant is not None
    append(store, bare, study, grant)
    return rest


@pytest.fixture(scope="module")
def description(rest: Rest) -> Any:
    """The description as schemathesis reads it, with the application behind it."""
    return schemathesis.openapi.from_asgi("/v1/openapi.json", rest.client.app)


@pytest.mark.parametrize("rule", ASKED, ids=lambda rule: f"{rule.method} {rule.path}")
@pytest.mark.parametrize("scope", Scope)
def test_every_answer_is_a_described_one_whoever_asks(
    rest: Rest, description: Any, rule: Rule, scope: Scope
) -> None:
    operation = description[rule.path][rule.method]
    closed = rule.scope is not None and rule.scope not in INCLUDED[scope]

    known = {name: value for name, value in KNOWN.items() if f"{{{name}}}" in rule.path}

    @given(case=operation.as_strategy(GenerationMode.POSITIVE, path_parameters=known))
    @settings(max_examples=1 if closed else EXAMPLES, suppress_health_check=list(HealthCheck))
    def ask(case: Any) -> None:
        assert (asked(rest, case, scope) == 403) is closed

    ask()


@pytest.mark.parametrize("rule", TAKING, ids=lambda rule: f"{rule.method} {rule.path}")
def test_every_answer_to_a_wrong_request_is_a_described_one(rest: Rest, description: Any, rule: Rule) -> None:
    operation = description[rule.path][rule.method]

    @given(case=operation.as_strategy(GenerationMode.NEGATIVE))
    @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
    def ask(case: Any) -> None:
        asked(rest, case, Scope.ADMIN)

    ask()


def asked(rest: Rest, case: Any, scope: Scope) -> int:
    """Send a request that schemathesis made, check the answer against the description, return its status."""
    headers = rest.headers(scope)
    response = case.call(headers=headers)
    case.validate_response(response, checks=CHECKS, headers=headers)
    status: int = response.status_code
    return status

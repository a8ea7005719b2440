"""Lists are read over indexes: what the planner chooses on tens of thousands of rows, for every filter and sort."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Engine, event, text

from autotuner.adapters.postgres import PostgresCatalogue, PostgresTokens, open_engine, upgrade
from autotuner.catalogue import (
    AuditFilter,
    Between,
    Span,
    StudyFilter,
    TrialFilter,
    TrialOrder,
    TrialSort,
    Window,
)
from autotuner.domain.judgement import Verdict
from autotuner.domain.study import Outcome, Phase
from tests.builders import at
from tests.history import RICH, record_history
from tests.postgres_server import PostgresServer

STUDIES, TRIALS_EACH = 1_000, 50
"""How much is recorded: 50,000 trials and as many audit records."""

LARGE = {"trials", "audit", "tokens"}
"""Tables of which no list may read every row."""

NEWEST = TrialOrder()
MIDDLE = at(500 * 3600)


@pytest.fixture(scope="module")
def engine(postgres_server: PostgresServer) -> Iterator[Engine]:
    """A database with tens of thousands of rows, analysed."""
    with postgres_server.database() as url:
        upgrade(url)
        made = open_engine(url)
        record_history(made, STUDIES, TRIALS_EACH)
        yield made
        made.dispose()


@contextmanager
def explained(engine: Engine) -> Iterator[list[str]]:
    """Collect the plan of every query inside the block."""
    plans: list[str] = []

    def before(_connection: Any, cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        if statement.startswith("SELECT"):
            with cursor.connection.cursor() as another:
                another.execute(f"EXPLAIN {statement}", parameters)
                plans.append("\n".join(row[0] for row in another.fetchall()))

    event.listen(engine, "before_cursor_execute", before)
    try:
        yield plans
    finally:
        event.remove(engine, "before_cursor_execute", before)


def trials(wanted: TrialFilter, order: TrialOrder = NEWEST) -> Callable[[PostgresCatalogue], object]:
    """Ask for two pages of trials."""

    def ask(catalogue: PostgresCatalogue) -> object:
        first = catalogue.trials(wanted, order, Window(50))
        return catalogue.trials(wanted, order, Window(50, first.mark)) if first.mark else first

    return ask


QUESTIONS: dict[str, Callable[[PostgresCatalogue], object]] = {
    "trials": trials(TrialFilter()),
    "trials, oldest first": trials(TrialFilter(), TrialOrder(descending=False)),
    "trials by capacity": trials(TrialFilter(), TrialOrder(TrialSort.CAPACITY)),
    "trials by harm": trials(TrialFilter(), TrialOrder(TrialSort.HARM)),
    "trials of a study": trials(TrialFilter(study="study-500")),
    "trials of a study by harm": trials(TrialFilter(study="study-500"), TrialOrder(TrialSort.HARM)),
    "trials of a target": trials(TrialFilter(target="target-7")),
    "trials of nobody": trials(TrialFilter(target="nobody")),
    "rare verdict": trials(TrialFilter(verdict=Verdict.VOID)),
    "verdict of a target": trials(TrialFilter(target="target-7", verdict=Verdict.REJECT)),
    "configuration": trials(TrialFilter(instances=Between(2, 3), delay_microseconds=Between(most=2000))),
    "an instance count nobody tried": trials(TrialFilter(instances=Between(900, 1000))),
    "a batch size nobody tried": trials(TrialFilter(max_batch_size=Between(64, 64))),
    "preferred sizes nobody tried": trials(TrialFilter(preferred=(2, 16))),
    "time": trials(TrialFilter(proposed=Span(MIDDLE, at(510 * 3600)))),
    "studies": lambda catalogue: catalogue.studies(StudyFilter(), Window(50)),
    "studies of a target": lambda catalogue: catalogue.studies(StudyFilter("target-7"), Window(50)),
    "studies that wait": lambda catalogue: catalogue.studies(StudyFilter(phase=Phase.APPROVAL), Window(50)),
    "promoted studies": lambda catalogue: catalogue.studies(
        StudyFilter(outcome=Outcome.PROMOTED), Window(10)
    ),
    "a trial": lambda catalogue: catalogue.evidence(RICH[0], 7),
    "targets at a glance": lambda catalogue: catalogue.glances([f"target-{n}" for n in range(20)]),
    "audit": lambda catalogue: catalogue.audit(AuditFilter(), Window(50)),
    "audit of an actor": lambda catalogue: catalogue.audit(AuditFilter(actor="actor-7"), Window(50)),
    "audit of an action": lambda catalogue: catalogue.audit(
        AuditFilter(action="budget_loosened"), Window(50)
    ),
    "audit of a subject": lambda catalogue: catalogue.audit(AuditFilter(subject="study-500"), Window(50)),
    "audit until then": lambda catalogue: catalogue.audit(AuditFilter(at=Span(until=MIDDLE)), Window(50)),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_list_is_read_over_an_index(engine: Engine, question: str) -> None:
    with explained(engine) as plans:
        QUESTIONS[question](PostgresCatalogue(engine))

    assert plans
    for plan in plans:
        assert set(re.findall(r"Seq Scan on (\w+)", plan)) & LARGE == set(), plan


def test_a_token_is_found_over_an_index(engine: Engine) -> None:
    with explained(engine) as plans:
        PostgresTokens(engine).by_digest("0" * 64)

    assert "Index Scan" in plans[0]


def test_the_check_sees_a_list_that_is_not(engine: Engine) -> None:
    with explained(engine) as plans, engine.connect() as connection:
        connection.execute(text("SELECT count(*) FROM trials WHERE reason = 'because'"))

    assert "Seq Scan on trials" in plans[0]

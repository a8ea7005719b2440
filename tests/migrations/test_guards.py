"""What the database itself refuses, whoever is connected and whatever the code believes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum

import pytest
from sqlalchemy import exc

from autotuner.adapters.postgres import upgrade
from autotuner.adapters.postgres.tables import APPEND_ONLY
from autotuner.bookkeeping.audit import AuditAction
from autotuner.domain.judgement import Verdict
from autotuner.domain.notices import NoticeKind
from autotuner.domain.study import Outcome, Phase, TrialKind, TrialState, Wish
from autotuner.domain.target import Objective
from autotuner.ports import MessageState, NightState
from tests.migrations.test_migrations import contents, seed
from tests.postgres_server import PostgresServer, rows

ENUMS: list[tuple[str, str, type[StrEnum]]] = [
    ("targets", "objective", Objective),
    ("studies", "phase", Phase),
    ("studies", "outcome", Outcome),
    ("studies", "wish", Wish),
    ("trials", "kind", TrialKind),
    ("trials", "state", TrialState),
    ("trials", "verdict", Verdict),
    ("steps", "verdict", Verdict),
    ("audit", "action", AuditAction),
    ("nights", "state", NightState),
    ("nights", "outcome", Outcome),
    ("notifications", "kind", NoticeKind),
    ("notifications", "state", MessageState),
]

LATER_ROWS = (
    "INSERT INTO nights VALUES ('vision', '2026-01-05T02:30', now(), 'started', 'study-1', NULL, '', now())",
    (
        "INSERT INTO notifications (kind, target, subject, at, text, details, state, attempts, next_attempt_at, "
        "delivered_to, error) VALUES ('promoted', 'vision', 's', now(), '', '{}', 'pending', 0, now(), '{}', '')"
    ),
    "INSERT INTO ledger VALUES ('study-1', 'vision', now(), 'better', 'USD', '{}')",
)
"""A row in each table that the first revision did not have, as far as a test needs one."""


@pytest.fixture(scope="module")
def seeded_url(postgres_server: PostgresServer) -> Iterator[str]:
    """The URL of a database at the newest revision with a row in each table; every test here is refused."""
    with postgres_server.database() as url:
        upgrade(url, "0001")
        seed(url)
        upgrade(url)
        for statement in LATER_ROWS:
            rows(url, statement)
        yield url


@pytest.mark.parametrize("table", APPEND_ONLY)
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE {} SET reason = 'nicer'",
        "UPDATE {} SET reason = 'nicer' WHERE false",
        "DELETE FROM {}",
        "TRUNCATE {} CASCADE",
    ],
)
def test_what_is_append_only_refuses_every_change(seeded_url: str, table: str, statement: str) -> None:
    before = contents(seeded_url)

    with pytest.raises(exc.IntegrityError, match="rows are only added, never changed"):
        rows(seeded_url, statement.format(table))

    assert contents(seeded_url) == before


@pytest.mark.parametrize(("table", "column", "known"), ENUMS)
def test_the_values_the_database_knows_are_those_of_the_code(
    seeded_url: str, table: str, column: str, known: type[StrEnum]
) -> None:
    question = (
        f"SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = 'ck_{table}_{column}_known'"
    )
    ((definition,),) = rows(seeded_url, question)

    assert sorted(re.findall(r"'([^']*)'", str(definition))) == sorted(known)


@pytest.mark.parametrize(("table", "column", "known"), ENUMS)
def test_a_value_nobody_knows_is_refused(
    seeded_url: str, table: str, column: str, known: type[StrEnum]
) -> None:
    statement = f"UPDATE {table} SET {column} = 'perhaps'"
    if table == "audit":
        statement = (
            "INSERT INTO audit (at, actor, action, subject, reason, details, previous_hash, hash) "
            "VALUES (now(), '', 'perhaps', '', '', '{}', 'x', 'y')"
        )

    if (table, column) == ("nights", "outcome"):
        statement = "UPDATE nights SET state = 'ended', outcome = 'perhaps'"

    with pytest.raises(exc.IntegrityError, match=f"ck_{table}_{column}_known"):
        rows(seeded_url, statement)


def test_every_enum_of_the_tables_is_checked_here(seeded_url: str) -> None:
    checked = rows(
        seeded_url,
        "SELECT conname FROM pg_constraint WHERE conname LIKE 'ck~_%~_known' ESCAPE '~' ORDER BY 1",
    )

    listed = [f"ck_{table}_{column}_known" for table, column, _ in ENUMS]
    assert [name for (name,) in checked] == sorted([*listed, "ck_journal_kind_known"])


BUDGET_COLUMNS = (
    "error_ratio_ceiling, max_canary_share, harm_budget_requests, loosened, loosened_fields, actor"
)
AUDIT_COLUMNS = "at, actor, action, subject, reason, details, previous_hash"
LOOSENED = "FROM slo_budgets WHERE loosened"

IMPOSSIBLE = {
    "pk_nights": (
        "INSERT INTO nights SELECT target, name, due_at, 'missed', NULL, NULL, '', settled_at FROM nights"
    ),
    "ck_nights_started_has_study": "UPDATE nights SET study_id = NULL",
    "ck_line_only_one": "INSERT INTO line VALUES (2, NULL, '', '')",
    "uq_studies_unfinished_target": "UPDATE studies SET phase = 'created', outcome = NULL",
    "fk_studies_target_slo_version_slo_budgets": "UPDATE studies SET slo_version = 3",
    "ck_studies_sequence_not_negative": "UPDATE studies SET sequence = -1",
    "fk_steps_study_id_trial_number_trials": "DELETE FROM trials",
    "fk_journal_study_id_studies": "DELETE FROM studies WHERE id = 'study-1'",
    "fk_leases_target_targets": "INSERT INTO leases SELECT 'nobody', holder, session, 1, expires_at FROM leases",
    "ck_leases_holder_has_session": "UPDATE leases SET holder = NULL",
    "ck_slo_budgets_loosened_says_why": (
        f"INSERT INTO slo_budgets SELECT target, 3, 1, {BUDGET_COLUMNS}, ' ', created_at {LOOSENED}"
    ),
    "ck_slo_budgets_p99_ceiling_positive": (
        f"INSERT INTO slo_budgets SELECT target, 3, 0, {BUDGET_COLUMNS}, 'why', created_at {LOOSENED}"
    ),
    "ck_journal_kind_known": (
        "INSERT INTO journal SELECT study_id, 2, 'rumour', at, actor, reason, observed, action, state FROM journal"
    ),
    "uq_audit_previous_hash": (
        f"INSERT INTO audit ({AUDIT_COLUMNS}, hash) SELECT {AUDIT_COLUMNS}, 'another branch' FROM audit"
    ),
}


@pytest.mark.parametrize("constraint", IMPOSSIBLE)
def test_what_cannot_be_true_is_refused(seeded_url: str, constraint: str) -> None:
    with pytest.raises(exc.IntegrityError, match=constraint):
        rows(seeded_url, IMPOSSIBLE[constraint])

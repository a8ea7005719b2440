"""The schema's history: it goes up and down, loses nothing, and leaves the running service alone."""

from __future__ import annotations

import ast
import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import Script, ScriptDirectory
from sqlalchemy import NullPool, create_engine, text

from autotuner.adapters.postgres import (
    PostgresLeases,
    PostgresStore,
    downgrade,
    is_current,
    migrate,
    open_engine,
    upgrade,
)
from autotuner.adapters.postgres.tables import METADATA, VERSION_TABLE
from autotuner.errors import NotFound, Unavailable
from tests.postgres_server import rows
from tests.studies import TTL

ROOT = Path(__file__).parents[2]
SEED = Path(__file__).parent / "seed_0001.sql"
SCRIPTS = ScriptDirectory.from_config(migrate.configuration())
REVISIONS: list[Script] = list(reversed(list(SCRIPTS.walk_revisions())))

TABLES = "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'"
COLUMNS = (
    "SELECT table_name, column_name, data_type, is_nullable, column_default, is_identity "
    "FROM information_schema.columns WHERE table_schema = 'public' ORDER BY 1, 2"
)
CONSTRAINTS = (
    "SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint "
    f"WHERE connamespace = 'public'::regnamespace AND conrelid::regclass::text <> '{VERSION_TABLE}' ORDER BY 1, 2"
)
INDEXES = (
    "SELECT indexname, indexdef FROM pg_indexes "
    f"WHERE schemaname = 'public' AND tablename <> '{VERSION_TABLE}' ORDER BY 1"
)
TRIGGERS = (
    "SELECT tgrelid::regclass::text, tgname, pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal"
)


def schema(url: str) -> list[list[tuple[object, ...]]]:
    """Everything the database is made of."""
    return [rows(url, question) for question in (COLUMNS, CONSTRAINTS, INDEXES, TRIGGERS)]


OWN_COLUMNS = (
    "SELECT table_name, string_agg(format('%I', column_name), ', ' ORDER BY ordinal_position) "
    "FROM information_schema.columns WHERE table_schema = 'public' GROUP BY 1"
)


def columns_of(url: str) -> dict[str, str]:
    """Every table of ours that there is at the database's revision, and its columns."""
    found = {str(table): str(columns) for table, columns in rows(url, OWN_COLUMNS)}
    return {table: columns for table, columns in found.items() if table in METADATA.tables}


def contents(url: str, columns: dict[str, str] | None = None) -> dict[str, list[tuple[object, ...]]]:
    """Every row of every table, as text, so that not a digit goes unnoticed. columns: only these of each table."""
    return {
        table: rows(url, f"SELECT ROW({names})::text FROM {table} ORDER BY 1")
        for table, names in (columns or columns_of(url)).items()
    }


def seed(url: str) -> None:
    """Fill a database at the first revision."""
    engine = create_engine(url, poolclass=NullPool)
    with engine.begin() as connection:
        connection.exec_driver_sql(SEED.read_text(encoding="utf-8"))


# -- the scripts -------------------------------------------------------------------------------------------


def test_there_is_one_history_with_one_head() -> None:
    assert len(SCRIPTS.get_heads()) == 1
    assert len(SCRIPTS.get_bases()) == 1
    assert [script.revision for script in REVISIONS] == [f"{n:04}" for n in range(1, len(REVISIONS) + 1)]


@pytest.mark.parametrize("script", REVISIONS, ids=lambda script: script.revision)
def test_each_migration_says_whether_it_expands_or_contracts(script: Script) -> None:
    assert script.module.KIND in ("expand", "contract")


@pytest.mark.parametrize("script", REVISIONS, ids=lambda script: script.revision)
def test_what_expands_takes_nothing_away_from_the_previous_release(script: Script) -> None:
    if script.module.KIND == "contract":
        return
    tree = ast.parse(inspect.getsource(script.module.upgrade))
    called = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}

    assert not {name for name in called if name.startswith(("drop_", "rename_"))}


# -- up and down -------------------------------------------------------------------------------------------


def test_up_and_down_and_up_again_gives_the_same_schema(url: str) -> None:
    assert upgrade(url) == SCRIPTS.get_current_head()
    first = schema(url)

    assert downgrade(url, "base") is None
    left = rows(url, TABLES)
    functions = rows(url, "SELECT proname FROM pg_proc WHERE pronamespace = 'public'::regnamespace")
    upgrade(url)

    assert left == [(VERSION_TABLE,)]
    assert functions == []
    assert schema(url) == first


def test_every_single_step_can_be_taken_back(url: str) -> None:
    for script in REVISIONS:
        before = schema(url)
        upgrade(url, script.revision)
        after = schema(url)
        if script.down_revision is not None:
            downgrade(url, str(script.down_revision))
            assert schema(url) == before
            upgrade(url, script.revision)
            assert schema(url) == after


def test_upgrading_what_is_up_to_date_changes_nothing(url: str) -> None:
    upgrade(url)
    before = schema(url)

    assert upgrade(url) == SCRIPTS.get_current_head()
    assert schema(url) == before


def test_a_database_says_whether_it_is_up_to_date(url: str) -> None:
    engine = open_engine(url)
    states = [is_current(engine)]
    for script in REVISIONS:
        upgrade(url, script.revision)
        states.append(is_current(engine))
    engine.dispose()

    assert states == [False] * len(REVISIONS) + [True]


def test_two_that_upgrade_at_once_take_turns(url: str) -> None:
    program = "import sys; from autotuner.adapters.postgres import upgrade; print(upgrade(sys.argv[1]))"
    command = [sys.executable, "-c", program, url]
    running = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(2)]

    said = [process.communicate(timeout=60)[0].strip() for process in running]

    assert said == [SCRIPTS.get_current_head()] * 2


# -- models and schema -------------------------------------------------------------------------------------


def test_the_models_equal_the_schema(newest_url: str) -> None:
    with create_engine(newest_url, poolclass=NullPool).connect() as connection:
        options = {"compare_type": True, "compare_server_default": True, "version_table": VERSION_TABLE}
        context = MigrationContext.configure(connection, opts=options)

        assert compare_metadata(context, METADATA) == []


def test_constraints_and_indexes_are_those_of_the_models(newest_url: str, url: str) -> None:
    engine = create_engine(url, poolclass=NullPool)
    METADATA.create_all(engine)

    assert rows(newest_url, CONSTRAINTS) == rows(url, CONSTRAINTS)
    assert rows(newest_url, INDEXES) == rows(url, INDEXES)


def test_the_command_alembic_finds_nothing_to_do(newest_url: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "alembic", "check"],
        cwd=ROOT,
        env={**os.environ, "AUTOTUNER_DATABASE_URL": newest_url},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert "No new upgrade operations detected" in done.stdout


def test_every_instant_is_aware(newest_url: str) -> None:
    unaware = (
        "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'public' "
        "AND data_type IN ('timestamp without time zone', 'time without time zone', 'date')"
    )

    assert rows(newest_url, unaware) == []


def test_every_table_says_what_it_is_for(newest_url: str) -> None:
    said = rows(newest_url, "SELECT relname, obj_description(oid) FROM pg_class WHERE relkind = 'r'")
    comments = {str(name): comment for name, comment in said}

    assert [name for name in METADATA.tables if not comments[name]] == []


# -- data --------------------------------------------------------------------------------------------------


def test_rows_of_the_first_revision_survive_to_the_newest(url: str) -> None:
    upgrade(url, REVISIONS[0].revision)
    seed(url)
    columns = columns_of(url)
    before = contents(url, columns)
    assert all(before.values())

    upgrade(url)

    assert contents(url, columns) == before
    engine = open_engine(url)
    store = PostgresStore(engine)
    assert [budget.version for budget in store.budgets("vision")] == [1, 2]
    assert [study.id for study in store.studies()] == ["study-2", "study-1"]
    assert store.next_sequence("study-1") == 2
    assert [entry.reason for entry in store.journal("study-1")] == ["because"]
    grant = PostgresLeases(engine).acquire("vision", "worker-2", TTL)
    assert grant is not None
    assert grant.token == 42
    engine.dispose()


def test_taking_a_step_back_keeps_the_rows_it_did_not_add(url: str) -> None:
    upgrade(url, REVISIONS[0].revision)
    seed(url)
    before = contents(url)
    upgrade(url)

    downgrade(url, REVISIONS[0].revision)

    assert contents(url) == before


LATER_ACTIONS = ("token_created", "target_retired", "night_started", "rollback_started")


def test_a_step_back_keeps_audit_lines_that_the_older_release_does_not_know(url: str) -> None:
    upgrade(url, REVISIONS[0].revision)
    seed(url)
    upgrade(url)
    for action in LATER_ACTIONS:
        rows(
            url,
            "INSERT INTO audit (at, actor, action, subject, reason, details, previous_hash, hash) "
            f"SELECT now(), 'x', '{action}', 'y', '', '{{}}', hash, '{action}' FROM audit "
            "ORDER BY number DESC LIMIT 1",
        )

    downgrade(url, REVISIONS[0].revision)
    known = {str(action) for (action,) in rows(url, "SELECT action FROM audit")}
    upgrade(url)

    assert known >= set(LATER_ACTIONS)


# -- the running service -----------------------------------------------------------------------------------


def test_a_migration_gives_up_on_a_lock_and_leaves_everything_as_it_was(url: str) -> None:
    upgrade(url, "0001")
    before = schema(url)
    with create_engine(url, poolclass=NullPool).begin() as connection:
        connection.execute(text("LOCK TABLE audit IN ACCESS SHARE MODE"))
        connection.execute(text("LOCK TABLE audit IN ROW EXCLUSIVE MODE"))

        with pytest.raises(Unavailable, match="a lock was not free"):
            upgrade(url, "0002")

    assert schema(url) == before
    assert rows(url, f"SELECT version_num FROM {VERSION_TABLE}") == [("0001",)]


def test_the_migrations_of_another_product_in_the_same_database_are_left_alone(url: str) -> None:
    rows(url, "CREATE TABLE alembic_version (version_num varchar(32) PRIMARY KEY)")
    rows(url, "INSERT INTO alembic_version VALUES ('v3.2.0.a')")

    upgrade(url)
    downgrade(url, "base")
    upgrade(url)

    assert rows(url, "SELECT version_num FROM alembic_version") == [("v3.2.0.a",)]


# -- installations -----------------------------------------------------------------------------------------


def test_an_installed_package_uses_the_migrations_inside_it(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = tmp_path / "100 % inside" / "migrations"
    inside.parent.mkdir()
    inside.symlink_to(migrate.migrations_folder())
    monkeypatch.setattr(migrate, "FOLDERS", (tmp_path / "nothing here", inside))

    assert upgrade(url) == SCRIPTS.get_current_head()


def test_an_installation_without_migrations_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrate, "FOLDERS", (tmp_path / "nothing here",))

    with pytest.raises(NotFound, match="nothing here"):
        migrate.configuration()

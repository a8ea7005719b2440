"""What only a database can do: fail, come back, keep columns for queries, and be asked by many at once."""

from __future__ import annotations

import logging
import socket
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import NullPool, PoolProxiedConnection, create_engine, text

from autotuner.adapters.postgres import PostgresLeases, PostgresStore, open_engine, upgrade
from autotuner.adapters.postgres.engine import database_url as checked_url
from autotuner.domain.judgement import Verdict
from autotuner.domain.study import Phase, Study
from autotuner.errors import Conflict, InvalidInput, Unavailable
from autotuner.ports import Grant
from autotuner.sandbox.postgres import PostgresProcess
from tests.builders import START, a_budget, a_plan, a_study, a_target, at
from tests.contract.conftest import Backend
from tests.postgres_server import PostgresServer, rows
from tests.studies import TTL, a_rich_study, a_step, a_trial, an_entry, append, decided, judged

KILL_ALL = (
    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
    "WHERE datname = current_database() AND pid <> pg_backend_pid()"
)


def created(store: PostgresStore) -> Study:
    budget = store.save_target(a_target(), a_budget(), "operator", "", START)
    study = a_study(plan=a_plan(slo=budget))
    store.create_study(study)
    return study


def granted(backend: Backend) -> Grant:
    grant = backend.new_process().acquire("vision", "worker-1", TTL)
    assert grant is not None
    return grant


@pytest.fixture
def url(postgres: Backend) -> str:
    assert postgres.url is not None
    return postgres.url


@pytest.fixture
def store(postgres: Backend) -> PostgresStore:
    assert isinstance(postgres.store, PostgresStore)
    return postgres.store


# -- outages -----------------------------------------------------------------------------------------------


def test_a_connection_that_was_lost_between_calls_is_replaced(store: PostgresStore, url: str) -> None:
    study = created(store)

    assert rows(url, KILL_ALL) != [(0,)]

    assert store.study(study.id) == study
    store.save_target(a_target(note="still writing"), a_budget(), "operator", "", at(1))


def test_a_connection_lost_in_the_middle_of_a_write_leaves_nothing_of_it(
    postgres: Backend, store: PostgresStore, url: str
) -> None:
    study = created(store)
    grant = granted(postgres)
    blocker = create_engine(url, poolclass=NullPool)
    with ThreadPoolExecutor(1) as pool, blocker.begin() as connection:
        connection.execute(text("LOCK TABLE trials IN ACCESS EXCLUSIVE MODE"))
        after = replace(study, trials=(a_trial(0),))
        write = pool.submit(append, store, study, after, grant)
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        while not write.done() and rows(url, waiting) == [(0,)]:
            pass
        rows(url, KILL_ALL.replace("pid <>", "wait_event_type = 'Lock' AND pid <>"))

        with pytest.raises(Unavailable) as failed:
            write.result()

    assert failed.value.system == "postgres"
    assert failed.value.__cause__ is not None
    assert (store.study(study.id), store.next_sequence(study.id)) == (study, 1)
    assert append(store, study, after, grant) == after


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[PostgresProcess]:
    server = PostgresProcess(log_path=tmp_path / "postgres.log")
    try:
        server.start()
        yield server
    finally:
        server.remove()


def test_a_server_that_restarts_is_unavailable_and_then_goes_on_with_all_it_knew(
    own_server: PostgresProcess,
) -> None:
    upgrade(own_server.url)
    engine = open_engine(own_server.url)
    store, leases = PostgresStore(engine), PostgresLeases(engine)
    study = created(store)
    grant = leases.acquire("vision", "worker-1", timedelta(minutes=5))
    assert grant is not None
    once = append(store, study, decided(study), grant)

    own_server.kill()
    for call in (
        lambda: store.study(study.id),
        lambda: store.append(once, once, an_entry(2, once), grant),
        lambda: leases.acquire("vision", "worker-1", TTL),
        lambda: leases.release(grant),
        lambda: upgrade(own_server.url),
    ):
        with pytest.raises(Unavailable):
            call()
    own_server.start()

    assert store.study(study.id) == once
    renewed = leases.acquire("vision", "worker-1", TTL)
    assert renewed is not None
    assert renewed.token == grant.token
    assert append(store, once, replace(once, reason="goes on"), renewed).reason == "goes on"
    engine.dispose()


def test_a_commit_that_was_never_confirmed_is_safe_to_repeat(
    postgres: Backend, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = created(store)
    grant = granted(postgres)
    after = decided(study)
    commit = store._engine.dialect.do_commit

    def commit_and_lose_the_answer(connection: PoolProxiedConnection) -> None:
        commit(connection)
        raise psycopg.OperationalError("server closed the connection unexpectedly")

    with monkeypatch.context() as patch:
        patch.setattr(store._engine.dialect, "do_commit", commit_and_lose_the_answer)
        with pytest.raises(Unavailable):
            store.append(study, after, an_entry(1, after), grant)

    with pytest.raises(Conflict, match="does not follow"):
        store.append(study, after, an_entry(1, after), grant)
    assert [entry.sequence for entry in store.journal(study.id)] == [1]
    assert store.study(study.id) == after


def test_a_lock_that_nobody_gives_back_costs_seconds_and_is_said(
    postgres: Backend, store: PostgresStore, url: str
) -> None:
    created(store)
    with create_engine(url, poolclass=NullPool).begin() as connection:
        connection.execute(text("LOCK TABLE leases IN ACCESS EXCLUSIVE MODE"))

        with pytest.raises(Unavailable, match=r"a lock was not free within 3 s"):
            postgres.new_process().acquire("vision", "worker-1", TTL)


def test_a_database_that_was_never_migrated_says_what_to_do(postgres_server: PostgresServer) -> None:
    with postgres_server.database() as url:
        engine = open_engine(url)

        with pytest.raises(Unavailable, match="autotuner db upgrade"):
            PostgresStore(engine).unfinished()
        engine.dispose()


def test_nobody_listening_is_unavailable(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        engine = open_engine(f"postgresql://tuner:s3cret@127.0.0.1:{reserved.getsockname()[1]}/db")

        with pytest.raises(Unavailable, match="postgres is unavailable") as failed:
            PostgresStore(engine).unfinished()

    assert "s3cret" not in "".join(traceback.format_exception(failed.value))
    assert "s3cret" not in repr(engine)
    assert "s3cret" not in caplog.text


# -- addresses ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "tuner:s3cret@host",
        "postgresql://tuner:s3cret@host:port/db",
        "mysql://tuner:s3cret@host/db",
        "",
    ],
)
def test_a_url_that_is_none_is_refused_without_showing_its_password(url: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        open_engine(url)

    assert refused.value.field == "database_url"
    assert "s3cret" not in "".join(traceback.format_exception(refused.value))


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg"])
def test_every_common_spelling_of_a_url_is_taken(scheme: str) -> None:
    url = checked_url(f"{scheme}://tuner:s3cret@host:5432/db?sslmode=require")

    assert (url.drivername, url.host, url.query) == ("postgresql+psycopg", "host", {"sslmode": "require"})


# -- columns for queries -----------------------------------------------------------------------------------


def test_trials_and_steps_have_rows_that_follow_the_study(
    postgres: Backend, store: PostgresStore, url: str
) -> None:
    budget = store.save_target(a_target(), a_budget(), "operator", "", START)
    study = replace(a_rich_study(budget), trials=(), winner=None, rejected_winners=())
    store.create_study(study)
    grant = granted(postgres)
    measuring = append(store, study, replace(study, trials=(a_trial(0, steps=()),)), grant)
    stepped = append(store, measuring, replace(study, trials=(a_trial(0),)), grant)
    append(store, stepped, replace(study, trials=(judged(a_trial(0)), a_trial(1))), grant)

    trials = rows(
        url,
        "SELECT number, kind, state, verdict, max_queue_delay_microseconds, preferred_batch_size, instance_count, "
        "max_batch_size, limited_by, capacity_per_second, ended_at FROM trials ORDER BY number",
    )
    capacity = 1 / 3 * 500.1
    assert trials == [
        (0, "candidate", "judged", "accept", 5000, [4, 8], 2, 32, "traffic", capacity, at(120)),
        (1, "candidate", "measuring", None, 5000, [4, 8], 2, 32, "", capacity, None),
    ]
    steps = rows(
        url,
        "SELECT trial_number, position, share, candidate_requests, candidate_bad_at_most, control_requests, "
        "p50_seconds, p99_seconds, realised_batch, verdict, estimate, interval_low, reason FROM steps ORDER BY 1",
    )
    said = "ACCEPT: q ≤ 1 % “surely”"
    step = (0, 1 / 3, 1300, 3, 2600, 0.02, None, 3.7, "accept", 1 / 3, 1e-300, said)
    assert steps == [(0, *step), (1, *step)]


def test_a_trial_is_looked_at_without_its_study_once_nothing_of_it_changes(
    postgres: Backend, store: PostgresStore, url: str
) -> None:
    study, (rich, *_) = created(store), a_rich_study().trials
    trials = (replace(judged(a_trial(0)), tail=None), replace(judged(rich), number=1), a_trial(2))
    append(store, study, replace(study, trials=trials), granted(postgres))
    assert trials[1].tail is not None
    assert rows(url, "SELECT number FROM trials WHERE record IS NOT NULL") == [(0,)]

    of_their_own = [postgres.catalogue.evidence(study.id, number) for number in range(len(trials))]
    rows(url, "UPDATE trials SET record = NULL")  # as an earlier release leaves them

    assert [each.trial for each in of_their_own] == list(trials)
    assert [postgres.catalogue.evidence(study.id, number) for number in range(len(trials))] == of_their_own


def test_only_rows_that_differ_are_written(postgres: Backend, store: PostgresStore, url: str) -> None:
    study = created(store)
    grant = granted(postgres)
    study = append(store, study, replace(study, trials=(a_trial(0), a_trial(1))), grant)
    written = "SELECT number, xmin::text FROM trials ORDER BY number"
    before = rows(url, written)
    changed = replace(study, trials=(study.trials[0], a_trial(1, steps=(a_step(), a_step(1)), voids=2)))

    append(store, study, replace(changed, dispersion=2.0), grant)

    assert rows(url, written) == before
    assert rows(url, "SELECT count(*) FROM steps") == [(3,)]


def test_verdicts_on_which_nothing_was_measured_have_no_step(
    postgres: Backend, store: PostgresStore, url: str
) -> None:
    study = created(store)
    void = judged(a_trial(0, steps=()), Verdict.VOID)

    append(store, study, replace(study, phase=Phase.SEARCH, trials=(void,)), granted(postgres))

    assert rows(url, "SELECT verdict, capacity_per_second FROM trials") == [("void", None)]
    assert rows(url, "SELECT count(*) FROM steps") == [(0,)]


# -- the audit's chain -------------------------------------------------------------------------------------


def test_a_record_changed_behind_the_triggers_back_breaks_the_chain(store: PostgresStore, url: str) -> None:
    created(store)
    rows(url, "ALTER TABLE audit DISABLE TRIGGER USER")
    rows(url, "UPDATE audit SET actor = 'nobody' WHERE number = 2")
    rows(url, "ALTER TABLE audit ENABLE TRIGGER USER")

    assert store.first_broken_audit() == 2


def test_a_record_taken_out_behind_the_triggers_back_breaks_the_chain(store: PostgresStore, url: str) -> None:
    created(store)
    rows(url, "ALTER TABLE audit DISABLE TRIGGER USER")
    rows(url, "DELETE FROM audit WHERE number = 2")
    rows(url, "ALTER TABLE audit ENABLE TRIGGER USER")

    assert store.first_broken_audit() == 3


def test_many_writers_at_once_still_form_one_chain(store: PostgresStore) -> None:
    with ThreadPoolExecutor(4) as pool:
        saved = pool.map(
            lambda n: store.save_target(a_target(name=f"t{n}"), a_budget(), "operator", "", at(n)), range(8)
        )
        assert [budget.version for budget in saved] == [1] * 8

    assert len(store.audit(100)) == 16
    assert store.first_broken_audit() is None


def test_changes_of_one_budget_at_once_become_one_version_each(store: PostgresStore) -> None:
    store.save_target(a_target(), a_budget(), "operator", "", START)
    with ThreadPoolExecutor(4) as pool:
        versions = list(
            pool.map(
                lambda n: (
                    store.save_target(
                        a_target(), a_budget(harm_budget_requests=201 + n), "operator", "because", at(n)
                    ).version
                ),
                range(6),
            )
        )

    assert sorted(versions) == [2, 3, 4, 5, 6, 7]
    assert [budget.version for budget in store.budgets("vision")] == [1, 2, 3, 4, 5, 6, 7]

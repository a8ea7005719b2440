"""A slow, full, replaced or absent database: no wrong promotion, clear readiness, and recovery without a person.

A study on a simulated target is carried by the real worker on a real PostgreSQL, which it reaches through a proxy of
ours, as through a load balancer. The study's clock is turned by the test; what the database does takes real time.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Engine

from api.app import create
from autotuner.adapters.clock import SystemClock
from autotuner.adapters.postgres import PostgresLeases, PostgresStore, is_current, open_engine, upgrade
from autotuner.adapters.postgres.writing import Writing
from autotuner.bootstrap import Application
from autotuner.controller import Controller, Outside, Pools
from autotuner.domain.study import Outcome, Phase, Study, TrialKind
from autotuner.operations import register_target, start_study
from autotuner.sandbox.postgres import PostgresProcess
from autotuner.sandbox.processes import wait_until
from autotuner.worker import Terms, Worker
from tests.arithmetic_target import ArithmeticTarget, InTurn
from tests.closed_loop.endings import BETTER, at, check_ending, reached
from tests.closed_loop.loop import Loop, ScriptedProposer, a_short_plan
from tests.command_line import Terminal
from tests.moving_proxy import MovingProxy
from tests.postgres_server import PostgresServer, rows
from tests.rest import over_postgres, rest_settings

MOST_TURNS = 6000


@dataclass
class DatabaseLoop(Loop):
    """A loop whose records are in a database. engine: of the proxy's address."""

    engine: Engine = field(kw_only=True)

    def __post_init__(self) -> None:
        self.plan = a_short_plan(max_trials=1)
        self.proposer = ScriptedProposer(BETTER)
        super().__post_init__()
        self.store = PostgresStore(self.engine)  # type: ignore[assignment]
        self.leases = PostgresLeases(self.engine)  # type: ignore[assignment]
        register_target(self.store, self.clock, self.plan.target, self.plan.slo, "tester", "")
        self.study_id = start_study(self.store, self.clock, self.plan, "tester").id
        self.controller = self.new_controller()
        self.worker = Worker(self.store, self.leases, self.controller, self.clock)

    def turn(self) -> None:
        """One turn of the worker, and of the clock."""
        self.clock.advance(max(self.worker.turn(), timedelta(milliseconds=50)))

    def go_on(self, until: Callable[[Study], bool]) -> Study:
        """Turn until something is so."""
        for _ in range(MOST_TURNS):
            self.turn()
            study = self.study
            if until(study):
                return study
        raise AssertionError(f"it does not come to that: {self.study.reason}, {self.study.phase}")

    def suffer(self, turns: int) -> None:
        """Turn for a while, whatever fails."""
        for _ in range(turns):
            self.turn()

    @property
    def canary_weight(self) -> int:
        """What the canary carries now."""
        return self.target.route.weights()["canary"]


def over(study: Study) -> bool:
    return study.phase is Phase.ENDED


def check_whole(loop: DatabaseLoop) -> Study:
    """Assert what must be true at the end, in the database too."""
    study = check_ending(loop, over_budget_by=1000)
    store: Any = loop.store
    assert store.first_broken_audit() is None
    numbers = [entry.sequence for entry in store.journal(study.id)]
    assert numbers == list(range(1, len(numbers) + 1))
    return study


@contextmanager
def a_loop_through(proxy: MovingProxy) -> Iterator[DatabaseLoop]:
    upgrade(proxy.url)
    engine = open_engine(proxy.url)
    try:
        yield DatabaseLoop(engine=engine)
    finally:
        engine.dispose()


@pytest.fixture
def proxy(postgres_server: PostgresServer) -> Iterator[MovingProxy]:
    """A proxy in front of a new database."""
    with postgres_server.database() as url, MovingProxy(url) as made:
        yield made


def readiness(engine: Engine, writing: Writing) -> dict[str, Any]:
    """What /readyz answers of an API over this database: its status, and what is not ready."""

    def moved(application: Application) -> Application:
        return replace(
            over_postgres(engine)(application),
            schema_is_current=lambda: is_current(engine),
            require_writes=writing.check,
        )

    settings = rest_settings()
    with TestClient(create(moved(Terminal().application(settings)))) as client:
        answer = client.get("/readyz")
    wrong = [check for check in answer.json()["checks"] if not check["ready"]]
    return {"status": answer.status_code, "wrong": {check["name"]: check["detail"] for check in wrong}}


# -- slow --------------------------------------------------------------------------------------------------


def test_a_database_with_slow_spells_makes_a_study_slow_and_nothing_else(proxy: MovingProxy) -> None:
    with a_loop_through(proxy) as loop:
        for moment in (at(TrialKind.CANDIDATE, level=1), at(TrialKind.STAGE), at(TrialKind.WATCH)):
            loop.go_on(moment)
            proxy.delay_seconds = 0.03
            loop.suffer(5)
            proxy.delay_seconds = 0.0
        loop.go_on(over)
        study = check_whole(loop)
        assert study.outcome is Outcome.PROMOTED
        assert sum(trial.voids for trial in study.trials) == 0


# -- away --------------------------------------------------------------------------------------------------

MOMENTS = {
    "a candidate is measured": at(TrialKind.CANDIDATE, level=1),
    "a stage is measured": at(TrialKind.STAGE),
    "production is watched": at(TrialKind.WATCH),
    "it restores": reached(Phase.RESTORATION),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_database_that_is_away_costs_a_window_and_no_user(proxy: MovingProxy, moment: str) -> None:
    with a_loop_through(proxy) as loop:
        loop.go_on(MOMENTS[moment])
        writing = Writing(loop.engine)
        proxy.away = True
        proxy.cut()
        loop.suffer(20)
        away = readiness(loop.engine, writing)
        exposed = loop.canary_weight
        proxy.away = False
        loop.go_on(over)
        assert exposed == 0
        assert (away["status"], list(away["wrong"])) == (503, ["database"])
        assert readiness(loop.engine, writing)["status"] == 200
        assert check_whole(loop).outcome in (Outcome.PROMOTED, Outcome.KEPT, Outcome.INCONCLUSIVE)


# -- replaced ----------------------------------------------------------------------------------------------


@contextmanager
def a_pair(folder: Path, *, in_step: bool) -> Iterator[tuple[PostgresProcess, PostgresProcess]]:
    """A primary and a standby that streams from it. in_step: a commit waits until the standby has it."""
    primary = PostgresProcess(log_path=folder / "primary.log")
    standby: PostgresProcess | None = None
    try:
        primary.start()
        standby = PostgresProcess(log_path=folder / "standby.log")
        # The standby's own process makes the copy: it runs as the user whom the data must belong to.
        program = Path(standby.process.command[0]).parent / "pg_basebackup"
        words = ["-h", str(primary.directory), "-U", "autotuner", "-D", str(standby.directory / "data")]
        standby._run(program, *words, "-R", "-X", "stream", "-c", "fast", "--no-sync")
        standby.start()
        if in_step:
            for statement in (
                "ALTER SYSTEM SET synchronous_standby_names = '*'",
                "SELECT pg_reload_conf()",
            ):
                PostgresServer(primary.url).execute(statement)
        yield primary, standby
    finally:
        if standby is not None:
            standby.remove()
        primary.remove()


@pytest.mark.parametrize(
    "moment", ["a candidate is measured", "a stage is measured", "production is watched"]
)
def test_a_study_goes_on_at_a_new_primary(tmp_path: Path, moment: str) -> None:
    with (
        a_pair(tmp_path, in_step=True) as (primary, standby),
        MovingProxy(primary.url) as proxy,
        a_loop_through(proxy) as loop,
    ):
        before = loop.go_on(MOMENTS[moment])
        writing = Writing(loop.engine)
        primary.kill()
        proxy.cut()
        loop.suffer(10)
        proxy.move(standby.url)
        loop.suffer(10)
        as_standby = readiness(loop.engine, writing)
        PostgresServer(standby.url).execute("SELECT pg_promote(true, 30)")
        study = loop.go_on(over)
        assert (as_standby["status"], list(as_standby["wrong"])) == (503, ["writes"])
        assert "standby" in as_standby["wrong"]["writes"]
        assert readiness(loop.engine, writing)["status"] == 200
        assert len(study.trials) >= len(before.trials)
        assert check_whole(loop).outcome in (Outcome.PROMOTED, Outcome.KEPT, Outcome.INCONCLUSIVE)


def test_a_new_primary_that_lacks_the_last_steps_makes_no_promotion_that_was_not_earned(
    tmp_path: Path,
) -> None:
    """Without waiting for the standby a fail-over loses the newest commits: what they led to is done again."""
    with (
        a_pair(tmp_path, in_step=False) as (primary, standby),
        MovingProxy(primary.url) as proxy,
        a_loop_through(proxy) as loop,
    ):
        loop.go_on(at(TrialKind.CONFIRMATION))
        wait_until_level(primary, standby)
        # The standby hears nothing more of what follows.
        PostgresServer(standby.url).execute("ALTER SYSTEM SET primary_conninfo = ''")
        PostgresServer(standby.url).execute("SELECT pg_reload_conf()")
        kept = last_sequence(standby.url)
        loop.suffer(12)
        lost = loop.store.next_sequence(loop.study_id) - 1 - kept
        primary.kill()
        proxy.move(standby.url)
        PostgresServer(standby.url).execute("SELECT pg_promote(true, 30)")
        loop.go_on(over)
        assert lost >= 3
        check_whole(loop)


def wait_until_level(primary: PostgresProcess, standby: PostgresProcess) -> None:
    """Wait until the standby has replayed all that the primary has written."""
    ((written,),) = rows(primary.url, "SELECT pg_current_wal_lsn()::text")
    level = f"SELECT coalesce(pg_last_wal_replay_lsn() >= '{written}'::pg_lsn, false)"
    wait_until(
        lambda: rows(standby.url, level) == [(True,)],
        within=timedelta(seconds=20),
        what="the standby follows",
    )


def last_sequence(url: str) -> int:
    """The newest journal entry that a database has."""
    ((newest,),) = rows(url, "SELECT coalesce(max(sequence), 0) FROM journal")
    assert isinstance(newest, int)
    return newest


# -- full --------------------------------------------------------------------------------------------------

FULL = """
CREATE FUNCTION no_room() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'could not extend file "base/1/1": No space left on device' USING ERRCODE = 'disk_full';
END
$$
"""


def test_a_database_that_says_it_has_no_room_exposes_nobody_and_says_so(proxy: MovingProxy) -> None:
    """PostgreSQL's own words for a full disk, said by a trigger: the real thing is the test below."""
    with a_loop_through(proxy) as loop:
        writing = Writing(loop.engine)
        rows(proxy.url, FULL)
        loop.go_on(at(TrialKind.CANDIDATE, level=1))
        rows(proxy.url, "CREATE TRIGGER full_disk BEFORE INSERT ON journal EXECUTE FUNCTION no_room()")
        loop.suffer(20)
        exposed, refused = loop.canary_weight, writing._refused
        rows(proxy.url, "DROP TRIGGER full_disk ON journal")
        ready = readiness(loop.engine, writing)
        loop.go_on(over)
        assert (exposed, refused, ready["status"]) == (0, True, 200)
        assert check_whole(loop).outcome in (Outcome.PROMOTED, Outcome.KEPT, Outcome.INCONCLUSIVE)


@contextmanager
def a_small_disk(megabytes: int) -> Iterator[Path]:
    """A file system of so many megabytes; skips the test where none can be mounted."""
    with tempfile.TemporaryDirectory(prefix="small-", dir="/tmp") as folder:
        words = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=1777", "tmpfs", folder]
        mounted = subprocess.run(words, capture_output=True, text=True, check=False)
        if mounted.returncode != 0:
            pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
        try:
            yield Path(folder)
        finally:
            subprocess.run(["umount", "-l", folder], check=True)


def test_a_full_disk_under_the_database_exposes_nobody_and_heals_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with a_small_disk(220) as disk:
        monkeypatch.setattr(tempfile, "tempdir", str(disk))
        server = PostgresProcess(log_path=tmp_path / "postgres.log")
        monkeypatch.setattr(tempfile, "tempdir", None)
        try:
            server.start()
            with MovingProxy(server.url) as proxy, a_loop_through(proxy) as loop:
                writing = Writing(loop.engine)
                loop.go_on(at(TrialKind.CANDIDATE, level=1))
                ballast = fill(disk)
                loop.suffer(20)
                exposed = loop.canary_weight
                full = readiness(loop.engine, writing)
                ballast.unlink()
                if (
                    not server.is_ready()
                ):  # without room for its log PostgreSQL ends: its supervisor starts it again
                    server.restart(immediate=True)
                healed = loop.go_on(over)
                assert exposed == 0
                assert (full["status"], full["wrong"] != {}) == (503, True)
                assert readiness(loop.engine, writing)["status"] == 200
                assert healed.phase is Phase.ENDED
                assert check_whole(loop).outcome in (Outcome.PROMOTED, Outcome.KEPT, Outcome.INCONCLUSIVE)
        finally:
            server.remove()


def fill(disk: Path) -> Path:
    """Leave no room on a disk."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"\0" * (64 * 1024))
        except OSError:
            pass
    assert shutil.disk_usage(disk).free < 128 * 1024
    return ballast


# -- held --------------------------------------------------------------------------------------------------


def test_a_database_that_says_nothing_at_all_does_not_leave_the_canary_unwatched(
    proxy: MovingProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A frozen server still acknowledges every packet: no limit of the connection ends the waiting."""
    monkeypatch.setattr("autotuner.worker.STUCK", timedelta(seconds=1))
    monkeypatch.setattr("api.routes.health.ANSWER_SECONDS", 0.5)
    upgrade(proxy.url)
    engine, clock = open_engine(proxy.url), SystemClock()
    plan = a_short_plan(pace={"no_data_limit": timedelta(seconds=3)})
    store, target = PostgresStore(engine), ArithmeticTarget(plan.target, clock)
    register_target(store, clock, plan.target, plan.slo, "tester", "")
    study_id = start_study(store, clock, plan, "tester").id
    stop, pool = threading.Event(), ThreadPoolExecutor(4)
    outside = Outside(
        store,
        PostgresLeases(engine),
        clock,
        lambda _: target.world(),
        lambda _: InTurn(),
        Pools.all_in(ThreadPoolExecutor(8)),
    )
    worker = Worker(store, outside.leases, Controller(outside, "worker-1"), clock, Terms(threads=2), pool)
    running = threading.Thread(target=worker.run, args=(stop,))
    running.start()
    try:
        wait_until(lambda: target.weights()["canary"] > 0, within=timedelta(seconds=60), what="it is exposed")
        proxy.held.set()
        wait_until(
            lambda: target.weights()["canary"] == 0,
            within=timedelta(seconds=15),
            what="it is exposed no more",
        )
        held = readiness(engine, Writing(engine))
        proxy.held.clear()
        before = store.next_sequence(study_id)
        wait_until(
            lambda: store.next_sequence(study_id) > before + 3,
            within=timedelta(seconds=30),
            what="it goes on",
        )
    finally:
        proxy.held.clear()
        stop.set()
        running.join(60)
        pool.shutdown()
        outside.pools.shutdown()
        engine.dispose()
    assert (held["status"], list(held["wrong"])) == (503, ["database"])
    assert store.first_broken_audit() is None

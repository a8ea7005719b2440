"""Every command of the documentation is claimed here: run as it is written, or said where else it is run.

A command that is documented and not claimed fails, and so does a claim that nothing documents. The study that
commands are asked about was made by the real controller on a simulated target, and copied into a real PostgreSQL.
"""

from __future__ import annotations

import ast
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from math import isclose
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from autotuner.adapters.postgres import PostgresLeases, PostgresStore, open_engine, upgrade
from autotuner.cli.app import app
from autotuner.domain.lifecycle import absorb, next_step
from autotuner.domain.observation import ActionResult, Observation
from autotuner.domain.study import Outcome, Phase, Study
from autotuner.ports import Store
from autotuner.records import from_record
from autotuner.sandbox.envoy import find_envoy
from tests.builders import START, a_plan, a_target
from tests.closed_loop.loop import Loop, a_brisk_plan
from tests.documents import ROOT, blocks, documented_commands, parts
from tests.postgres_server import PostgresServer, rows, running_server

LIMIT_SECONDS = 120


@dataclass(frozen=True)
class Run:
    """A claim that the command is run here.

    on: which database. says: a pattern of its standard output. code: its exit code. process: in a process of its own,
    for what changes something or ends in its own way; the others share this one, to spare a second of imports each.
    """

    on: str
    says: str
    code: int = 0
    process: bool = False


@dataclass(frozen=True)
class Elsewhere:
    """A claim that the command is run, or its effect checked, somewhere else."""

    where: str


@dataclass(frozen=True)
class InTheDemo:
    """A claim that the demo is run with the command's options by a function of `tests/acceptance/test_demo.py`."""

    function: str


CI = Elsewhere(".ci/run")
SCHEDULES = Elsewhere("tests/unit/test_cli_schedules.py")
HERE = Elsewhere("a test of its own below")

CLAIMS: Mapping[str, Run | Elsewhere | InTheDemo] = {
    "make demo": CI,
    "make test": CI,
    "make serve": Elsewhere("tests/acceptance/test_sandbox_service.py, the command it calls"),
    "make setup": CI,
    "make check": CI,
    "make test-fast": Elsewhere("a part of make test"),
    "make test-kubernetes": Elsewhere("a part of make test"),
    "make test-kubernetes-versions": Elsewhere("the same tests, twice; it takes half an hour"),
    "helm install autotuner deploy/helm/autotuner --set database.secret=autotuner-db-app --set database.key=uri": (
        Elsewhere("tests/kubernetes/test_chart.py renders it and gives it to an API server")
    ),
    "autotuner tune examples/target-kubernetes.yaml": Elsewhere("tests/kubernetes/test_one_command.py"),
    "autotuner tune examples/target-kubernetes.yaml --rehearsal": Elsewhere(
        "tests/kubernetes/test_promotion.py"
    ),
    "autotuner kubernetes preflight examples/target-kubernetes.yaml": Elsewhere(
        "tests/kubernetes/test_canary.py"
    ),
    "make bench": Elsewhere("what it calls is tested with the statistics; it takes minutes"),
    "make bench-lists": Elsewhere("its queries in tests/contract/test_plans.py; it takes minutes"),
    "make bench-proposer": Elsewhere(
        "tests/unit/benchmark/test_cli_bench.py runs its command; it takes minutes"
    ),
    "autotuner bench --workloads builtin --scenario hard --aim capacity --samplers grey-box,tpe,tpe+filter --seeds 3": (
        Elsewhere("tests/unit/benchmark/test_cli_bench.py, with one small workload; this takes minutes")
    ),
    "autotuner bench --workloads random:5:12 --scenario bursty --aim efficiency --samplers grey-box --seeds 20": (
        Elsewhere("tests/unit/benchmark/test_cli_bench.py, with one small workload; this takes minutes")
    ),
    "autotuner simulate --workload small-vision": Elsewhere("tests/unit/test_simulate.py"),
    "autotuner simulate --workload my-model.yaml --rate 200 --objective efficiency --html what-if.html": Elsewhere(
        "tests/unit/test_simulate.py"
    ),
    "autotuner diagnose --triton http://triton:8000 --p99 50ms --prometheus http://prometheus:9090 --preset istio "
    "--gateway-cluster resnet50": Elsewhere(
        "tests/unit/test_diagnose_prometheus.py, and on a real Prometheus tests/integration/test_prometheus.py"
    ),
    "autotuner diagnose --target examples/target.yaml": Elsewhere("tests/unit/test_diagnose_command.py"),
    "autotuner diagnose --triton http://triton:8000 --model resnet50 --p99 50ms": Elsewhere(
        "tests/unit/test_diagnose_command.py, and on a real server tests/integration/test_diagnose_planted.py"
    ),
    "autotuner diagnose --triton http://triton:8000 --model resnet50 --p99 50ms --html page.html": Elsewhere(
        "tests/integration/test_diagnose_planted.py, which also times it"
    ),
    "autotuner diagnose --triton http://triton:8000 --p99 50ms --gateway http://envoy:9901 --for 10m --gpu-cost 4.50 "
    "--html page.html": Elsewhere("tests/unit/test_diagnose_command.py, and with a gateway tests/benchmarks"),
    "make docs": Elsewhere("tests/unit/test_docs.py"),
    "export AUTOTUNER_DATABASE_URL=postgresql+psycopg://USER:PASSWORD@HOST/DATABASE": HERE,
    "autotuner demo --workload my-model.yaml": InTheDemo("side_by_side"),
    "autotuner demo --short": InTheDemo("survived"),
    "autotuner demo --keep": InTheDemo("survived"),
    "autotuner metrics check examples/target-prometheus.yaml": Elsewhere(
        "tests/integration/test_prometheus.py; nobody answers at the example's addresses"
    ),
    "autotuner db upgrade": Run("empty", r"at revision \d{4}", process=True),
    "autotuner tune examples/target.yaml": Run(
        "migrated", r"ABORTED: the target could not be read", code=4, process=True
    ),
    "autotuner tune examples/target.yaml --detach": Run("migrated", "is started; a worker carries it"),
    'autotuner target apply examples/target.yaml --reason "agreed with the search team"': Run(
        "migrated", r"version 1 of its SLO budget is in force"
    ),
    "autotuner target apply examples/target.yaml": Run("migrated", "SLO budget is in force"),
    'autotuner schedule set small-vision --cron "30 2 * * *" --time-zone Europe/Berlin --window 4h --jitter 30m': (
        SCHEDULES
    ),
    "autotuner schedule list": Run("migrated", "no target is scheduled"),
    "autotuner schedule nights": Run("migrated", "no night was due yet"),
    'autotuner schedule freeze --until 2027-01-07T06:00+01:00 --reason "year-end freeze"': SCHEDULES,
    'autotuner schedule pause-all --reason "incident"': SCHEDULES,
    "autotuner schedule resume-all": Run("migrated", "the line runs"),
    "autotuner scheduler": Elsewhere("tests/contract/test_scheduler.py, on a real database"),
    "autotuner notifications list --state dead": Run("migrated", "nothing was told"),
    "autotuner worker": HERE,
    "autotuner serve": HERE,
    'autotuner token create anna --scope operator --expires 90d --note "night shift"': Run(
        "migrated", r"^autotuner_[\w-]{43}$"
    ),
    "autotuner token create gateway --scope tracer --expires 365d": Run("migrated", r"^autotuner_[\w-]{43}$"),
    "autotuner worker --until-idle --json": Run("migrated", '"stopped": false'),
    'autotuner pause latest --reason "sale until noon"': Run("started", "starts no further trial"),
    "autotuner resume latest": Run("started", "goes on"),
    'autotuner cancel latest --reason "incident"': Run("started", "restores the incumbent"),
    'autotuner approve latest --reason "seen in staging"': Run("waiting", "promotes its winner"),
    'autotuner disapprove latest --reason "wait for the new driver"': Run("waiting", "keeps the incumbent"),
    'autotuner rollback latest --reason "incident 4711"': Elsewhere("tests/unit/test_cli_rollback.py"),
    "autotuner history": Run("promoted", "promoted"),
    "autotuner history --limit 20": Run("promoted", "promoted"),
    "autotuner show latest": Run("promoted", "(?i)promoted"),
    "autotuner show latest/0": Run("promoted", "(?i)accept"),
    "autotuner show latest/1": Run("promoted", "requests"),
    "autotuner show latest --json": Run("promoted", r'"outcome": ?"promoted"'),
    "autotuner audit --limit 20": Run("promoted", "study_ended"),
    "autotuner audit verify": Run("promoted", "the audit is intact"),
    "autotuner replay --latest": Run(
        "promoted", r"[1-9]\d* proposals computed again, 0 differences", process=True
    ),
    "autotuner export latest/winner --format pbtxt": Run("promoted", "dynamic_batching"),
    "autotuner export latest/winner --format patch": Run("promoted", r"^\+\+\+ b/config\.pbtxt"),
}

RUNS = {command: claim for command, claim in CLAIMS.items() if isinstance(claim, Run)}


def test_every_documented_command_is_claimed_and_every_claim_is_documented() -> None:
    assert sorted(documented_commands()) == sorted(CLAIMS)


def test_what_continuous_integration_is_said_to_run_it_runs() -> None:
    script = (ROOT / ".ci" / "run").read_text("utf-8")
    makefile = (ROOT / "Makefile").read_text("utf-8")
    needs = {
        name: found.split() for name, found in re.findall(r"^([a-z-]+):([a-z -]*)", makefile, re.MULTILINE)
    }
    ran = set(re.findall(r"\bmake ([a-z-]+)", script))

    for command in (line.removeprefix("make ") for line, claim in CLAIMS.items() if claim is CI):
        assert command in ran or (needs[command] and set(needs[command]) <= ran), command


def test_what_the_tests_of_the_demo_are_said_to_run_they_run() -> None:
    tree = ast.parse((ROOT / "tests" / "acceptance" / "test_demo.py").read_text("utf-8"))
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}

    for command, claim in CLAIMS.items():
        if isinstance(claim, InTheDemo):
            options = {word for word in parts(command) if word.startswith("--")}
            assert options <= words_given_to_a_demo(functions[claim.function]), command


def words_given_to_a_demo(function: ast.FunctionDef) -> set[object]:
    """The literal words of the calls `demonstration(…)` in a function."""
    calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
    started = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "demonstration"]
    return {word.value for call in started for word in call.args if isinstance(word, ast.Constant)}


# -- databases


@pytest.fixture(scope="module")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    with running_server(tmp_path_factory.mktemp("postgres") / "postgres.log") as server:
        yield server


@pytest.fixture(scope="module")
def promoted_study() -> Loop:
    """A study in memory that has ended with a promotion."""
    for seed in (2, 3, 4, 5):
        loop = Loop(plan=a_brisk_plan(max_trials=1, ramp_steps=4), seed=seed)
        if loop.run().outcome is Outcome.PROMOTED:
            return loop
    raise AssertionError("no seed ended with a promotion")


@pytest.fixture(scope="module")
def promoted(postgres_server: PostgresServer, promoted_study: Loop) -> Iterator[str]:
    """The URL of a database that holds one promoted study, every journal line written as a worker writes it."""
    with postgres_server.database() as url:
        upgrade(url)
        copied(promoted_study.store, promoted_study.study_id, url)
        yield url


def copied(source: Store, study_id: str, url: str) -> None:
    with closing(_Engine(url)) as opened:
        store, study = opened.store, source.initial(study_id)
        name = study.plan.target.name
        store.save_target(study.plan.target, study.plan.slo, "tester", "", START)
        store.create_study(study)
        grant = PostgresLeases(opened.engine).acquire(name, "worker-1", timedelta(minutes=10))
        assert grant is not None
        for entry in source.journal(study_id):
            if entry.kind == "decision":
                after = next_step(study, from_record(Observation, entry.observed)).study
            else:
                after = absorb(study, from_record(ActionResult, entry.observed)).study
            store.append(study, after, entry, grant)
            study = after


class _Engine:
    def __init__(self, url: str) -> None:
        self.engine = open_engine(url)
        self.store = PostgresStore(self.engine)

    def close(self) -> None:
        self.engine.dispose()


@dataclass
class Databases:
    """Databases by what is in them: `empty`, `migrated`, `started`, `waiting` (for approval), `promoted`."""

    server: PostgresServer
    request: pytest.FixtureRequest
    made: list[Any] = field(default_factory=list)

    def url(self, kind: str) -> str:
        if kind == "promoted":
            return str(self.request.getfixturevalue("promoted"))
        context = self.server.database()
        self.made.append(context)
        url = context.__enter__()
        if kind != "empty":
            upgrade(url)
        if kind in ("started", "waiting"):
            with closing(_Engine(url)) as opened:
                plan = a_plan(target=a_target())
                opened.store.save_target(plan.target, plan.slo, "tester", "", START)
                phase = Phase.APPROVAL if kind == "waiting" else Phase.CREATED
                study = Study("vision-1", plan, datetime.now(UTC), "tester")
                opened.store.create_study(replace(study, phase=phase))
        return url


@pytest.fixture
def databases(postgres_server: PostgresServer, request: pytest.FixtureRequest) -> Iterator[Databases]:
    made = Databases(postgres_server, request)
    yield made
    for context in reversed(made.made):
        context.__exit__(None, None, None)


# -- running


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the example, its servers on addresses of this machine where nobody listens, and in a hurry."""
    text = (ROOT / "examples" / "target.yaml").read_text("utf-8").replace("10.0.0.", "127.0.0.")
    text = re.sub(r"no_data_limit: \w+", "no_data_limit: 1s", text)
    text = re.sub(r"look_interval: \w+", "look_interval: 200ms", text)
    (tmp_path / "examples").mkdir()
    (tmp_path / "examples" / "target.yaml").write_text(text, "utf-8")
    return tmp_path


def environment(url: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AUTOTUNER_")}
    return {**kept, "AUTOTUNER_DATABASE_URL": url, "COLUMNS": "200"}


def words_of(command: str) -> list[str]:
    name, *rest = parts(command)
    assert name == "autotuner"
    return [sys.executable, "-m", "autotuner", *rest]


@pytest.mark.usefixtures("own_logging")
@pytest.mark.parametrize("command", RUNS)
def test_the_command_does_what_the_page_says(
    command: str, databases: Databases, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = RUNS[command]
    variables = environment(databases.url(claim.on))
    monkeypatch.chdir(folder)

    done = _processed(command, variables) if claim.process else _invoked(command, variables)

    assert done.code == claim.code, done.errors
    assert re.search(claim.says, done.answer, flags=re.MULTILINE), done.answer + done.errors
    assert "Traceback" not in done.errors


@dataclass(frozen=True)
class Done:
    """How a command ended: exit code, standard output and standard error."""

    code: int
    answer: str
    errors: str


def _processed(command: str, variables: dict[str, str]) -> Done:
    done = subprocess.run(
        words_of(command), env=variables, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False
    )
    return Done(done.returncode, done.stdout, done.stderr)


def _invoked(command: str, variables: dict[str, str]) -> Done:
    done = CliRunner().invoke(app, parts(command)[1:], env=dict(variables))
    return Done(done.exit_code, done.stdout, done.stderr)


def test_the_documented_form_of_the_database_url_is_accepted() -> None:
    line = next(command for command in CLAIMS if command.startswith("export "))

    open_engine(line.partition("=")[2].replace("HOST", "localhost")).dispose()


def test_the_api_is_served_until_it_is_told_to_stop(databases: Databases, folder: Path) -> None:
    with subprocess.Popen(
        words_of("autotuner serve"),
        cwd=folder,
        env={**environment(databases.url("migrated")), "AUTOTUNER_API_PORT": "0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        try:
            assert running.stderr is not None
            started = json.loads(running.stderr.readline())
            ready = httpx.get(f"{started['address']}/readyz")
            running.send_signal(signal.SIGTERM)
            _, said = running.communicate(timeout=LIMIT_SECONDS)
        finally:
            running.kill()

    assert started["event"] == "api_started"
    assert (ready.status_code, ready.json()["ready"]) == (200, True)
    assert running.returncode == 0, said


def test_a_worker_runs_until_it_is_told_to_stop(databases: Databases, folder: Path) -> None:
    with subprocess.Popen(
        words_of("autotuner worker"),
        cwd=folder,
        env=environment(databases.url("migrated")),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        try:
            assert running.stderr is not None
            assert "worker_started" in running.stderr.readline()
            running.send_signal(signal.SIGTERM)
            _, said = running.communicate(timeout=LIMIT_SECONDS)
        finally:
            running.kill()

    assert running.returncode == 0
    assert "worker_stopped" in said


def test_the_envoy_of_the_operators_page_is_one_that_envoy_accepts(tmp_path: Path) -> None:
    (text,) = blocks(ROOT / "docs" / "operator.md", "yaml")
    file = tmp_path / "envoy.yaml"
    file.write_text(text, "utf-8")

    done = subprocess.run(
        [str(find_envoy()), "--mode", "validate", "-c", str(file), "-l", "error"],
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )

    assert done.returncode == 0, done.stderr


# -- what an auditor is told to do by hand


def test_each_query_of_the_auditors_page_finds_nothing_wrong_in_a_good_study(promoted: str) -> None:
    queries = blocks(ROOT / "docs" / "auditor.md", "sql")

    assert len(queries) == 7
    assert [rows(promoted, query) for query in queries] == [[]] * 7


@pytest.mark.parametrize(
    ("forgery", "number"),
    [
        ("UPDATE steps SET estimate = estimate + 0.001", 0),
        ("UPDATE steps SET log_e_accept = 1 WHERE verdict = 'accept'", 1),
        ("UPDATE steps SET share = 0.99", 2),
        ("UPDATE trials SET capacity_per_second = capacity_per_second * 2", 3),
        ("UPDATE trials SET verdict = 'void' WHERE kind = 'watch'", 4),
        ("UPDATE studies SET sequence = sequence + 1", 5),
    ],
)
def test_the_auditors_query_finds_what_was_forged(
    postgres_server: PostgresServer, promoted: str, forgery: str, number: int
) -> None:
    query = blocks(ROOT / "docs" / "auditor.md", "sql")[number]

    assert rows_after(promoted, forgery, query) != []


def rows_after(url: str, forgery: str, query: str) -> list[Any]:
    """What the query finds after the forgery, which is taken back again."""
    with closing(_Engine(url)) as opened, opened.engine.connect() as connection:
        connection.exec_driver_sql(forgery)
        found = list(connection.exec_driver_sql(query.replace("%", "%%")))
        connection.rollback()
    return found


def test_the_evidence_computed_by_hand_is_what_was_recorded(promoted: str) -> None:
    (code,) = blocks(ROOT / "docs" / "auditor.md", "python")
    made: dict[str, Any] = {}
    exec(code, made)
    by_hand = made["log_evidence"]

    columns = "candidate_requests, candidate_bad_at_most, candidate_bad_at_least, dispersion"
    steps: list[Any] = rows(promoted, f"SELECT {columns}, log_e_accept, log_e_reject FROM steps")

    assert len(steps) > 5
    for total, at_most, at_least, phi, accept, reject in steps:
        assert isclose(by_hand(at_most, total, phi, below=True), accept, abs_tol=1e-6)
        assert isclose(by_hand(at_least, total, phi, below=False), reject, abs_tol=1e-6)

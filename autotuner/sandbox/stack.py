"""The whole local stack of one workload: three tritonservers, Envoy, PostgreSQL and the traffic, started together.

A server that dies is started again with its repository's configuration, as a node's supervisor would do it, so
that faults can be rehearsed. Leaving the context stops everything in the reverse order of starting.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Self

from autotuner.domain.dispersion import REHEARSAL_LIMIT
from autotuner.domain.slo import SloBudget
from autotuner.domain.study import Pace, StudyPlan
from autotuner.domain.target import Replica, Target
from autotuner.sandbox.envoy import TOTAL_WEIGHT, EnvoyProcess, Topology
from autotuner.sandbox.model_repository import reference_requests, write_repository
from autotuner.sandbox.postgres import PostgresProcess
from autotuner.sandbox.processes import ManagedProcess, ProcessFailed, wait_until
from autotuner.sandbox.traffic import TrafficConfig, TrafficProcess, write_atomically
from autotuner.sandbox.tritonserver import TritonProcess, install
from autotuner.sandbox.wheels import Report
from autotuner.sandbox.workload import Workload

STABLE = ("stable-0", "stable-1")
CANARY = "canary"

STATE_FILE = "stack.json"

FLUSH = timedelta(milliseconds=500)

RESTART_AFTER_SECONDS = 1.0

BRISK = Pace(
    warm_up=timedelta(seconds=2),
    settle=timedelta(seconds=1),
    look_interval=timedelta(milliseconds=500),
    flush_interval=FLUSH,
    step_minimum=timedelta(seconds=3),
    production_window=timedelta(seconds=10),
    step_limit=timedelta(seconds=30),
    no_data_limit=timedelta(seconds=4),
    load_limit=timedelta(seconds=20),
    stage_limit=timedelta(seconds=45),
    bake=timedelta(seconds=12),
    study_limit=timedelta(minutes=15),
    restore_limit=timedelta(seconds=60),
)
"""A rehearsal's pace: what takes a study a night of thin traffic is shown within minutes.

A level is decided within 5 to 10 s where the machine is quiet; the limit leaves room for the bursts of a busy one.
"""

ACCEPT_REQUESTS = 330
"""Requests without a slow one that a screening ACCEPT takes, times the dispersion factor (see `make bench`)."""

PATIENCE = timedelta(seconds=80)
"""The longest that a rehearsal stays at one load level."""


@dataclass
class SandboxStack:
    """The stack of one workload. Use as a context manager.

    directory: where logs and state go. database_url: an existing database to use instead of starting one.
    report: told each thing that happens. Raises ProcessFailed with a log's tail when a part does not start.
    """

    workload: Workload
    directory: Path
    database_url: str = ""
    seed: int = 1
    report: Report = print
    tritons: dict[str, TritonProcess] = field(default_factory=dict)
    envoy: EnvoyProcess = field(init=False)
    postgres: PostgresProcess | None = None
    traffic: TrafficProcess = field(init=False)
    _stop: threading.Event = field(default_factory=threading.Event)
    _watch: threading.Thread | None = None
    _open: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    _noted: dict[str, Any] = field(default_factory=dict)
    """What others had written into the state file; it stays there."""

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._open.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    @property
    def url(self) -> str:
        """The database's URL."""
        return self.database_url or (self.postgres.url if self.postgres else "")

    def target(self) -> Target:
        """The stack as a target describes it."""
        return Target(
            name=self.workload.name,
            model=self.workload.name,
            stable=tuple(self._replica(name) for name in STABLE),
            canary=self._replica(CANARY),
            gateway=self.envoy.gateway,
            limits=self.workload.search_limits(),
            objective=self.workload.study_settings().objective,
            note=self.note,
            replica_cost_per_hour=self.workload.gpu_cost_per_hour,
            currency=self.workload.currency,
        )

    @property
    def note(self) -> str:
        """What stands behind the figures, to be shown wherever they are."""
        return self.workload.note

    def budget(self, actor: str) -> SloBudget:
        """The workload's SLO budget."""
        slo = self.workload.slo
        return SloBudget(
            p99_ceiling_seconds=slo.p99_ms / 1000,
            error_ratio_ceiling=slo.error_ratio,
            max_canary_share=slo.max_canary_share,
            harm_budget_requests=slo.harm_budget_requests,
            actor=actor,
            reason="from the workload file",
        )

    def _replica(self, name: str) -> Replica:
        triton = self.tritons[name]
        return Replica(name, triton.http_url, triton.metrics_url)

    # -- starting ------------------------------------------------------------------------------------------

    def _start(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        installation = install(report=self.report)
        self._open.callback(self._stop.set)
        with ThreadPoolExecutor(6) as together:
            database = together.submit(self._start_postgres) if not self.database_url else None
            requests = reference_requests(self.workload, report=self.report)
            for name in (*STABLE, CANARY):
                repository = write_repository(
                    self.workload, self.directory / name / "models", report=self.report
                )
                triton = TritonProcess(
                    name, installation, repository, self.workload.name, self.directory / name
                )
                self.tritons[name] = triton
                self._open.callback(triton.stop)
            self.report("starting three tritonservers, Envoy" + (" and PostgreSQL" if database else ""))
            starts = [together.submit(triton.start) for triton in self.tritons.values()]
            self._start_envoy()
            for start in starts:
                start.result()
            if database is not None:
                database.result()
        self._start_traffic(requests.path, requests.headers, requests.bodies)
        self.write_state()
        self._watch = threading.Thread(target=self._supervise, name="stack-supervisor", daemon=True)
        self._watch.start()
        self._open.callback(self._join)
        self.report(
            f"traffic: {self.workload.traffic.requests_per_second:g} requests/s through {self.envoy.url}"
        )

    def _start_postgres(self) -> None:
        postgres = PostgresProcess(log_path=self.directory / "postgres.log")
        self.postgres = postgres
        self._open.callback(postgres.remove)
        postgres.start()

    def _start_envoy(self) -> None:
        half = TOTAL_WEIGHT // len(STABLE)
        topology = Topology(
            replicas=[self._replica(name) for name in (*STABLE, CANARY)],
            ceiling=timedelta(milliseconds=self.workload.slo.p99_ms),
            initial_weights={**dict.fromkeys(STABLE, half), CANARY: 0},
            flush_interval=FLUSH,
        )
        self.envoy = EnvoyProcess(topology, run_directory=self.directory / "envoy")
        self._open.callback(self.envoy.stop)
        self.envoy.start()

    def _start_traffic(self, path: str, headers: Mapping[str, str], bodies: tuple[bytes, ...]) -> None:
        folder = self.directory / "traffic"
        folder.mkdir(exist_ok=True)
        paths = []
        for number, body in enumerate(bodies):
            file = folder / f"body-{number}.bin"
            file.write_bytes(body)
            paths.append(str(file))
        config = TrafficConfig(
            url=self.envoy.url,
            path=path,
            body_paths=tuple(paths),
            requests_per_second=self.workload.traffic.requests_per_second,
            arrivals=dict(self.workload.traffic.arrivals),
            status_path=str(folder / "status.json"),
            headers=dict(headers),
            seed=self.seed,
        )
        self.traffic = TrafficProcess(config, run_directory=folder)
        self._open.callback(self.traffic.stop)
        self.traffic.start()
        wait_until(
            lambda: self.traffic.status() is not None,
            within=timedelta(seconds=15),
            what="the traffic flows",
            process=self.traffic.process,
        )

    def _join(self) -> None:
        self._stop.set()
        if self._watch is not None:
            self._watch.join(timeout=90)

    # -- supervising ---------------------------------------------------------------------------------------

    def _supervise(self) -> None:
        while not self._stop.wait(0.25):
            for name, triton in self.tritons.items():
                self._revive(name, triton.process, triton.start)
            self._revive("Envoy", self.envoy.process, self.envoy.start)

    def _revive(self, name: str, process: ManagedProcess, start: Callable[[], None]) -> None:
        if process.alive or self._stop.is_set():
            return
        self.report(f"{name} died; it is started again")
        if self._stop.wait(RESTART_AFTER_SECONDS):
            return
        try:
            start()
        except ProcessFailed as error:
            self.report(f"{name} could not be started again: {error}")
        self.write_state()

    def write_state(self, **more: Any) -> None:
        """Write pids and URLs for whoever wants to look at, or break, the stack from outside."""
        self._noted |= more
        state = {
            "workload": self.workload.name,
            "gateway": self.envoy.url,
            "gateway_admin": self.envoy.admin_url,
            "database_url": self.url,
            "tritons": {
                n: {"pid": t.process.pid, "http": t.http_url}
                for n, t in self.tritons.items()
                if t.process.alive
            },
            "envoy_pid": self.envoy.process.pid if self.envoy.process.alive else None,
            **self._noted,
        }
        write_atomically(self.directory / STATE_FILE, json.dumps(state, indent=1))


def brisk_plan(stack: SandboxStack, slo: SloBudget, *, short: bool = False, seed: int = 0) -> StudyPlan:
    """Return the plan of a rehearsal on `stack`. The workload's `study` section overrides it."""
    settings: dict[str, Any] = {"max_trials": 2 if short else 3, "ramp_steps": 4 if short else 5}
    settings |= stack.workload.study_settings().model_dump(exclude={"objective"}, exclude_none=True)
    return StudyPlan(
        target=stack.target(),
        slo=slo,
        pace=_paced(stack.workload.traffic.requests_per_second),
        max_dispersion=REHEARSAL_LIMIT,
        seed=seed,
        **settings,
    )


def _paced(requests_per_second: float) -> Pace:
    """The brisk pace with time enough for a level's requests, within PATIENCE: thinner traffic ends inconclusive."""
    fair = requests_per_second / len((*STABLE, CANARY))
    needed = timedelta(seconds=1.2 * ACCEPT_REQUESTS * REHEARSAL_LIMIT / fair)
    step = min(PATIENCE, max(BRISK.step_limit, needed))
    return replace(BRISK, step_limit=step, stage_limit=max(BRISK.stage_limit, 2 * step))


def run_directory(parent: str | None = None) -> Path:
    """Return a new directory for one run of the stack."""
    return Path(tempfile.mkdtemp(prefix="autotuner-sandbox-", dir=parent))


def remove_directory(directory: Path) -> None:
    """Delete a run's directory."""
    shutil.rmtree(directory, ignore_errors=True)

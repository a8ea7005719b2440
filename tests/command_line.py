"""The command line in this process, over a store in memory and a simulated target whose clock turns by waiting."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import yaml
from pydantic import SecretStr
from typer.testing import CliRunner

from autotuner.adapters.clock import ManualClock
from autotuner.adapters.memory_store import (
    MemoryAllowances,
    MemoryCatalogue,
    MemoryLeadership,
    MemoryLeases,
    MemoryNights,
    MemoryOutbox,
    MemoryRegistry,
    MemorySpans,
    MemoryTokens,
)
from autotuner.adapters.simulated import SimulatedProfile, SimulatedWorld, small_vision
from autotuner.bootstrap import Application
from autotuner.cli.app import app
from autotuner.cli.invocation import Invocation
from autotuner.controller import Pools
from autotuner.ports import Store
from autotuner.settings import Settings
from autotuner.target_file import parse_target_file
from tests.builders import START
from tests.closed_loop.loop import QuickStore, proposers
from tests.observers import StandInObserver

TARGET: dict[str, Any] = {
    "name": "vision",
    "model": "small_vision",
    "stable": [
        {"name": "stable-0", "url": "http://127.0.0.1:9000", "metrics": "http://127.0.0.1:9002/metrics"},
        {"name": "stable-1", "url": "http://127.0.0.1:9010", "metrics": "http://127.0.0.1:9012/metrics"},
    ],
    "canary": {"name": "canary", "url": "http://127.0.0.1:9020", "metrics": "http://127.0.0.1:9022/metrics"},
    "gateway": {"admin": "http://127.0.0.1:9900", "runtime_prefix": "route.vision"},
    "slo": {"p99_ms": 100, "max_canary_share": 0.85, "harm_budget_requests": 3000},
    "limits": {"instance_count": 4, "max_queue_delay_microseconds": 20_000},
    "study": {
        "sampler": "tpe",  # what these tests look at is not the proposal: a course that no model changes
        "max_trials": 2,
        "ramp_steps": 4,
        "pace": {
            "warm_up": "3s",
            "settle": "1s",
            "look_interval": "1s",
            "flush_interval": "1s",
            "step_minimum": "3s",
            "production_window": "12s",
            "step_limit": "60s",
            "no_data_limit": "5s",
            "load_limit": "20s",
            "stage_limit": "60s",
            "bake": "20s",
            "restore_limit": "60s",
        },
    },
}
"""A target file that ends within minutes of simulated time."""


class TurningEvent(threading.Event):
    """An event that turns the clock instead of waiting; `watching` is called at each wait."""

    def __init__(self, clock: ManualClock, watching: Callable[[threading.Event], None]) -> None:
        super().__init__()
        self._clock = clock
        self._watching = watching

    def wait(self, timeout: float | None = None) -> bool:
        """Turn the clock by `timeout` seconds."""
        self._clock.advance(max(timedelta(seconds=timeout or 0.0), timedelta(milliseconds=20)))
        self._watching(self)
        return self.is_set()


@dataclass
class Ran:
    """What a command ended with."""

    code: int
    out: str
    err: str

    @property
    def answer(self) -> Any:
        """The one JSON object; fails when anything else is on standard output."""
        assert self.out.count("\n") == 1, self.out
        return json.loads(self.out)


def calm_vision() -> SimulatedProfile:
    """The small vision model under Poisson arrivals: nothing scatters, so a study is short."""
    return replace(small_vision(), bursts=None)


@dataclass
class Terminal:
    """Runs commands against one store in memory. watching: called whenever a command would wait."""

    profile: SimulatedProfile = field(default_factory=calm_vision)
    store: Any = field(default_factory=QuickStore)
    schema_is_current: bool = True
    watching: Callable[[threading.Event], None] = lambda event: None
    settings: Settings = field(
        default_factory=lambda: Settings(
            database_url=SecretStr("postgresql+psycopg://me:s3cret@nowhere/x"), actor="tester", holder="here"
        )
    )

    def __post_init__(self) -> None:
        self.clock = ManualClock(START)
        self.target = SimulatedWorld(parse_target_file(TARGET).target(), self.clock, self.profile, 1)
        self.clock.advance(timedelta(seconds=5))

    def run(self, *words: str | Path) -> Ran:
        """Run one command."""
        invocation = Invocation(
            opening=self.application,
            settings=lambda: self.settings,
            event=lambda: TurningEvent(self.clock, self.watching),
        )
        result = CliRunner().invoke(app, [str(word) for word in words], obj=invocation)
        return Ran(result.exit_code, result.stdout, result.stderr)

    def application(self, settings: Settings) -> Application:
        """The application over this terminal's store."""
        store: Store = self.store
        return Application(
            settings=settings,
            store=store,
            registry=MemoryRegistry(self.store.memory),
            catalogue=MemoryCatalogue(self.store.memory),
            tokens=MemoryTokens(self.store.memory),
            allowances=MemoryAllowances(self.store.memory, self.clock),
            issuer=None,
            leases=MemoryLeases(self.store, self.clock),
            nights=MemoryNights(self.store),
            outbox=MemoryOutbox(self.store.memory),
            leadership=lambda: MemoryLeadership(self.store.memory),
            alarm=lambda: None,
            clock=self.clock,
            pools=Pools.all_in(self.target.background),
            received=MemorySpans(self.store.memory),
            ticks=None,
            worlds=lambda target: self.target.world,
            proposers=proposers,
            schema_is_current=lambda: self.schema_is_current,
            close=lambda: None,
            observers=StandInObserver,
            wait=self.clock.advance,
        )


def a_target_file(folder: Path, **changes: Any) -> Path:
    """Write `TARGET` with some top-level fields changed."""
    path = folder / "target.yaml"
    path.write_text(yaml.safe_dump(TARGET | changes, sort_keys=False), "utf-8")
    return path

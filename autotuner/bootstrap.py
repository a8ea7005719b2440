"""The composition root: the only file that chooses implementations."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType
from typing import Self

from sqlalchemy import Engine

from autotuner.adapters.clock import SystemClock
from autotuner.adapters.envoy import EnvoyRoute
from autotuner.adapters.optuna_proposer import OptunaProposer
from autotuner.adapters.postgres.engine import open_engine
from autotuner.adapters.postgres.lease import PostgresLeases
from autotuner.adapters.postgres.migrate import is_current
from autotuner.adapters.postgres.store import PostgresStore
from autotuner.adapters.scrape import ScrapedMetrics
from autotuner.adapters.triton import TritonServing
from autotuner.controller import Controller, Outside
from autotuner.domain.study import StudyPlan
from autotuner.domain.target import Target
from autotuner.errors import InvalidInput, Refused
from autotuner.ports import Clock, Proposer, World
from autotuner.settings import PREFIX, Settings
from autotuner.worker import Worker


def proposer_for(plan: StudyPlan) -> Proposer:
    """Return the proposer a plan names. Raises InvalidInput for a sampler that is not known."""
    return OptunaProposer(plan.sampler)


def world_of(target: Target, clock: Clock) -> World:
    """Return the doors to a target of static endpoints: Triton, Envoy and their metrics pages."""
    return World(TritonServing(target), EnvoyRoute(target), ScrapedMetrics(target, clock))


@dataclass
class Application:
    """Everything one process needs, wired together. Use as a context manager: leaving closes what is open."""

    settings: Settings
    engine: Engine
    store: PostgresStore
    leases: PostgresLeases
    clock: Clock
    background: ThreadPoolExecutor

    def controller(self) -> Controller:
        """Return a controller that drives studies under this process's name."""
        outside = Outside(
            store=self.store,
            leases=self.leases,
            clock=self.clock,
            worlds=lambda target: world_of(target, self.clock),
            proposers=proposer_for,
            background=self.background,
        )
        return Controller(outside, self.settings.holder, timedelta(seconds=self.settings.lease_seconds))

    def worker(self) -> Worker:
        """Return a worker around a new controller."""
        return Worker(self.store, self.controller(), self.clock)

    def require_current_schema(self) -> None:
        """Raise Refused when the database's schema is not the one this version needs."""
        if not is_current(self.engine):
            raise Refused("the database's schema is not current: run `autotuner db upgrade` first")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.background.shutdown(wait=False, cancel_futures=True)
        self.engine.dispose()


def application(settings: Settings) -> Application:
    """Return the application for `settings`; nothing is connected yet. Raises InvalidInput without a database URL."""
    url = settings.database_url.get_secret_value()
    if not url:
        raise InvalidInput(f"{PREFIX}DATABASE_URL", "", "the URL of a PostgreSQL ≥ 15 database")
    engine = open_engine(url)
    return Application(
        settings,
        engine,
        PostgresStore(engine),
        PostgresLeases(engine),
        SystemClock(),
        ThreadPoolExecutor(settings.threads, thread_name_prefix="autotuner"),
    )

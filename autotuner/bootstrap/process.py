"""What one process is wired of: store, leases, pools, and the workers and schedulers made from them.

What only a study needs is imported when the first study needs it: most commands just look into the database.
"""

from __future__ import annotations

import functools
import gc
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Self

from autotuner.adapters.clock import SystemClock
from autotuner.adapters.postgres import Engine
from autotuner.adapters.postgres.allowances import PostgresAllowances
from autotuner.adapters.postgres.catalogue import PostgresCatalogue
from autotuner.adapters.postgres.engine import open_engine
from autotuner.adapters.postgres.leadership import PostgresLeadership
from autotuner.adapters.postgres.lease import PostgresLeases
from autotuner.adapters.postgres.migrate import is_current, upgrade
from autotuner.adapters.postgres.nights import PostgresNights
from autotuner.adapters.postgres.outbox import PostgresOutbox
from autotuner.adapters.postgres.registry import PostgresRegistry
from autotuner.adapters.postgres.spans import PostgresSpans
from autotuner.adapters.postgres.store import PostgresStore
from autotuner.adapters.postgres.tokens import PostgresTokens
from autotuner.adapters.postgres.writing import Writing
from autotuner.bootstrap.doors import (
    access_of,
    cluster_of,
    proposer_for,
    secrets_of,
    target_observer,
    world_of,
)
from autotuner.catalogue import Catalogue
from autotuner.controller import Controller, Outside, Pools
from autotuner.courier import Courier
from autotuner.domain.study import StudyPlan
from autotuner.domain.target import Target
from autotuner.errors import InvalidInput, NotFound, Refused, Unavailable
from autotuner.nightly import NightWatch
from autotuner.ports import (
    Allowances,
    Canary,
    Clock,
    Issuer,
    Leadership,
    Leases,
    Nights,
    Observer,
    Outbox,
    Proposer,
    ReceivedSpans,
    Registry,
    Store,
    Tokens,
    World,
)
from autotuner.promotions import Desk
from autotuner.settings import PREFIX, Settings
from autotuner.telemetry.studies import Watched
from autotuner.telemetry.threads import ContextThreads
from autotuner.telemetry.traces import start_tracing, stop_tracing, traced
from autotuner.upkeep import Upkeep
from autotuner.worker import Terms, Worker

if TYPE_CHECKING:
    from autotuner.receiving import Receiver
    from autotuner.scheduler import Alarm, Scheduler
    from autotuner.telemetry.metrics import Instruments

THREADS = "autotuner-work"
"""How the names of the threads beside the ticks begin."""


READS_PER_TICK = 4
"""Threads that read servers, for each that ticks: a tick reads every replica and the gateway at once."""

COLLECTED_AFTER = (100_000, 20, 50)
"""How many more objects were made than given back before the youngest are looked at; after how many such looks the
older ones are."""

READERS = 2
"""Threads in which the API answers what only reads the database: while one waits for it, the other computes. Each more
would wait for the interpreter after every statement, and long pages would delay short ones."""

TRACES = 2
"""Questions to trace stores at a time; nothing waits for an answer."""

PROPOSALS = 2
"""Proposals computed at the same time: they use processors, and ticks need some too."""


def sleep_for(duration: timedelta) -> None:
    """Let so much time pass."""
    time.sleep(duration.total_seconds())


def canaries_past_their_time(app: Application, namespace: str) -> tuple[str, ...]:
    """Take down every canary in a namespace that is past its time; return a sentence for each."""
    cluster = cluster_of(access_of(app.settings))
    from autotuner.adapters.kubernetes import reap  # noqa: PLC0415 - an extra

    def canary_of(name: str) -> Canary | None:
        try:
            target = app.registry.registration(name).target
        except NotFound:
            return None
        return app.worlds(target).canary if target.workload is not None else None

    return reap(cluster, app.clock, namespace, canary_of)


@dataclass
class Application:
    """Everything one process needs, wired together. Use as a context manager: leaving closes what is open.

    issuer vouches for JWTs; None when none is configured. pools: where work beside the ticks runs; ticks: where ticks
    run, None for one after another. worlds and proposers give the doors of a target and the sampler of a plan.
    schema_is_current says whether the database can be used by this version; close gives back what was opened.
    observers gives what looks at a target for a diagnosis, and wait lets the time between two looks pass.
    """

    settings: Settings
    store: Store
    registry: Registry
    catalogue: Catalogue
    tokens: Tokens
    allowances: Allowances
    issuer: Issuer | None
    leases: Leases
    nights: Nights
    outbox: Outbox
    leadership: Callable[[], Leadership]
    alarm: Callable[[], Alarm | None]
    clock: Clock
    pools: Pools
    ticks: Executor | None
    worlds: Callable[[Target], World]
    proposers: Callable[[StudyPlan], Proposer]
    schema_is_current: Callable[[], bool]
    close: Callable[[], None]
    require_writes: Callable[[], None] = lambda: None
    """Raises Unavailable while the database takes no writes."""
    observers: Callable[[Target, Clock], Observer] = target_observer
    wait: Callable[[timedelta], object] = sleep_for
    received: ReceivedSpans | None = None
    """Spans that are sent to this service; None where there is nowhere to keep them."""

    def controller(self) -> Controller:
        """Return a controller that drives studies under this process's name."""
        outside = Outside(
            store=self.store,
            leases=self.leases,
            clock=self.clock,
            worlds=self.worlds,
            proposers=self.proposers,
            pools=self.pools,
            watched=Watched(self.instruments),
        )
        return Controller(outside, self.settings.holder, timedelta(seconds=self.settings.lease_seconds))

    def upkeep(self) -> Upkeep:
        """Return what looks after promotions that live in servers' memory."""
        return Upkeep(
            store=self.store,
            catalogue=self.catalogue,
            leases=self.leases,
            clock=self.clock,
            worlds=self.worlds,
            holder=f"{self.settings.holder} (upkeep)",
        )

    def worker(self) -> Worker:
        """Return a worker around a new controller."""
        return Worker(
            self.store,
            self.leases,
            self.controller(),
            self.clock,
            terms_of(self.settings),
            self.ticks,
            instruments=self.instruments,
            upkeep=self.upkeep().look,
            loads=self.pools.loads,
        )

    def scheduler(self) -> Scheduler:
        """Return a scheduler; one that leads settles nights and delivers notices. Raises InvalidInput."""
        from autotuner.adapters.webhook import webhooks  # noqa: PLC0415 - half a second of importing
        from autotuner.certifying import CertificateWatch  # noqa: PLC0415 - as the scheduler
        from autotuner.scheduler import Scheduler, firings  # noqa: PLC0415 - only this command needs it
        from autotuner.telemetry.coverage import ShownCoverage  # noqa: PLC0415 - as the scheduler

        settings = self.settings
        shown = ShownCoverage(self.instruments)
        certificates = CertificateWatch(self.desk(), shown.show, shown.keep)
        hooks = webhooks(settings.webhooks.get_secret_value(), settings.webhook_secret.get_secret_value())
        watch = NightWatch(
            store=self.store,
            nights=self.nights,
            registry=self.registry,
            clock=self.clock,
            firings=firings,
            canaries_per_site=settings.canaries_per_site,
            inconclusive_nights=settings.inconclusive_nights,
            told=lambda state: self.instruments.nights.labels(state).inc(),
            why_another=certificates.why_another,
        )
        courier = Courier(
            self.outbox, hooks, self.clock, lambda result: self.instruments.notices.labels(result).inc()
        )

        def led(leads: bool) -> None:
            self.instruments.leads.set(int(leads))

        return Scheduler(
            self.leadership(), watch, courier, self.clock, self.alarm(), led, certificates, self.received
        )

    @functools.cached_property
    def instruments(self) -> Instruments:
        """The metrics of this process."""
        from autotuner.telemetry.metrics import Instruments  # noqa: PLC0415 - most commands count nothing

        return Instruments()

    @functools.cached_property
    def readers(self) -> Executor:
        """The threads in which the API answers what only reads the database, in the order it is asked."""
        return _threads("answers", READERS)

    @contextmanager
    def metrics_served(self) -> Iterator[None]:
        """Serve this process's metrics inside the block, if a port is set for them. Raises Unavailable."""
        settings = self.settings
        if not settings.metrics_port:
            yield
            return
        from autotuner.telemetry.metrics import serve_page  # noqa: PLC0415 - most processes serve none

        _, stop = serve_page(self.instruments, settings.metrics_host, settings.metrics_port)
        try:
            yield
        finally:
            stop()

    @functools.cached_property
    def receiver(self) -> Receiver:
        """What takes spans in. Raises Unavailable where there is nowhere to keep them."""
        from autotuner.adapters.tracing import spans_of_export  # noqa: PLC0415 - few targets are traced
        from autotuner.receiving import Receiver  # noqa: PLC0415

        if self.received is None:
            raise Unavailable("spans", "there is nowhere to keep them")
        return Receiver(self.received, self.clock, spans_of_export)

    def settle_spans(self) -> None:
        """Judge the spans that have waited long enough; nothing where none were ever sent to this process.

        Raises Unavailable.
        """
        if "receiver" in vars(self):
            self.receiver.settle()

    def desk(self) -> Desk:
        """Return what use cases of promotions need."""
        return Desk(self.store, self.registry, self.catalogue, self.clock, self.worlds)

    def require_current_schema(self) -> None:
        """Raise Refused when the database's schema is not the one this version needs."""
        if not self.schema_is_current():
            raise Refused("the database's schema is not current: run `autotuner db upgrade` first")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.pools.shutdown()
        if "readers" in vars(self):
            self.readers.shutdown(wait=False, cancel_futures=True)
        if self.ticks is not None:
            self.ticks.shutdown(wait=False, cancel_futures=True)
        self.close()


@contextmanager
def collected_rarely() -> Iterator[None]:
    """Let the garbage collector look at what is new rarely, and at what was made before never, inside the block.

    For a process that serves or carries many studies, once it is set up. Records hold no cycles, so what is no longer
    needed is given back without it; but each time it goes through a million of them, everything stands still for most
    of a second.
    """
    usual = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTED_AFTER)
    try:
        yield
    finally:
        gc.unfreeze()
        gc.set_threshold(*usual)


def terms_of(settings: Settings) -> Terms:
    """Return how much one worker of these settings takes on."""
    return Terms(
        threads=settings.threads,
        studies=settings.studies,
        canaries_per_site=settings.canaries_per_site,
        present_for=timedelta(seconds=settings.lease_seconds),
    )


def pools_of(settings: Settings) -> Pools:
    """Return the pools of one process; a thread is made when it is first needed."""
    return Pools(
        reads=_threads("reads", READS_PER_TICK * settings.threads),
        loads=_threads("loads", settings.load_threads),
        proposals=_threads("proposals", PROPOSALS),
        traces=_threads("traces", TRACES),
    )


def ticks_of(settings: Settings) -> ContextThreads:
    """Return the pool in which one worker ticks and looks around."""
    return _threads("ticks", settings.threads + 1)


def _threads(kind: str, most: int) -> ContextThreads:
    return ContextThreads(most, thread_name_prefix=f"{THREADS}-{kind}")


def application(settings: Settings) -> Application:
    """Return the application for `settings`; nothing is connected yet. Raises InvalidInput without a database URL."""
    engine = open_engine(database_url(settings), pool_size=settings.database_connections)
    headers = settings.otlp_headers.get_secret_value()
    start_tracing(settings.otlp_endpoint, headers, settings.traces_share, settings.holder)
    clock = SystemClock()
    issuer = issuer_of(settings, clock)
    secrets = secrets_of(settings)
    received = PostgresSpans(engine)

    def close() -> None:
        engine.dispose()
        stop_tracing()
        if issuer is not None:
            issuer.close()

    return Application(
        settings=settings,
        store=traced(PostgresStore(engine), "database"),
        registry=traced(PostgresRegistry(engine), "database"),
        catalogue=traced(PostgresCatalogue(engine), "database"),
        tokens=traced(PostgresTokens(engine), "database"),
        allowances=traced(PostgresAllowances(engine), "database"),
        issuer=issuer,
        leases=traced(PostgresLeases(engine), "database"),
        nights=traced(PostgresNights(engine), "database"),
        outbox=traced(PostgresOutbox(engine), "database"),
        leadership=lambda: PostgresLeadership(database_url(settings)),
        alarm=lambda: alarm_on(engine),
        clock=clock,
        pools=pools_of(settings),
        ticks=ticks_of(settings),
        worlds=lambda target: world_of(target, clock, secrets, access_of(settings), received),
        received=received,
        observers=lambda target, at: target_observer(target, at, secrets, access_of(settings)),
        proposers=proposer_for,
        schema_is_current=lambda: is_current(engine),
        close=close,
        require_writes=Writing(engine).check,
    )


def issuer_of(settings: Settings, clock: Clock) -> Issuer | None:
    """Return the issuer whose JWTs are believed; None when none is configured."""
    if not settings.oidc_issuer:
        return None
    from autotuner.adapters.oidc import OidcIssuer, OidcRules  # noqa: PLC0415 - most commands know no tokens

    rules = OidcRules(
        issuer=settings.oidc_issuer,
        audience=settings.oidc_audience,
        clock_skew=timedelta(seconds=settings.oidc_clock_skew_seconds),
        actor_claim=settings.oidc_actor_claim,
        scope_claim=settings.oidc_scope_claim,
    )
    return OidcIssuer(rules, clock)


def alarm_on(engine: Engine) -> Alarm:
    """Return the alarm of schedulers that share a database."""
    from autotuner.scheduler import CronAlarm  # noqa: PLC0415 - only the scheduler needs it

    return CronAlarm(engine)


def upgrade_database(settings: Settings) -> str | None:
    """Bring the database to the newest schema and return its revision. Raises InvalidInput, Unavailable."""
    return upgrade(database_url(settings))


def database_url(settings: Settings) -> str:
    """Return the database's URL, password and all. Raises InvalidInput when none is set."""
    url = settings.database_url.get_secret_value()
    if not url:
        raise InvalidInput(f"{PREFIX}DATABASE_URL", "", "the URL of a PostgreSQL ≥ 15 database")
    return url

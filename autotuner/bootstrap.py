"""The composition root: the only file that chooses implementations.

What only a study needs is imported when the first study needs it: most commands just look into the database.
"""

from __future__ import annotations

import functools
import gc
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

from autotuner.adapters.clock import SystemClock
from autotuner.adapters.postgres import Engine
from autotuner.adapters.postgres.catalogue import PostgresCatalogue
from autotuner.adapters.postgres.engine import open_engine
from autotuner.adapters.postgres.leadership import PostgresLeadership
from autotuner.adapters.postgres.lease import PostgresLeases
from autotuner.adapters.postgres.migrate import is_current, upgrade
from autotuner.adapters.postgres.nights import PostgresNights
from autotuner.adapters.postgres.outbox import PostgresOutbox
from autotuner.adapters.postgres.registry import PostgresRegistry
from autotuner.adapters.postgres.store import PostgresStore
from autotuner.adapters.postgres.tokens import PostgresTokens
from autotuner.adapters.postgres.writing import Writing
from autotuner.catalogue import Catalogue
from autotuner.controller import Controller, Outside, Pools
from autotuner.courier import Courier
from autotuner.diagnosing import Deployment, ServerPlace, deployment_of
from autotuner.domain.study import StudyPlan
from autotuner.domain.target import Target
from autotuner.errors import InvalidInput, NotFound, Refused
from autotuner.nightly import NightWatch
from autotuner.ports import (
    Canary,
    Clock,
    Issuer,
    Leadership,
    Leases,
    MetricsSource,
    Nights,
    Observer,
    Outbox,
    Proposer,
    Registry,
    ServerApi,
    Store,
    Tokens,
    World,
)
from autotuner.promotions import Desk
from autotuner.secret_shelf import SecretShelf
from autotuner.settings import PREFIX, Settings
from autotuner.telemetry.studies import Watched
from autotuner.telemetry.threads import ContextThreads
from autotuner.telemetry.traces import start_tracing, stop_tracing, traced
from autotuner.worker import Terms, Worker

if TYPE_CHECKING:
    from autotuner.adapters.kubernetes import Cluster
    from autotuner.adapters.scrape.observer import Counted as ByServer
    from autotuner.adapters.scrape.reading import Access
    from autotuner.domain.preflight import Finding
    from autotuner.scheduler import Alarm, Scheduler
    from autotuner.telemetry.metrics import Instruments

THREADS = "autotuner-work"
"""How the names of the threads beside the ticks begin."""


READS_PER_TICK = 4
"""Threads that read servers, for each that ticks: a tick reads every replica and the gateway at once."""

COLLECTED_AFTER = (100_000, 20, 50)
"""How many more objects were made than given back before the youngest are looked at; after how many such looks the
older ones are."""

PROPOSALS = 2
"""Proposals computed at the same time: they use processors, and ticks need some too."""


NO_SECRETS = SecretShelf()


@dataclass(frozen=True)
class ClusterAccess:
    """How a Kubernetes API server is reached: a kubeconfig file and a context of it; empty for what is usual."""

    kubeconfig: str = ""
    context: str = ""


USUAL_ACCESS = ClusterAccess()


def proposer_for(plan: StudyPlan) -> Proposer:
    """Return the proposer a plan names. Raises InvalidInput for a sampler that is not known."""
    from autotuner.adapters.optuna_proposer import OptunaProposer  # noqa: PLC0415 - a second of importing

    return OptunaProposer(plan.sampler)


def world_of(
    target: Target, clock: Clock, secrets: SecretShelf = NO_SECRETS, cluster: ClusterAccess = USUAL_ACCESS
) -> World:
    """Return the doors to a target: Triton, the gateway, whoever counts, and the canary on Kubernetes.

    secrets: what its metrics server may need. cluster: how its API server is reached. Raises InvalidInput.
    """
    if target.workload is not None:
        return _world_on_kubernetes(target, clock, secrets, cluster)
    from autotuner.adapters.envoy import EnvoyRoute  # noqa: PLC0415 - half a second of importing, all of these
    from autotuner.adapters.triton import TritonServing  # noqa: PLC0415

    return World(
        traced(TritonServing(target), "triton"),
        traced(EnvoyRoute(target), "gateway"),
        traced(metrics_of(target, clock, secrets), "metrics"),
    )


def metrics_of(target: Target, clock: Clock, secrets: SecretShelf = NO_SECRETS) -> MetricsSource:
    """Return what counts for a target: its metrics server where it names one, else every page itself."""
    if target.metrics is None:
        from autotuner.adapters.scrape import ScrapedMetrics  # noqa: PLC0415

        return ScrapedMetrics(target, clock)
    from autotuner.adapters.prometheus import PrometheusMetrics  # noqa: PLC0415
    from autotuner.adapters.scrape import ScrapedStatistics  # noqa: PLC0415

    statistics = ScrapedStatistics(target, target.metrics.prometheus.deadline)
    return PrometheusMetrics(target, secrets, statistics, clock)


@dataclass(frozen=True)
class Counted:
    """What counts for one target, outside any study. every_seconds: how often it says that things are scraped."""

    source: MetricsSource
    clock: Clock
    every_seconds: Callable[[], Mapping[str, float]]


def counted_by(target: Target, settings: Settings) -> Counted:
    """Return what counts for a target, without a database. Raises InvalidInput."""
    from autotuner.adapters.prometheus import PrometheusMetrics  # noqa: PLC0415

    clock = SystemClock()
    secrets = secrets_of(settings)
    if target.workload is not None:
        return Counted(world_of(target, clock, secrets, access_of(settings)).metrics, clock, dict)
    source = metrics_of(target, clock, secrets)
    if isinstance(source, PrometheusMetrics):
        return Counted(source, clock, lambda: source.watch.every_seconds)
    return Counted(source, clock, dict)


def secrets_of(settings: Settings) -> SecretShelf:
    """Return the secrets that targets may name."""
    return SecretShelf.read(settings.secrets.get_secret_value(), settings.secrets_directory)


def sleep_for(duration: timedelta) -> None:
    """Let so much time pass."""
    time.sleep(duration.total_seconds())


def target_observer(target: Target, clock: Clock, secrets: SecretShelf = NO_SECRETS) -> Observer:
    """Return what looks at a target for a diagnosis. Raises Refused, InvalidInput."""
    from autotuner.adapters.scrape.observer import Counted as ByServer  # noqa: PLC0415 - one command needs it

    counted = None
    if target.metrics is not None:
        backends = target.backends(target.stable_names)
        counted = ByServer(metrics_of(target, clock, secrets), backends)
    return observer_of(deployment_of(target), clock, counted)


def observer_of(deployment: Deployment, clock: Clock, counted: ByServer | None = None) -> Observer:
    """Return what looks at a deployment for a diagnosis; counted: who counts for its gateway.

    Raises InvalidInput for authorities that cannot be read.
    """
    from autotuner.adapters.scrape.observer import Gateway, Observer, Watched  # noqa: PLC0415 - one command needs it
    from autotuner.adapters.scrape.reading import Access  # noqa: PLC0415

    access = Access(deployment.headers, _trusting(deployment.authorities))
    servers = [
        Watched(place.name, _server_api(place, deployment, access), place.metrics_url)
        for place in deployment.servers
    ]
    gateway = Gateway(deployment.gateway_url, deployment.clusters) if deployment.gateway_url else None
    return Observer(servers, clock, deployment.model, gateway, access, counted)


def _server_api(place: ServerPlace, deployment: Deployment, access: Access) -> ServerApi:
    from autotuner.adapters.scrape.serving import HttpServing  # noqa: PLC0415 - one command needs it

    url = urlsplit(place.url)
    if url.scheme not in {"grpc", "grpcs"}:
        return HttpServing(place.name, place.url, access)
    from autotuner.adapters.triton.telling import GrpcServing  # noqa: PLC0415 - half a second of importing

    secure = url.scheme == "grpcs"
    return GrpcServing(place.name, url.netloc, secure, deployment.authorities or None, deployment.headers)


def _trusting(authorities: str) -> ssl.SSLContext | None:
    if not authorities:
        return None
    try:
        return ssl.create_default_context(cafile=authorities)
    except (OSError, ssl.SSLError) as error:
        raise InvalidInput("--ca", authorities, f"a PEM file of certificate authorities ({error})") from error


def _world_on_kubernetes(target: Target, clock: Clock, secrets: SecretShelf, access: ClusterAccess) -> World:
    from autotuner.adapters.kubernetes import (  # noqa: PLC0415 - an extra: most installations have no cluster
        KubernetesCanary,
        KubernetesRoute,
        LocatedMetrics,
        LocatedServing,
        Production,
        Whereabouts,
    )
    from autotuner.adapters.triton import TritonServing, config_pbtxt  # noqa: PLC0415

    cluster = cluster_of(access)
    whereabouts = Whereabouts(cluster, target, clock)
    route = KubernetesRoute(cluster, target)
    production = Production(cluster, target, clock, config_pbtxt)
    return World(
        LocatedServing(whereabouts, production, TritonServing),
        route,
        LocatedMetrics(whereabouts, lambda located: metrics_of(located, clock, secrets), clock),
        KubernetesCanary(cluster, target, route, clock),
    )


def cluster_of(access: ClusterAccess) -> Cluster:
    """Return an API server by how it is reached. Raises InvalidInput where its client is not installed."""
    try:
        from autotuner.adapters.kubernetes import Cluster  # noqa: PLC0415 - an extra
    except ImportError as error:
        allowed = "left out, or the extra `kubernetes` installed: pip install autotuner[kubernetes]"
        raise InvalidInput("kubernetes", str(error), allowed) from error
    return Cluster(access.kubeconfig, access.context)


def access_of(settings: Settings) -> ClusterAccess:
    """Return how settings say that the cluster is reached."""
    return ClusterAccess(settings.kubeconfig, settings.kube_context)


def preflight_of(target: Target, settings: Settings) -> tuple[Finding, ...]:
    """Return what a study of a target on Kubernetes would find; nothing is changed. Raises NotFound, Refused."""
    cluster = cluster_of(access_of(settings))
    from autotuner.adapters.kubernetes import survey  # noqa: PLC0415 - an extra

    return survey(cluster, target)


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
        )

    def scheduler(self) -> Scheduler:
        """Return a scheduler; one that leads settles nights and delivers notices. Raises InvalidInput."""
        from autotuner.adapters.webhook import webhooks  # noqa: PLC0415 - half a second of importing
        from autotuner.scheduler import Scheduler, firings  # noqa: PLC0415 - only this command needs it

        settings = self.settings
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
        )
        courier = Courier(
            self.outbox, hooks, self.clock, lambda result: self.instruments.notices.labels(result).inc()
        )

        def led(leads: bool) -> None:
            self.instruments.leads.set(int(leads))

        return Scheduler(self.leadership(), watch, courier, self.clock, self.alarm(), led)

    @functools.cached_property
    def instruments(self) -> Instruments:
        """The metrics of this process."""
        from autotuner.telemetry.metrics import Instruments  # noqa: PLC0415 - most commands count nothing

        return Instruments()

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
        issuer=issuer,
        leases=traced(PostgresLeases(engine), "database"),
        nights=traced(PostgresNights(engine), "database"),
        outbox=traced(PostgresOutbox(engine), "database"),
        leadership=lambda: PostgresLeadership(database_url(settings)),
        alarm=lambda: alarm_on(engine),
        clock=clock,
        pools=pools_of(settings),
        ticks=ticks_of(settings),
        worlds=lambda target: world_of(target, clock, secrets, access_of(settings)),
        observers=lambda target, at: target_observer(target, at, secrets),
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

"""The doors to a target: which adapter reads, counts, loads and routes for it, by what its file says.

Each is imported when the first target needs it: most commands just look into the database.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from autotuner.adapters.clock import SystemClock
from autotuner.diagnosing import Deployment, ServerPlace, deployment_of
from autotuner.domain.pbtxt import config_pbtxt
from autotuner.domain.sources import JAEGER, OTLP
from autotuner.domain.study import StudyPlan
from autotuner.domain.target import Replica, Target
from autotuner.errors import InvalidInput
from autotuner.instruments.triton import Backlog
from autotuner.ports import (
    Clock,
    MetricsSource,
    Observer,
    Proposer,
    ReceivedSpans,
    ServerApi,
    Traces,
    World,
)
from autotuner.secret_shelf import SecretShelf
from autotuner.settings import Settings
from autotuner.telemetry.traces import traced

if TYPE_CHECKING:
    from autotuner.adapters.kubernetes import Cluster
    from autotuner.adapters.prometheus import PrometheusMetrics
    from autotuner.adapters.scrape import ScrapedMetrics
    from autotuner.adapters.scrape.observer import Counted as ByServer
    from autotuner.adapters.scrape.reading import Access
    from autotuner.domain.needs import Check

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
    target: Target,
    clock: Clock,
    secrets: SecretShelf = NO_SECRETS,
    cluster: ClusterAccess = USUAL_ACCESS,
    received: ReceivedSpans | None = None,
) -> World:
    """Return the doors to a target: Triton, the gateway, whoever counts, and the canary on Kubernetes.

    secrets: what its metrics server or its trace store may need. cluster: how its API server is reached. received: the
    spans that were sent to this service. Raises InvalidInput.
    """
    traces = traces_of(target, clock, secrets, received)
    if target.workload is not None:
        world = _world_on_kubernetes(target, clock, secrets, cluster)
        return traced_world(replace(world, traces=traces))
    from autotuner.adapters.envoy import EnvoyRoute  # noqa: PLC0415 - half a second of importing, all of these
    from autotuner.adapters.triton import TritonServing  # noqa: PLC0415

    metrics = metrics_of(target, clock, secrets)
    return traced_world(World(TritonServing(target), EnvoyRoute(target), metrics, traces=traces))


def traced_world(world: World) -> World:
    """Return the doors to a target with each call a span, while tracing is on."""
    return replace(
        world,
        serving=traced(world.serving, "triton"),
        route=traced(world.route, "gateway"),
        metrics=traced(world.metrics, "metrics"),
        canary=None if world.canary is None else traced(world.canary, "canary"),
        traces=None if world.traces is None else traced(world.traces, "traces"),
    )


def traces_of(
    target: Target, clock: Clock, secrets: SecretShelf, received: ReceivedSpans | None
) -> Traces | None:
    """Return who has the spans of a target's requests; None where nobody is asked."""
    if target.traces is None:
        return None
    from autotuner.adapters.tracing import JaegerTraces, SentTraces, TempoTraces  # noqa: PLC0415 - few are traced

    if target.traces.kind == OTLP:
        return SentTraces(target, received)
    if target.traces.kind == JAEGER:
        return JaegerTraces(target, secrets, clock)
    return TempoTraces(target, secrets, clock)


def metrics_of(
    target: Target, clock: Clock, secrets: SecretShelf = NO_SECRETS
) -> ScrapedMetrics | PrometheusMetrics:
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
    """What counts for one target, outside any study.

    every_seconds: how often it says that things are scraped. backlogs: what servers said at the newest sample of
    requests that they have not answered well.
    """

    source: MetricsSource
    clock: Clock
    every_seconds: Callable[[], Mapping[str, float]] = dict
    backlogs: Callable[[], Mapping[str, Backlog]] = dict


def counted_by(target: Target, settings: Settings) -> Counted:
    """Return what counts for a target, without a database. Raises InvalidInput."""
    from autotuner.adapters.prometheus import PrometheusMetrics  # noqa: PLC0415

    clock = SystemClock()
    secrets = secrets_of(settings)
    if target.workload is not None:
        return Counted(world_of(target, clock, secrets, access_of(settings)).metrics, clock)
    source = metrics_of(target, clock, secrets)
    if isinstance(source, PrometheusMetrics):
        return Counted(source, clock, lambda: source.watch.every_seconds, lambda: source.backlogs)
    return Counted(source, clock, backlogs=lambda: source.backlogs)


def secrets_of(settings: Settings) -> SecretShelf:
    """Return the secrets that targets may name."""
    return SecretShelf.read(settings.secrets.get_secret_value(), settings.secrets_directory)


def target_observer(
    target: Target, clock: Clock, secrets: SecretShelf = NO_SECRETS, cluster: ClusterAccess = USUAL_ACCESS
) -> Observer:
    """Return what looks at a target for a diagnosis; its pods are found now. Raises Refused, Unavailable, NotFound."""
    if target.workload is None:
        return observer_of(deployment_of(target), clock, secrets)
    api = cluster_of(cluster)
    from autotuner.adapters.kubernetes import ready_pods, route_seen  # noqa: PLC0415 - an extra

    return observer_of(
        deployment_of(target, ready_pods(api, target), route_seen(api, target)), clock, secrets
    )


def observer_of(deployment: Deployment, clock: Clock, secrets: SecretShelf = NO_SECRETS) -> Observer:
    """Return what looks at a deployment for a diagnosis; secrets: what its metrics server may need.

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
    counted = _counted(deployment, secrets, clock)
    return Observer(servers, clock, deployment.model, gateway, access, counted, deployment.route)


def _counted(deployment: Deployment, secrets: SecretShelf, clock: Clock) -> ByServer | None:
    """Who counts for the gateway and for the servers."""
    if deployment.counted_by is None:
        return None
    from autotuner.adapters.prometheus import Measured, PrometheusPages  # noqa: PLC0415 - half a second of importing
    from autotuner.adapters.scrape.observer import Counted as ByServer  # noqa: PLC0415

    servers = tuple(
        Replica(place.name, place.url, place.metrics_url, pod=place.pod) for place in deployment.servers
    )
    measured = Measured(deployment.model, servers, {name: name for name in deployment.clusters})
    pages = PrometheusPages(measured, deployment.counted_by, secrets, clock)
    return ByServer(pages, deployment.clusters)


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
    from autotuner.adapters.triton import TritonServing  # noqa: PLC0415

    cluster = cluster_of(access)
    whereabouts = Whereabouts(cluster, target, clock)
    route = KubernetesRoute(cluster, target)
    production = Production(cluster, target, clock, config_pbtxt)
    return World(
        LocatedServing(whereabouts, production, TritonServing),
        route,
        LocatedMetrics(whereabouts, lambda located: metrics_of(located, clock, secrets), clock),
        KubernetesCanary(cluster, target, route, clock),
        whereabouts,
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


def preflight_of(target: Target, settings: Settings) -> tuple[Check, ...]:
    """Return what a study of a target on Kubernetes would find; nothing is changed. Raises NotFound, Refused."""
    cluster = cluster_of(access_of(settings))
    from autotuner.adapters.kubernetes import survey  # noqa: PLC0415 - an extra

    return survey(cluster, target)

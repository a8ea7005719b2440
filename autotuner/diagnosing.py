"""The use case of a diagnosis: look, wait, look again, and put together what was seen. Nothing is written anywhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from urllib.parse import urlsplit

from autotuner.domain.findings.diagnosis import Diagnosis, diagnosis
from autotuner.domain.findings.prediction import Wish
from autotuner.domain.findings.reading import Look, RouteSeen
from autotuner.domain.findings.scene import Scene
from autotuner.domain.findings.window import gather
from autotuner.domain.provenance import Provenance
from autotuner.domain.sources import Instrumentation
from autotuner.domain.target import Replica, Target
from autotuner.errors import InvalidInput, Unavailable
from autotuner.ports import Clock, Observer

LOOK_INTERVAL = timedelta(milliseconds=250)
"""Between two looks: short enough to see bursts, and four small pages a second from each server."""

USUAL = timedelta(seconds=45)
"""How long a diagnosis looks where nobody says: with reading, predicting and drawing it is there within a minute."""

SHORTEST, LONGEST = timedelta(seconds=2), timedelta(hours=1)
LENGTH_ALLOWED = "a duration from 2s to 1h"

MOST_FAILURES = 4
"""Looks in a row that may fail: a server that restarts is back within a second or so, or is gone."""

Wait = Callable[[timedelta], object]


@dataclass(frozen=True)
class ServerPlace:
    """One Triton. url: http(s):// or grpc(s):// with host and port; metrics_url: of its metrics page; pod: its name."""

    name: str
    url: str
    metrics_url: str
    pod: str = ""


@dataclass(frozen=True)
class Deployment:
    """What is looked at, and how it is reached.

    model: empty for the busiest one. gateway_url: an Envoy's admin address, empty for none; clusters: its names for
    the servers, none for all. headers: sent with every question. authorities: path of a PEM file, empty for the usual
    ones. counted_by: the metrics server that counts instead of the gateway and the servers' metrics pages. route:
    what is known of it already.
    """

    servers: tuple[ServerPlace, ...]
    model: str = ""
    gateway_url: str = ""
    clusters: tuple[str, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    authorities: str = ""
    counted_by: Instrumentation | None = None
    route: RouteSeen | None = None


def deployment_of(target: Target, pods: Sequence[Replica] = (), route: RouteSeen | None = None) -> Deployment:
    """Return a target's stable replicas and its gateway, or who counts for it, as a deployment to look at.

    pods: where the replicas are on Kubernetes; route: what is known of it.
    """
    servers = tuple(
        ServerPlace(replica.name, replica.http_url, _page(replica.metrics_url), replica.pod)
        for replica in pods or target.stable
    )
    backends = target.backends(target.stable_names)
    clusters = tuple(target.gateway.cluster(backend) for backend in backends)
    gateway = "" if target.metrics is not None else target.gateway.admin_url
    return Deployment(servers, target.model, gateway, clusters, counted_by=target.metrics, route=route)


def _page(url: str) -> str:
    return url if urlsplit(url).path.strip("/") else f"{url.rstrip('/')}/metrics"


@dataclass(frozen=True)
class Asked:
    """What a diagnosis is asked: the p99 that clients were promised, how long to look, and what tuning is to bring."""

    ceiling_seconds: float
    length: timedelta = USUAL
    wish: Wish = field(default_factory=Wish)

    def __post_init__(self) -> None:
        if not SHORTEST <= self.length <= LONGEST:
            raise InvalidInput("--for", f"{self.length.total_seconds():g}s", LENGTH_ALLOWED)
        if not 0.0 < self.ceiling_seconds <= 600.0:
            raise InvalidInput("--p99", f"{self.ceiling_seconds:g}s", "a duration above 0, up to 10m")


def diagnose(observer: Observer, clock: Clock, wait: Wait, asked: Asked) -> Diagnosis:
    """Look at a deployment for as long as was asked and return the diagnosis.

    Raises what `Observer.facts` raises; Unavailable when no server could be read for a while.
    """
    facts = observer.facts()
    looks = looked(observer, clock, wait, asked.length)
    window = gather(looks, facts.model)
    if not window.replicas:
        raise Unavailable("triton", "no server could be read at the beginning and at the end of the window")
    scene = Scene(asked.ceiling_seconds, window, facts)
    return diagnosis(scene, looks[-1].at, LOOK_INTERVAL, asked.wish)


def runs(found: Diagnosis) -> dict[str, Provenance]:
    """Return what each server that was looked at runs, as far as it told."""
    facts = found.scene.facts
    return {
        name: Provenance(facts.model_versions.get(name, ()), facts.versions.get(name, ""))
        for name in {**facts.versions, **facts.model_versions}
    }


def looked(observer: Observer, clock: Clock, wait: Wait, length: timedelta) -> list[Look]:
    """Return looks over a window, at least two. A look that fails is left out; a row of them raises Unavailable."""
    looks = [observer.look()]
    failures, due, end = 0, looks[0].at + LOOK_INTERVAL, looks[0].at + length
    while due < end:
        wait(max(timedelta(0), due - clock.now()))
        due = max(due + LOOK_INTERVAL, clock.now())
        try:
            looks.append(observer.look())
            failures = 0
        except Unavailable:
            failures += 1
            if failures > MOST_FAILURES:
                raise
    wait(max(timedelta(0), end - clock.now()))
    looks.append(observer.last_look())
    return looks

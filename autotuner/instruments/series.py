"""Which series belong to a target: the selectors that are asked for, and the labels that single out each replica."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from autotuner.domain.sources import Instrumentation, Labels
from autotuner.domain.target import Replica, Target
from autotuner.instruments import devices, triton
from autotuner.instruments.presets import Preset
from autotuner.instruments.promql import selector

SERVER_LABELS: Labels = (("instance", "{address}"),)
"""What Prometheus calls a server that nobody named otherwise."""

TRITON_OWN_LABELS = frozenset(
    {"__name__", "le", "model", "version", "gpu_uuid", "quantile", "reason", "gpu", "device"}
)


@dataclass(frozen=True)
class Measured:
    """What is counted. backends: what the gateway's statistics call each backend; empty where no gateway is read."""

    model: str
    servers: tuple[Replica, ...]
    backends: Mapping[str, str]

    @classmethod
    def of(cls, target: Target) -> Measured:
        """Everything of a target; a replica without an address is a pod that does not run, and has no series."""
        backends = target.backends(replica.name for replica in target.replicas)
        there = tuple(replica for replica in target.replicas if replica.metrics_url)
        return cls(target.model, there, {b: target.gateway.cluster(b) for b in backends})


class TargetSeries:
    """The series of one target: at the gateway by backend, of the servers by replica. more: names of theirs beside."""

    def __init__(
        self, measured: Measured, plan: Instrumentation, preset: Preset, more: Collection[str] = ()
    ) -> None:
        self._plan = plan
        self._preset = preset
        self._more = frozenset(more)
        gateway = plan.gateway or tuple(preset.replica.items())
        self.gateway = {b: _filled(gateway, {"{name}": name}) for b, name in measured.backends.items()}
        self.servers = {r.name: _filled(plan.server or SERVER_LABELS, _places(r)) for r in measured.servers}

    @property
    def doors(self) -> tuple[str, ...]:
        """Everything that is absent when nothing can be read: the gateway, its backends, and the servers."""
        return tuple(dict.fromkeys(("gateway", *self.gateway, *self.servers)))

    @property
    def server_names(self) -> frozenset[str]:
        """Names of the samples wanted of a server."""
        of_the_machine = devices.CPU_WANTED if self._plan.device == devices.CPU else frozenset[str]()
        return triton.WANTED | self._more | of_the_machine

    def gateway_selector(self, names: Collection[str]) -> str:
        """Return the selector of samples at the gateway, of all replicas."""
        common = [*self._plan.labels, *self._preset.reading.match]
        return selector(names, {**_values(self.gateway.values()), **_single(common)})

    def server_selector(self, names: Collection[str]) -> str:
        """Return the selector of samples of the servers."""
        return selector(names, {**_values(self.servers.values()), **_single(self._plan.labels)})

    def device_selectors(self, uuids: Collection[str]) -> dict[str, str]:
        """Return selectors of DCGM's series: of the devices with `uuids`, and of the replicas' pods."""
        pods = [labels["pod"] for labels in self.servers.values() if "pod" in labels]
        found = {}
        if uuids:
            found["UUID"] = selector(devices.DCGM_WANTED, {"UUID": uuids})
        if pods:
            found |= {name: selector(devices.DCGM_WANTED, {name: pods}) for name in devices.POD_LABELS}
        return found

    def own_labels(self) -> frozenset[str]:
        """Return the labels that a gateway itself gives its series, and those that single out a replica."""
        return self._preset.own_labels | {label for labels in self.gateway.values() for label in labels}


def belongs(labels: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    """Whether a series has all the wanted labels."""
    return all(labels.get(name) == value for name, value in wanted.items())


def _filled(template: Labels, values: Mapping[str, str]) -> dict[str, str]:
    """The labels of one replica. Only the placeholders are replaced; whatever else is in braces stays."""
    return {label: _replaced(text, values) for label, text in template}


def _places(replica: Replica) -> dict[str, str]:
    """What the placeholders of a server's labels stand for."""
    place = urlsplit(replica.metrics_url)
    return {
        "{name}": replica.name,
        "{host}": place.hostname or "",
        "{port}": str(place.port or ""),
        "{address}": place.netloc,
        "{pod}": replica.pod,
    }


def _replaced(text: str, values: Mapping[str, str]) -> str:
    for placeholder, value in values.items():
        text = text.replace(placeholder, value)
    return text


def _values(every: Iterable[Mapping[str, str]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for labels in every:
        for label, value in labels.items():
            found.setdefault(label, []).append(value)
    return found


def _single(labels: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    return {label: [value] for label, value in labels}

"""What is asked about one target: of its gateway's histogram, by preset, in production and on the canary."""

from __future__ import annotations

import re
from collections.abc import Iterable

from autotuner.domain.sources import Instrumentation, PrometheusServer
from autotuner.instruments import devices
from autotuner.instruments.presets import Preset, preset_of
from autotuner.instruments.promql import quoted
from autotuner.target_file import TargetFile

SPECIAL = re.compile(r"[\\.+*?()|\[\]{}^$]")
TRITON_USED, TRITON_TOTAL = "nv_gpu_memory_used_bytes", "nv_gpu_memory_total_bytes"


class TargetQueries:
    """What is asked about one target: its gateway's histogram by preset, its servers' counters."""

    def __init__(self, asked: TargetFile) -> None:
        self.target = asked.target()
        self.name = self.target.name
        self._plan = self.target.metrics or Instrumentation(PrometheusServer("http://prometheus:9090"))
        self._preset: Preset = preset_of(self._plan)
        self.ceiling_seconds = asked.slo.p99_ms / 1000
        pace = asked.study.made_pace()
        self.longest_study = pace.study_limit + pace.restore_limit

    def replicas(self, names: Iterable[str]) -> str:
        """Return matchers of the gateway's series of replicas."""
        template = dict(self._plan.gateway) or dict(self._preset.replica)
        clusters = [self.target.gateway.cluster(backend) for backend in self.target.backends(names)]
        told = {
            label: "|".join(SPECIAL.sub(r"\\\g<0>", text.replace("{name}", name)) for name in clusters)
            for label, text in template.items()
        }
        common = [*self._plan.labels, *self._preset.reading.match]
        return ",".join([*_equal(common), *(f"{label}=~{quoted(value)}" for label, value in told.items())])

    @property
    def model(self) -> str:
        """Matchers of the servers' series of the target's model."""
        return ",".join(_equal([*self._plan.labels, ("model", self.target.model)]))

    @property
    def memory(self) -> tuple[str, str] | None:
        """What asks for used and for total device memory in bytes; None where nothing tells it."""
        device, common = self._plan.device, "{" + ",".join(_equal(self._plan.labels)) + "}"
        if device == devices.NONE:
            return None
        if device == devices.DCGM:
            used, free = devices.DCGM_USED + common, devices.DCGM_FREE + common
            return f"{used} * {devices.MIB:.0f}", f"({used} + {free}) * {devices.MIB:.0f}"
        cpu = device == devices.CPU
        used, total = (devices.CPU_USED, devices.CPU_TOTAL) if cpu else (TRITON_USED, TRITON_TOTAL)
        return used + common, total + common

    @property
    def sides(self) -> dict[str, tuple[str, ...]]:
        """Replicas of production and the canary."""
        return {"production": self.target.stable_names, "canary": (self.target.canary.name,)}

    def requests(self, names: Iterable[str], window: str) -> str:
        """Return requests a second that ended."""
        return f"sum(rate({self._family}_count{{{self.replicas(names)}}}[{window}]))"

    @property
    def load(self) -> str:
        """Requests a second of one stable replica."""
        return f"{self.recorded('target_requests:rate5m', 'production')} / {len(self.target.stable)}"

    def recorded(self, rule: str, side: str) -> str:
        """Return the series that a recording rule makes of one side."""
        return f'autotuner:{rule}{{target="{self.name}",side="{side}"}}'

    @property
    def ceiling(self) -> float:
        """The ceiling in the histogram's own unit."""
        return self.ceiling_seconds * (1e3 if self.unit == "ms" else 1.0)

    def certified(self, end: str) -> str:
        """Return the `lowest` or `highest` requests a second of a replica that its certificate covers."""
        return f'max(autotuner_certified_requests_per_second{{target="{self.name}",end="{end}"}})'

    def bad_share(self, names: Iterable[str], window: str) -> str:
        """Return the share of requests, 0 to 1, that were slower than the ceiling."""
        names = tuple(names)
        edge = self._preset.reading.labels_for(self.ceiling_seconds)[0]
        within = f'{self._family}_bucket{{{self.replicas(names)},le=~"{edge:g}(\\\\.0)?"}}'
        return f"1 - sum(rate({within}[{window}])) / {self.requests(names, window)}"

    def quantile(self, names: Iterable[str], share: float) -> str:
        """Return a latency quantile in the histogram's own unit."""
        buckets = f"{self._family}_bucket{{{self.replicas(names)}}}"
        return f"histogram_quantile({share:g}, sum by (le) (rate({buckets}[5m])))"

    @property
    def unit(self) -> str:
        """The histogram's unit, as Grafana names it."""
        return "ms" if self._preset.reading.labels_for(1.0)[-1] >= 10 else "s"

    @property
    def _family(self) -> str:
        return self._preset.reading.latency.removesuffix("_bucket")


def _equal(labels: Iterable[tuple[str, str]]) -> list[str]:
    return [f"{label}={quoted(value)}" for label, value in labels]

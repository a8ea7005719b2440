"""What is asked about one target: of its gateway's histogram, by preset, in production and on the canary."""

from __future__ import annotations

from collections.abc import Iterable

from autotuner.domain.sources import Instrumentation, PrometheusServer
from autotuner.instruments.presets import Preset, preset_of
from autotuner.target_file import TargetFile


class TargetQueries:
    """What is asked about one target: its gateway's histogram by preset, its servers' counters."""

    def __init__(self, asked: TargetFile) -> None:
        self.target = asked.target()
        self.name = self.target.name
        self._plan = self.target.metrics or Instrumentation(PrometheusServer("http://prometheus:9090"))
        self._preset: Preset = preset_of(self._plan)
        self.ceiling_seconds = asked.slo.p99_ms / 1000

    def replicas(self, names: Iterable[str]) -> str:
        """Return matchers of the gateway's series of replicas."""
        template = dict(self._plan.gateway) or dict(self._preset.replica)
        clusters = [self.target.gateway.cluster(backend) for backend in self.target.backends(names)]
        told = {
            label: "|".join(text.replace("{name}", name).replace(".", r"\\.") for name in clusters)
            for label, text in template.items()
        }
        common = [*self._plan.labels, *self._preset.reading.match]
        return ",".join([*(f'{k}="{v}"' for k, v in common), *(f'{k}=~"{v}"' for k, v in told.items())])

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
        recorded = f'autotuner:target_requests:rate5m{{target="{self.name}",side="production"}}'
        return f"{recorded} / {len(self.target.stable)}"

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

"""A target whose counters are what its weights and the passing time make them: cheap, so that many may run at once."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from datetime import datetime, timedelta

from autotuner.domain.configuration import ModelConfig
from autotuner.domain.measurement import GatewayCounters, Sample, ServerCounters
from autotuner.domain.provenance import UNKNOWN, Provenance
from autotuner.domain.study import Proposal, SearchOver, Study, TrialKind
from autotuner.domain.target import Target
from autotuner.ports import Clock, World
from tests.builders import EDGES_SECONDS, a_configuration, a_model_config

REQUESTS_PER_SECOND = 300.0
SLOW_SHARE = 0.003


class ArithmeticTarget:
    """A target whose counters are what its weights and the passing time make them: no request is simulated."""

    def __init__(self, target: Target, clock: Clock) -> None:
        self._clock = clock
        self._names = [replica.name for replica in target.replicas]
        self._configs: dict[str, ModelConfig] = {name: a_model_config() for name in self._names}
        self._weights = {name: 0 if name == "canary" else 500 for name in self._names}
        self._requests = dict.fromkeys(self._names, 0.0)
        self._since = clock.now()
        self._lock = threading.Lock()

    def world(self) -> World:
        """The three doors."""
        return World(serving=self, route=self, metrics=self, at_hand=True)

    def model_config(self, replica: str) -> ModelConfig:
        return self._configs[replica]

    def is_ready(self, replica: str) -> bool:
        return replica in self._configs

    def provenance(self, replica: str) -> Provenance:
        return UNKNOWN

    def load(self, replica: str, config: ModelConfig, limit: timedelta) -> None:
        self._configs[replica] = config

    def weights(self) -> Mapping[str, int]:
        return dict(self._weights)

    def set_weights(self, weights: Mapping[str, int]) -> None:
        with self._lock:
            self._pass(self._clock.now())
            self._weights = dict(weights)

    def sample(self) -> Sample:
        with self._lock:
            now = self._clock.now()
            self._pass(now)
            counts = {name: int(requests) for name, requests in self._requests.items()}
        gateway = {name: _gateway(count) for name, count in counts.items()}
        return Sample(now, EDGES_SECONDS, gateway, {name: _server(count) for name, count in counts.items()})

    def _pass(self, now: datetime) -> None:
        seconds, total = (now - self._since).total_seconds(), sum(self._weights.values())
        for name, weight in self._weights.items():
            self._requests[name] += REQUESTS_PER_SECOND * seconds * weight / total
        self._since = now


def _gateway(count: int) -> GatewayCounters:
    fast = count - int(SLOW_SHARE * count)
    buckets = tuple(0 if edge < 0.02 else fast if edge < 0.2 else count for edge in EDGES_SECONDS)
    return GatewayCounters(count, count, 0, 0, buckets, 0.02 * count)


def _server(count: int) -> ServerCounters:
    runs = count // 4
    return ServerCounters(count, 0, count, runs, 0.005 * count, 0.0005 * count, 0.009 * count, 0.0005 * count)


class InTurn:
    """Proposes one delay after another, for as long as it is asked."""

    def propose(self, study: Study) -> Proposal | SearchOver:
        """Return the next delay."""
        tried = sum(trial.kind is TrialKind.CANDIDATE for trial in study.trials)
        return Proposal(a_configuration(max_queue_delay_microseconds=500 * (tried + 1)), "in turn", "bench")

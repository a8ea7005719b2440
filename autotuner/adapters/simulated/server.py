"""One simulated Triton server: model control, and the counters it would report.

Loads take effect after the profile's load time: until then the old version serves and is read back, and the
server stays ready, as the real one does.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np

from autotuner.adapters.simulated.batcher import Batcher, Finished
from autotuner.adapters.simulated.profile import SimulatedProfile
from autotuner.domain.configuration import Configuration, ModelConfig, read_configuration
from autotuner.domain.measurement import BatchTiming, ServerCounters
from autotuner.errors import AutotunerError, Refused, Unavailable


class Server:
    """One server. Methods that take `at` (seconds) expect that the simulation has run up to that instant."""

    def __init__(
        self, name: str, model: str, profile: SimulatedProfile, seed: np.random.SeedSequence
    ) -> None:
        batching, failing = seed.spawn(2)
        self.name = name
        self.up = True
        self.process = 1
        """Number of the process: grows with every start."""
        self.repository = complete_config(model, profile.incumbent)
        """The configuration a restarted server comes back with."""
        self.refuses = ""
        """Words in which every load is refused; empty when loads are accepted."""
        self.hangs = False
        """Whether an accepted load never becomes effective."""
        self.model_versions: tuple[str, ...] = ("1",)
        self.triton = "2.51.0"
        self.memory_taken_bytes = 0.0
        """Device memory that something else occupies."""
        self.batcher = Batcher(profile, profile.incumbent, batching)
        self._profile = profile
        self._failing = np.random.default_rng(failing)
        self._config = self.repository
        self._configuration = profile.incumbent
        self._loading: Configuration | None = None
        self._tally = _Tally()

    @property
    def config(self) -> dict[str, Any]:
        """The complete configuration served now, in the server's spelling."""
        return copy.deepcopy(self._config)

    def require_up(self) -> None:
        """Raise Unavailable when nobody listens."""
        if not self.up:
            raise Unavailable(f"triton {self.name}", "connection refused")

    def accept(self, config: ModelConfig) -> dict[str, Any]:
        """Return `config` as the server would report it once loaded. Raises Refused, Unavailable."""
        self.require_up()
        refusal = f"{self.name} refused to load the model:"
        if self.refuses:
            raise Refused(f"{refusal} {self.refuses}")
        spelled = _as_reported(config)
        try:
            configuration = read_configuration(spelled)
        except AutotunerError as error:
            raise Refused(f"{refusal} failed to poll from model repository: {error}") from error
        needed = self._memory_bytes(configuration, self._configuration)
        if needed > self._profile.device_memory_bytes:
            raise Refused(f"{refusal} {needed / 1e6:.0f} MB are needed while both versions are in memory")
        self._loading = configuration
        return spelled

    def serve(self, config: ModelConfig, at: float) -> None:
        """Serve with `config` from `at` on: statistics per batch size start again, the other counters go on."""
        self._config = _as_reported(config)
        self._configuration = read_configuration(self._config)
        self._loading = None
        self._tally.batches.clear()
        self.batcher.serve(self._configuration, at, cold=True)

    def crash(self) -> int:
        """End the process; return how many requests of the gateway were lost in it."""
        self.up = False
        self._loading = None
        return self.batcher.drop_all()

    def start(self, at: float) -> None:
        """Come back after a crash, with the repository's configuration and counters at zero."""
        self.up = True
        self.process += 1
        self._tally = _Tally()
        self.serve(self.repository, at)

    def count(self, finished: Finished) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Count what was done; return which of the requests failed, shape (n,)."""
        if self._profile.error_ratio:
            failed = self._failing.random(len(finished.done)) < self._profile.error_ratio
        else:
            failed = np.zeros(len(finished.done), dtype=np.bool_)
        self._tally.add(finished, int(failed.sum()))
        return failed

    def counters(self) -> ServerCounters:
        """Return what the server would report now."""
        device = self._profile.reports_device
        used = self._memory_bytes(self._configuration, self._loading)
        return self._tally.counters(
            model_versions=self.model_versions,
            memory_used_bytes=used if device else None,
            memory_total_bytes=self._profile.device_memory_bytes if device else None,
            device_busy_seconds=self._tally.busy_seconds if device else None,
        )

    def _memory_bytes(self, *versions: Configuration | None) -> float:
        instances = sum(version.instance_count for version in versions if version is not None)
        return self.memory_taken_bytes + instances * self._profile.instance_memory_bytes


class _Tally:
    """Sums over everything one server process has executed."""

    def __init__(self) -> None:
        self.succeeded = self.failed = self.executions = 0
        self.queue_seconds = self.input_seconds = self.infer_seconds = self.busy_seconds = 0.0
        self.batches: dict[int, tuple[int, float]] = {}

    def add(self, finished: Finished, failed: int) -> None:
        self.failed += failed
        self.succeeded += len(finished.done) - failed
        self.executions += len(finished.batches)
        self.queue_seconds += float(finished.queued.sum())
        for batch in finished.batches:
            self.input_seconds += batch.size * batch.transfer
            self.infer_seconds += batch.size * (batch.waited + batch.compute)
            self.busy_seconds += batch.compute
            count, seconds = self.batches.get(batch.size, (0, 0.0))
            self.batches[batch.size] = (count + 1, seconds + batch.done - batch.started)

    def counters(
        self,
        model_versions: tuple[str, ...],
        memory_used_bytes: float | None,
        memory_total_bytes: float | None,
        device_busy_seconds: float | None,
    ) -> ServerCounters:
        return ServerCounters(
            succeeded=self.succeeded,
            failed=self.failed,
            inferences=self.succeeded,
            executions=self.executions,
            queue_seconds=self.queue_seconds,
            input_seconds=self.input_seconds,
            infer_seconds=self.infer_seconds,
            output_seconds=0.0,
            batches=tuple(BatchTiming(size, *self.batches[size]) for size in sorted(self.batches)),
            model_versions=model_versions,
            memory_used_bytes=memory_used_bytes,
            memory_total_bytes=memory_total_bytes,
            device_busy_seconds=device_busy_seconds,
        )


def complete_config(model: str, configuration: Configuration) -> dict[str, Any]:
    """Return a complete model configuration with the tuned fields of `configuration`, in the server's spelling."""
    return _as_reported(
        {
            "name": model,
            "platform": "",
            "backend": "python",
            "version_policy": {"latest": {"num_versions": 1}},
            "max_batch_size": configuration.max_batch_size,
            "input": [{"name": "INPUT", "data_type": "TYPE_FP32", "dims": ["16"]}],
            "output": [{"name": "OUTPUT", "data_type": "TYPE_FP32", "dims": ["1"]}],
            "dynamic_batching": {
                "preferred_batch_size": list(configuration.preferred_batch_size),
                "max_queue_delay_microseconds": configuration.max_queue_delay_microseconds,
            },
            "instance_group": [
                {"name": f"{model}_0", "kind": "KIND_CPU", "count": configuration.instance_count}
            ],
            "parameters": {},
        }
    )


def _as_reported(config: Mapping[str, Any]) -> dict[str, Any]:
    """64-bit integers as text, no preferred sizes as the largest batch, zero instances as one."""
    spelled = copy.deepcopy(dict(config))
    batcher = spelled.get("dynamic_batching")
    if isinstance(batcher, dict):
        batcher["max_queue_delay_microseconds"] = str(batcher.get("max_queue_delay_microseconds", 0))
        if not batcher.get("preferred_batch_size"):
            batcher["preferred_batch_size"] = [spelled.get("max_batch_size", 0)]
    for group in spelled.get("instance_group", []):
        group["count"] = group.get("count") or 1
    return spelled

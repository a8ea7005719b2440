"""A workload file as a question to the batcher's model: what would every configuration do? Nothing is started."""

from __future__ import annotations

from itertools import islice

import numpy as np

from autotuner.batching.arrivals import Intensity, learn
from autotuner.batching.frontier import Question, Replica
from autotuner.batching.trials import Aim, Floats
from autotuner.domain.configuration import Configuration
from autotuner.domain.memory import MemoryModel
from autotuner.domain.prediction import setting_of
from autotuner.domain.selection import TIE
from autotuner.domain.space import MARGIN_SHARE, combinations, veto
from autotuner.domain.target import Objective
from autotuner.errors import InvalidInput
from autotuner.sandbox.arrivals import Poisson, offsets
from autotuner.sandbox.workload import ModelKind, Workload

PRODUCTION_REPLICAS = 2
"""Stable replicas of the local stack, between which production's traffic is divided."""

BACKEND_SECONDS = 0.0018
"""What Triton's Python backend adds to every batch; instances overlap there. From p99 of the real server."""

GATEWAY_SECONDS = 0.001
"""What a request spends outside the server's queue and compute."""

RECORDED_REQUESTS = 60_000
"""Requests of the described arrivals that their bursts are learnt from."""

RATE_ALLOWED = "requests per second on one replica, above 0, up to 100000"


def question_of(workload: Workload, rate: float | None, objective: Objective | None, seed: int) -> Question:
    """Return the question that a workload file asks.

    rate: today's on one replica, None for the file's divided between production's replicas. objective: None for the
    file's. Raises InvalidInput for a rate that is not possible, and for a model without a batch curve.
    """
    if rate is not None and not 0.0 < rate <= 100_000.0:
        raise InvalidInput("--rate", rate, RATE_ALLOWED)
    if workload.model is not ModelKind.EMULATED_GPU or workload.batch_latency_ms is None:
        allowed = "a workload of model: emulated-gpu, whose file has the batch_latency_ms to predict from"
        raise InvalidInput("workload", f"{workload.name} (model: {workload.model})", allowed)
    aim = Aim((objective or workload.study_settings().objective).value)
    configurations = worth_asking(workload)
    return Question(
        settings=tuple(setting_of(one) for one in configurations),
        incumbent=setting_of(workload.incumbent_configuration()),
        replica=replica_of(workload),
        intensity=intensity_of(workload, seed),
        rate_per_second=rate or workload.traffic.requests_per_second / PRODUCTION_REPLICAS,
        ceiling_seconds=workload.slo.p99_ms / 1e3,
        aim=aim,
        tie=TIE,
        seed=seed,
    )


def worth_asking(workload: Workload) -> tuple[Configuration, ...]:
    """Return the search space without what memory or the ceiling forbid, the incumbent always among it, sorted."""
    incumbent, ceiling = workload.incumbent_configuration(), workload.slo.p99_ms / 1e3
    limits = workload.search_limits()
    curve_ms = workload.batch_latency_ms or {1: 0.0}
    least = (curve_ms[1] + (workload.transfer_ms_per_item or 0.0)) / 1e3
    each, device = workload.instance_memory_mb or 0.0, workload.device_memory_mb or 0.0
    memory = MemoryModel(0.0, 1e6 * each, 1e6 * device, ())
    return tuple(
        one
        for one in combinations(limits, ceiling, incumbent).candidates
        if one == incumbent
        or not (
            veto(one, ceiling, least, MARGIN_SHARE * ceiling)
            or memory.refusal(one.instance_count, limits.memory_headroom)
            or memory.reload_fits(incumbent.instance_count, one.instance_count)
        )
    )


def replica_of(workload: Workload) -> Replica:
    """Return the emulated device: transfer overlaps, compute is exclusive, linear between the file's points."""
    points = sorted((workload.batch_latency_ms or {}).items())
    sizes = np.arange(workload.max_batch_size + 1, dtype=np.float64)
    compute: Floats = np.interp(sizes, [n for n, _ in points], [ms / 1e3 for _, ms in points])
    alone = BACKEND_SECONDS + (workload.transfer_ms_per_item or 0.0) / 1e3 * sizes + compute
    return Replica(alone, compute / alone, GATEWAY_SECONDS, workload.jitter_sigma)


def intensity_of(workload: Workload, seed: int) -> Intensity:
    """Return how the rate changes over time; a replica gets its share of every moment's requests."""
    process = workload.traffic.process()
    if isinstance(process, Poisson):
        return Intensity(1.0, np.ones(1))
    return learn(np.array(list(islice(offsets(process, seed=seed), RECORDED_REQUESTS))))

"""The product's safety filter, as far as a benchmark has what it rests on: the analytic veto of `domain.space`.

Memory is not modelled here. What is known of compute comes from the incumbent's trial, as in the product.
"""

from __future__ import annotations

from autotuner.batching.trials import History, Problem, Setting
from autotuner.domain.configuration import Configuration
from autotuner.domain.measurement import ServerUse
from autotuner.domain.space import MARGIN_SHARE, least_compute_seconds, veto


def admissible(problem: Problem, history: History) -> tuple[Setting, ...]:
    """Return the candidates that the veto leaves, tried ones included."""
    use = _incumbents_use(problem, history)
    return tuple(candidate for candidate in problem.candidates if not _vetoed(problem, candidate, use))


def _vetoed(problem: Problem, candidate: Setting, use: ServerUse | None) -> bool:
    configuration = _configuration(candidate)
    measured = _configuration(problem.incumbent)
    compute = least_compute_seconds(configuration, measured, use) if use else 0.0
    ceiling = problem.ceiling_seconds
    return veto(configuration, ceiling, compute, MARGIN_SHARE * ceiling) is not None


def _configuration(setting: Setting) -> Configuration:
    return Configuration(
        round(setting.delay_seconds * 1e6), setting.preferred, setting.instances, setting.max_batch_size
    )


def _incumbents_use(problem: Problem, history: History) -> ServerUse | None:
    """What the incumbent's own trial measured of the server at the lowest level."""
    first = next((tried for tried in history if tried.setting == problem.incumbent and tried.levels), None)
    if first is None:
        return None
    level = first.levels[0]
    inferences = sum(batch.size * batch.executions for batch in level.batches)
    executions = sum(batch.executions for batch in level.batches)
    weighted = sum(batch.size * batch.compute_seconds for batch in level.batches)
    return ServerUse(
        queue_seconds=level.queue_seconds,
        compute_seconds=weighted / inferences if inferences else None,
        realised_batch=inferences / executions if executions else None,
        compute_seconds_per_inference=level.busy_seconds_per_inference,
        device_utilisation=None,
        memory_used_bytes=None,
        memory_total_bytes=None,
    )

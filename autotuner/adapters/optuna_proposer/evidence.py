"""A study's records in the words of the grey-box model: the problem, and what each trial measured.

Arrivals were counted look by look; within a look they are drawn evenly, with a seed from the records, so that the
same records always give the same instants.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from autotuner.adapters.optuna_proposer.told import measured, searched
from autotuner.batching.trials import Aim, BatchCount, Floats, History, Measured, Problem, Tried
from autotuner.domain.configuration import Configuration
from autotuner.domain.hindsight import RISK
from autotuner.domain.judgement import Verdict
from autotuner.domain.prediction import setting_of
from autotuner.domain.ramp import ladder, production_level
from autotuner.domain.selection import baseline
from autotuner.domain.space import Examination
from autotuner.domain.study import Arrived, Step, Study, Trial, TrialKind
from autotuner.domain.target import Objective

MOST_ARRIVALS = 30_000
"""Arrivals drawn for one measured level: its newest looks; what more would tell is not worth simulating it."""


def problem_of(study: Study, examination: Examination, seed: int) -> Problem:
    """Return what is to be solved: candidates are what may be tried now, what was tried, and the incumbent."""
    kept = {
        *examination.admissible,
        *(trial.configuration for trial in searched(study)),
        examination.incumbent,
    }
    return Problem(
        candidates=tuple(setting_of(c) for c in examination.space.candidates if c in kept),
        incumbent=setting_of(examination.incumbent),
        ceiling_seconds=study.plan.slo.p99_ceiling_seconds,
        aim=_aim(study),
        rates=_rates(study),
        arrivals=_recording(study),
        seed=seed,
    )


def _rate(study: Study, share: float) -> float:
    """Requests per second on one replica that carries `share` of all requests."""
    return share * (study.reference_rate_per_second or 0.0)


def _aim(study: Study) -> Aim:
    """What is to be gained: what the target wants, or efficiency where the incumbent carried all the traffic there is.

    There more capacity could not be shown, and a candidate that needs less for as much is what can still be chosen.
    """
    start = baseline(study)
    limited = start is not None and start.censored
    return Aim.EFFICIENCY if limited or study.plan.target.objective is Objective.EFFICIENCY else Aim.CAPACITY


def _rates(study: Study) -> tuple[float, ...]:
    """The ladder's rates on one replica, from production's level up."""
    today = production_level(study.plan)
    return tuple(_rate(study, level.share) for level in ladder(study.plan) if level.number >= today.number)


def _recording(study: Study) -> Floats:
    """Arrivals of the last window in which production was measured; none where they were not kept."""
    looks: tuple[Arrived, ...] = ()
    for trial in study.trials:
        if trial.kind is TrialKind.PRODUCTION and trial.steps:
            looks = trial.steps[-1].arrived
    return drawn(looks, _dice(study.id, "production"))


def history_of(study: Study) -> History:
    """Return every judged trial of the search, with all levels that say something, lowest rate first."""
    return [_tried(study, trial) for trial in searched(study)]


def _tried(study: Study, trial: Trial) -> Tried:
    steps = sorted(measured(trial), key=lambda step: step.level.share)
    levels = tuple(_level(study, trial, step) for step in steps)
    predicted = trial.proposal.predicted if trial.proposal is not None else {}
    return Tried(setting_of(trial.configuration), levels, predicted.get(RISK, 0.0))


def _level(study: Study, trial: Trial, step: Step) -> Measured:
    name = f"{study.id}\n{trial.number}\n{step.level.number}\n{step.attempt}"
    return Measured(
        rate_per_second=_rate(study, step.level.share),
        arrivals=drawn(_newest(step.arrived), _dice(name, "arrivals")),
        total=step.candidate.total,
        bad=step.candidate.bad_at_most,
        accepted=step.verdict is Verdict.ACCEPT,
        p50_seconds=step.latency.p50_seconds,
        p95_seconds=step.latency.p95_seconds,
        p99_seconds=step.latency.p99_seconds,
        queue_seconds=step.use.queue_seconds if step.use else None,
        busy_seconds_per_inference=_busy_seconds(trial.configuration, step),
        batches=tuple(BatchCount(b.size, b.executions, b.compute_seconds) for b in step.batches),
    )


def _busy_seconds(configuration: Configuration, step: Step) -> float | None:
    """What the device spent on an inference; summed batch times are that only where batches do not overlap."""
    if step.use is None or (step.use.device_utilisation is None and configuration.instance_count > 1):
        return None
    return step.use.compute_seconds_per_inference


def _newest(looks: Sequence[Arrived]) -> Sequence[Arrived]:
    """The newest looks that together have no more than MOST_ARRIVALS, at least one."""
    total = 0
    for number, look in enumerate(reversed(looks)):
        total += look.sent
        if total > MOST_ARRIVALS and number > 0:
            return looks[len(looks) - number :]
    return looks


def drawn(looks: Sequence[Arrived], dice: np.random.Generator) -> Floats:
    """Return as many arrivals as each look counted, evenly spread over it at random: seconds from 0, ascending."""
    begin, parts = 0.0, [np.zeros(0)]
    for look in looks:
        parts.append(begin + look.seconds * np.sort(dice.random(max(0, look.sent))))
        begin += look.seconds
    return np.concatenate(parts)


def _dice(name: str, purpose: str) -> np.random.Generator:
    digest = hashlib.sha256(f"{purpose}\n{name}".encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:8], "big"))

"""What may be proposed: every configuration worth a trial, once, and nothing that users must not meet.

The space is a small list rather than ranges, so that each candidate can be checked before it is tried and each
exclusion can be counted and explained. Whoever proposes, by whatever method, chooses from `admissible` alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from autotuner.domain.configuration import Configuration
from autotuner.domain.measurement import ServerUse
from autotuner.domain.memory import NO_LIMIT_KNOWN, MemoryModel, learn
from autotuner.domain.selection import TIE, baseline, compute_per_inference
from autotuner.domain.study import GREYBOX, Study, StudyPlan, Trial, TrialKind
from autotuner.domain.target import Limits, Objective
from autotuner.errors import InvalidInput

SEARCHED_KINDS = (TrialKind.BASELINE, TrialKind.CANDIDATE)
"""Kinds of trial that a search learns from; the others measure a configuration again."""

MARGIN_SHARE = 0.05
"""Share of the ceiling kept free by the veto for the way to the server and back."""

DENSE_SHARES = (0.03, *(round(0.025 * step, 3) for step in range(4, 33)))
"""Delays as shares of the ceiling, 3 % and 10 to 80 %, that the grey-box sampler chooses from beside the usual ones.

Near the ceiling a step of 5 % of it is the difference between safe and not.
"""

PATIENCE = 3
"""Candidates in a row that must bring nothing before a search that traffic limits is given up."""


class Exclusion(StrEnum):
    """Why a configuration may not be proposed."""

    UNLOADABLE = "cannot load"
    TRIED = "already tried"
    CEILING = "cannot meet the ceiling"
    MEMORY = "no memory headroom"
    RELOAD = "no memory for old and new at once"


@dataclass(frozen=True)
class SearchSpace:
    """Every candidate of a study, sorted, each once; `unloadable` counts listed ones that no server would load."""

    candidates: tuple[Configuration, ...]
    unloadable: int = 0


@dataclass(frozen=True)
class Exclusions:
    """How many configurations each reason excludes; a configuration counts for the first reason that holds.

    note: what could not be checked; empty when everything was.
    """

    counts: Mapping[Exclusion, int]
    note: str = ""

    def describe(self) -> str:
        """The counts for people: `2 already tried, 36 cannot meet the ceiling`."""
        said = ", ".join(f"{self.counts[reason]} {reason}" for reason in Exclusion if self.counts.get(reason))
        return "; ".join(part for part in (said or "nothing excluded", self.note) if part)


@dataclass(frozen=True)
class Examination:
    """The whole space, what of it may be proposed next, and why the rest may not."""

    incumbent: Configuration
    space: SearchSpace
    admissible: tuple[Configuration, ...]
    exclusions: Exclusions


def search_space(plan: StudyPlan, incumbent: Configuration) -> SearchSpace:
    """Return all combinations that the plan's limits and ceiling allow; see `combinations`."""
    dense = plan.sampler == GREYBOX
    return combinations(plan.target.limits, plan.slo.p99_ceiling_seconds, incumbent, dense=dense)


def combinations(
    limits: Limits, ceiling_seconds: float, incumbent: Configuration, *, dense: bool = False
) -> SearchSpace:
    """Return all combinations of delays, preferred sizes and instance counts that the limits allow.

    The batch size limit is the incumbent's. The incumbent's own delay and preferred sizes are combined with the
    rest where the limits allow them, and the incumbent is a member even where they do not.
    dense: with delays that are dense as shares of the ceiling too, for the grey-box sampler: it looks at all of them
    without trying them.
    """
    ceiling_microseconds = int(ceiling_seconds * 1e6)
    longest = min(limits.max_queue_delay_microseconds, ceiling_microseconds)
    delays = {*_delays(longest), *_within([incumbent.max_queue_delay_microseconds], longest)}
    if dense:
        delays |= {*_within([round(share * ceiling_microseconds) for share in DENSE_SHARES], longest)}
    listed = limits.preferred_batch_sizes
    sets = _preferred_sets(incumbent) if listed is None else set(listed)
    loadable = {sizes for sizes in sets if all(1 <= size <= incumbent.max_batch_size for size in sizes)}
    counts = range(1, limits.max_instance_count + 1)
    made = {
        Configuration(delay, sizes, count, incumbent.max_batch_size)
        for delay in delays
        for sizes in loadable
        for count in counts
    }
    return SearchSpace(tuple(sorted(made | {incumbent})), len(sets - loadable) * len(delays) * len(counts))


def _delays(longest: int) -> Iterable[int]:
    """Nothing, then 0.5, 1, 2, 5, 10, 20, 50 ms and so on, in microseconds."""
    series = [500, *(factor * 10**power for power in range(3, 8) for factor in (1, 2, 5))]
    return [0, *_within(series, longest)]


def _within(delays: Iterable[int], longest: int) -> list[int]:
    return [delay for delay in delays if delay <= longest]


def _preferred_sets(incumbent: Configuration) -> set[tuple[int, ...]]:
    """None, powers of two from 2, pairs of neighbours, and the incumbent's own.

    A preferred size of 1 switches batching off and is tried only where the limits list it.
    """
    powers = [2**power for power in range(1, incumbent.max_batch_size.bit_length())]
    return {(), incumbent.preferred_batch_size, *((size,) for size in powers), *pairwise(powers)}


def veto(
    configuration: Configuration, ceiling_seconds: float, compute_p99_seconds: float, margin_seconds: float
) -> str | None:
    """Return why the configuration cannot meet the ceiling, None when it might.

    At a low rate a request waits the whole queue delay and is computed after it, so delay, compute time and a
    margin must fit below the ceiling together. compute_p99_seconds may be a lower bound: 0 when
    nothing is known.
    """
    needed = configuration.queue_delay_seconds + compute_p99_seconds + margin_seconds
    if needed <= ceiling_seconds:
        return None
    return (
        f"a delay of {configuration.queue_delay_seconds * 1e3:g} ms, at least {compute_p99_seconds * 1e3:.1f} ms of "
        f"compute and a margin of {margin_seconds * 1e3:g} ms exceed the ceiling of {ceiling_seconds * 1e3:g} ms"
    )


def least_compute_seconds(candidate: Configuration, measured: Configuration, use: ServerUse) -> float:
    """Return a lower bound on the candidate's compute time per request, from another configuration's step.

    The measured mean holds where the candidate's batches are no smaller (no more instances, no shorter delay, no
    lower cap). Elsewhere a batch of one is certain to take what an inference took on average, because n together
    never take longer than n alone. Instances that compute at once slow one another at most in proportion to
    their number, so fewer of them may gain that much. 0 where nothing is known.
    """
    batches_as_large = (
        candidate.instance_count <= measured.instance_count
        and candidate.max_queue_delay_microseconds >= measured.max_queue_delay_microseconds
        and _cap(candidate) >= _cap(measured)
    )
    known = use.compute_seconds if batches_as_large else use.compute_seconds_per_inference
    return (known or 0.0) * min(1.0, candidate.instance_count / measured.instance_count)


def _cap(configuration: Configuration) -> int:
    return max(configuration.preferred_batch_size, default=configuration.max_batch_size)


def examine(study: Study) -> Examination:
    """Return what of the study's search space may be proposed now, and why the rest may not.

    Raises InvalidInput when the study has not read its incumbent yet.
    """
    if study.incumbent is None:
        raise InvalidInput("study.incumbent", None, "a study that has read production's configuration")
    incumbent = study.incumbent.configuration
    space = search_space(study.plan, incumbent)
    known = _Known(
        incumbent, _lightest_use(study), learn(measured_memory(study)), _serving_counts(study, incumbent)
    )
    tried = {trial.configuration for trial in study.trials if not trial.only_teaches}
    counts: Counter[Exclusion] = Counter({Exclusion.UNLOADABLE: space.unloadable})
    left = []
    for candidate in space.candidates:
        reason = Exclusion.TRIED if candidate in tried else _excluded(study.plan, candidate, known)
        if reason is None:
            left.append(candidate)
        else:
            counts[reason] += 1
    return Examination(
        incumbent, space, tuple(left), Exclusions(dict(counts), "" if known.memory else NO_LIMIT_KNOWN)
    )


def admissible(study: Study) -> tuple[Configuration, ...]:
    """Return every configuration that may be proposed now, sorted. Raises InvalidInput as `examine` does."""
    return examine(study).admissible


def measured_memory(study: Study) -> list[tuple[int, ServerUse]]:
    """Return instance count and server use of every step the search measured, for `memory.learn`."""
    return [
        (trial.configuration.instance_count, step.use)
        for trial in study.trials
        if trial.kind in SEARCHED_KINDS
        for step in trial.steps
        if step.use is not None
    ]


@dataclass(frozen=True)
class _Known:
    """What exclusions rest on. serving_counts: instance counts beside which a candidate must fit for a moment."""

    incumbent: Configuration
    use: ServerUse | None
    memory: MemoryModel | None
    serving_counts: frozenset[int]


def _excluded(plan: StudyPlan, candidate: Configuration, known: _Known) -> Exclusion | None:
    ceiling, count, memory = plan.slo.p99_ceiling_seconds, candidate.instance_count, known.memory
    compute = least_compute_seconds(candidate, known.incumbent, known.use) if known.use else 0.0
    if veto(candidate, ceiling, compute, MARGIN_SHARE * ceiling):
        return Exclusion.CEILING
    if memory and memory.refusal(count, plan.target.limits.memory_headroom):
        return Exclusion.MEMORY
    if memory and any(memory.reload_fits(serving, count) for serving in known.serving_counts):
        return Exclusion.RELOAD
    return None


def _serving_counts(study: Study, incumbent: Configuration) -> frozenset[int]:
    """Instances that may serve while a candidate is loaded or unloaded: the incumbent's, and the last trial's."""
    last = study.trials[-1].configuration if study.trials else incumbent
    return frozenset({incumbent.instance_count, last.instance_count})


def _lightest_use(study: Study) -> ServerUse | None:
    """Server use at the lowest measured level of the incumbent's own trial."""
    first = next((trial for trial in study.trials if trial.kind is TrialKind.BASELINE and trial.steps), None)
    steps = [step for step in first.steps if step.use and step.level.number >= 0] if first else []
    return min(steps, key=lambda step: step.level.share).use if steps else None


def why_done(study: Study, examination: Examination | None = None) -> str | None:
    """Return why no further candidate is worth a trial, None while one is.

    examination: what `examine` says of this study, where it is known already.
    """
    candidates = [trial for trial in study.trials if trial.kind is TrialKind.CANDIDATE]
    if len(candidates) >= study.plan.max_trials:
        return f"all {study.plan.max_trials} trials of the plan are done"
    examination = examination or examine(study)
    if not examination.admissible:
        return f"no candidate is left: {examination.exclusions.describe()}"
    return _nothing_to_gain(study, candidates)


def _nothing_to_gain(study: Study, candidates: list[Trial]) -> str | None:
    """Capacity at its limit before the last few candidates, and none of them leaner by more than a tie.

    Only where capacity leads: efficiency has no limit that traffic could show.
    """
    start = baseline(study)
    recent, earlier = candidates[-PATIENCE:], [*([start] if start else []), *candidates[:-PATIENCE]]
    limited = [trial for trial in earlier if trial.censored]
    if study.plan.target.objective is not Objective.CAPACITY or len(recent) < PATIENCE or not limited:
        return None
    before = [spent for trial in limited if (spent := compute_per_inference(trial)) is not None]
    since = [
        spent for trial in recent if trial.censored and (spent := compute_per_inference(trial)) is not None
    ]
    if before and since and min(since) < min(before) * (1.0 - TIE):
        return None
    return (
        f"trial {limited[0].number} already carried all the traffic there was, "
        f"and the last {PATIENCE} candidates needed no less compute"
    )

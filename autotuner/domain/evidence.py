"""What one open window shows: counts against the control, what spoils it, and the judgement it carries."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from autotuner.domain.judgement import SCREENING, STRICT, Counts, Judgement, Levels, Verdict, judge
from autotuner.domain.measurement import Sample, Window, edges_around, overdue
from autotuner.domain.memory import lands_in_headroom
from autotuner.domain.observation import Observation
from autotuner.domain.provenance import ordered
from autotuner.domain.ramp import share_problem
from autotuner.domain.slo import ALLOWED_BAD_SHARE
from autotuner.domain.study import (
    IN_PRODUCTION,
    Arrived,
    Increment,
    OpenWindow,
    Step,
    Study,
    Trial,
    TrialKind,
)

NONE = Counts(0, 0, 0, 0)

FOREIGN_SHARE = 0.15
FOREIGN_REQUESTS = 60
"""A server may count this many requests more or fewer than the gateway before the window is contaminated."""

RATE_SHARE = 0.85
"""A level counts as carried only if at least this share of its nominal rate really came."""

KEPT_INCREMENTS = 240

STRICTLY = frozenset({TrialKind.CONFIRMATION, TrialKind.STAGE, TrialKind.WATCH})
"""Kinds on which a promotion rests: judged on fresh data at the stricter level."""


LEARNT_FROM = frozenset({TrialKind.PRODUCTION, TrialKind.BASELINE})
"""Kinds whose looks are kept to learn how much the counts scatter."""


OF_THE_INCUMBENT = frozenset({TrialKind.PRODUCTION, TrialKind.BASELINE, TrialKind.CONTROL})
"""Kinds that measure what runs already: how much memory it leaves says nothing of what it carries."""


@dataclass(frozen=True)
class Evidence:
    """Counts of a window so far and what they say; `judgement` None means keep looking."""

    candidate: Counts
    control: Counts
    judgement: Judgement | None


def control_replicas(study: Study, trial: Trial) -> tuple[str, ...]:
    """Return the replicas whose behaviour in the same window tells whether the environment moved."""
    target = study.plan.target
    tested = target.backends(trial.replicas)
    return tuple(name for name in target.stable_names if target.replica(name).at_gateway not in tested)


def tested_backends(study: Study, trial: Trial) -> tuple[str, ...]:
    """Return what the gateway counts the replicas under test as; replicas they share it with are counted too."""
    return study.plan.target.backends(trial.replicas)


def strictness(trial: Trial) -> Levels:
    """Return the error levels a trial is judged at."""
    return STRICT if trial.kind in STRICTLY else SCREENING


def looked(study: Study, trial: Trial, window: OpenWindow, sample: Sample) -> OpenWindow:
    """Return the window with one more look taken in."""
    ceiling = study.plan.slo.p99_ceiling_seconds
    horizon = sample.at - timedelta(seconds=ceiling) - 3 * study.plan.pace.look_interval
    before = window.recent[-1] if window.recent else (window.first or window.routed)
    increments = window.increments
    if window.first is not None and before is not None:
        increments = (*increments, _increment(study, trial, before, sample))[-KEPT_INCREMENTS:]
    recent = (*(s for s in window.recent if s.at >= horizon), sample)
    return replace(
        window, recent=recent, increments=increments, harm_requests=_harm(study, trial, window, sample)
    )


def _increment(study: Study, trial: Trial, before: Sample, now: Sample) -> Increment:
    total, failed = 0, 0
    edge, _ = edges_around(now.edges_seconds, study.plan.slo.p99_ceiling_seconds)
    over = [0] * (edge + 1)
    compute: float | None = 0.0
    inferences: int | None = 0
    for backend in tested_backends(study, trial):
        new, old = now.gateway[backend], before.gateway[backend]
        measured = new.buckets[-1] - old.buckets[-1]
        total += measured
        failed += new.failed - old.failed
        for down in range(edge + 1):
            over[down] += measured - (new.buckets[edge - down] - old.buckets[edge - down])
    for name in trial.replicas:
        use = Window(before, now).use(name)
        done = now.servers[name].inferences - before.servers[name].inferences
        if use.compute_seconds_per_inference is None and done:
            compute, inferences = None, None
        elif compute is not None and inferences is not None:
            compute, inferences = (
                compute + (use.compute_seconds_per_inference or 0.0) * done,
                inferences + done,
            )
    arrived = _arrived(study, trial, Window(before, now)) if study.plan.keeps_batches else None
    return Increment(total, tuple(over), failed, compute, inferences, arrived)


def _arrived(study: Study, trial: Trial, look: Window) -> Arrived:
    sent = sum(look.sent(backend) for backend in tested_backends(study, trial))
    return Arrived(look.duration.total_seconds(), sent)


def _harm(study: Study, trial: Trial, window: OpenWindow, sample: Sample) -> float:
    if trial.kind is TrialKind.PRODUCTION or window.routed is None:
        return 0.0
    return _candidate(study, trial, window, window.routed, sample).excess(ALLOWED_BAD_SHARE)


def recounted(study: Study, trial: Trial, window: OpenWindow, sample: Sample | None) -> OpenWindow:
    """Return the window with its harm brought up to `sample`, as far as the gateway alone tells of it."""
    if sample is None or window.routed is None:
        return window
    for backend in tested_backends(study, trial):
        now, then = sample.gateway.get(backend), window.routed.gateway.get(backend)
        if now is None or then is None or now.behind(then):
            return window
    return replace(window, harm_requests=max(window.harm_requests, _harm(study, trial, window, sample)))


def answered(study: Study, trial: Trial, sample: Sample | None) -> bool:
    """Whether the replicas under test have answered all that they were sent, as far as the gateway tells."""
    backends = tested_backends(study, trial)
    counters = [sample.gateway.get(backend) for backend in backends] if sample else [None]
    return all(each is not None and each.sent <= each.ended for each in counters)


def _candidate(study: Study, trial: Trial, window: OpenWindow, first: Sample, now: Sample) -> Counts:
    """Counts of the replicas under test, requests already overdue included."""
    ceiling = study.plan.slo.p99_ceiling_seconds
    backends = tested_backends(study, trial)
    counts = Window(first, now).counts(backends, ceiling)
    late = sum(overdue((first, *window.recent), now, backend, ceiling) for backend in backends)
    return counts + Counts(late, late, late, 0)


def weigh(study: Study, trial: Trial, window: OpenWindow, sample: Sample, limit: timedelta) -> Evidence:
    """Return the evidence of an open window at this look. The window must have a first sample."""
    assert window.first is not None
    span = Window(window.first, sample)
    candidate = _candidate(study, trial, window, window.first, sample)
    names = study.plan.target.backends(control_replicas(study, trial))
    control = span.counts(names, study.plan.slo.p99_ceiling_seconds) if names else None
    judgement = judge(
        candidate,
        control,
        study.control_baseline or NONE,
        allowed=ALLOWED_BAD_SHARE,
        error_ceiling=study.plan.slo.error_ratio_ceiling,
        levels=strictness(trial),
        dispersion=study.dispersion,
        exhausted=span.duration >= limit,
    )
    return Evidence(candidate, control or NONE, judgement)


def spoilt(study: Study, trial: Trial, window: OpenWindow, sample: Sample, weights: dict[str, int]) -> str:
    """Return why a window must not be believed; empty when nothing speaks against it."""
    before = window.recent[-1] if window.recent else (window.first or window.routed)
    if before is not None:
        names = (*trial.replicas, *control_replicas(study, trial))
        for backend in study.plan.target.backends(names):
            if backend in before.gateway and sample.gateway[backend].behind(before.gateway[backend]):
                return (
                    f"the gateway's counters of {backend} went backwards: it restarted or gave an old answer"
                )
        for name in names:
            if name in before.servers and sample.servers[name].behind(before.servers[name]):
                return f"the counters of {name} went backwards: it restarted or gave an old answer"
    if window.first is None:
        return ""
    span = Window(window.first, sample)
    read = [n for n in weights if n in sample.gateway and n in window.first.gateway]
    return share_problem({n: span.sent(n) for n in read}, {n: weights[n] for n in read}) or _foreign(
        study, trial, span
    )


def _foreign(study: Study, trial: Trial, span: Window) -> str:
    for name in tested_backends(study, trial):
        members = study.plan.target.behind(name)
        if any(each not in at.servers for at in (span.first, span.last) for each in members):
            continue  # one of several behind a backend was not readable: there is nothing to compare with
        served = sum(_served(span, each) for each in members)
        passed = span.last.gateway[name].ended - span.first.gateway[name].ended
        if abs(served - passed) > max(FOREIGN_REQUESTS, FOREIGN_SHARE * passed):
            return f"{name} answered {served} requests where {passed} came through the gateway: contaminated"
    return ""


def _served(span: Window, name: str) -> int:
    now, then = span.last.servers[name], span.first.servers[name]
    return now.succeeded + now.failed - then.succeeded - then.failed


def too_thin(study: Study, trial: Trial, window: OpenWindow, sample: Sample) -> str:
    """Return why the traffic was too thin to call the level carried; empty when it was not."""
    if study.reference_rate_per_second is None or window.first is None or window.level.number < 0:
        return ""
    if trial.kind in IN_PRODUCTION:
        return ""
    rate = Window(window.first, sample).rate_per_second(tested_backends(study, trial))
    nominal = window.level.share * study.reference_rate_per_second
    if rate >= RATE_SHARE * nominal:
        return ""
    return f"only {rate:.0f}/s came where the level means {nominal:.0f}/s"


def stale(study: Study, window: OpenWindow) -> str:
    """Return why the counts may be old; empty when requests went on ending.

    Counters that stand still look the same whether nothing is sent or an old answer is repeated: neither is evidence.
    """
    pace = study.plan.pace
    looks = math.ceil(pace.no_data_limit / pace.look_interval)
    newest = window.increments[-looks:]
    if len(newest) < looks or any(look.total for look in newest):
        return ""
    return f"no request has ended for {pace.no_data_limit.total_seconds():g} s: the counts may be old"


def closed_step(
    study: Study, trial: Trial, window: OpenWindow, sample: Sample, evidence: Evidence, judgement: Judgement
) -> Step:
    """Return the judged step a window becomes, a trial that lands in the memory headroom rejected."""
    assert window.first is not None
    span = Window(window.first, sample)
    alone = len(trial.replicas) == 1
    use = span.use(trial.replicas[0]) if alone else None
    cramped = lands_in_headroom(use, study.plan.target.limits.memory_headroom) if use else None
    if cramped and judgement.verdict is Verdict.ACCEPT and trial.kind not in OF_THE_INCUMBENT:
        judgement = replace(judgement, verdict=Verdict.REJECT, reason=f"REJECT: {cramped}")
    target, tested = study.plan.target, tested_backends(study, trial)
    everyone = [name for name in target.backends(target.stable_names) if name in sample.gateway]
    canary = target.canary.at_gateway
    everyone += [canary] if canary in sample.gateway and canary in window.first.gateway else []
    return Step(
        level=window.level,
        attempt=trial.voids,
        started_at=window.first.at,
        ended_at=sample.at,
        candidate=evidence.candidate,
        control=evidence.control,
        rate_per_second=span.rate_per_second(tested) / sum(len(target.behind(each)) for each in tested),
        total_rate_per_second=span.rate_per_second(everyone),
        latency=span.latency(tested),
        use=use,
        harm_requests=window.harm_requests,
        judgement=judgement,
        compute_error=compute_error(window.increments),
        increments=window.increments if trial.kind in LEARNT_FROM else (),
        batches=span.batches(trial.replicas[0]) if alone and study.plan.keeps_batches else (),
        arrived=tuple(look.arrived for look in window.increments if look.arrived is not None),
        counted=span.counted(tested, trial.replicas) if _keeps_counts(study, trial) else None,
        model_versions=ordered(
            version
            for name in trial.replicas
            if name in sample.servers
            for version in sample.servers[name].model_versions
        ),
    )


def _keeps_counts(study: Study, trial: Trial) -> bool:
    return study.plan.keeps_counts and trial.kind is TrialKind.PRODUCTION


def compute_error(increments: tuple[Increment, ...]) -> float | None:
    """Return the standard error of compute seconds per inference: a ratio of sums over looks.

    Linearised variance of a ratio estimator (Cochran, Sampling Techniques, 3rd ed., §6.3); None below 4 looks.
    """
    pairs = [
        (i.compute_seconds, i.inferences)
        for i in increments
        if i.compute_seconds is not None and i.inferences
    ]
    if len(pairs) < 4 or len(pairs) < len([i for i in increments if i.total]) - 1:
        return None
    work, items = sum(c or 0.0 for c, _ in pairs), sum(n or 0 for _, n in pairs)
    ratio = work / items
    squares = sum(((c or 0.0) - ratio * (n or 0)) ** 2 for c, n in pairs)
    return math.sqrt(len(pairs) / (len(pairs) - 1) * squares) / items


def window_limit(study: Study, trial: Trial) -> timedelta:
    """Return how long a window of this trial may stay open before it is inconclusive."""
    pace = study.plan.pace
    if trial.kind is TrialKind.WATCH:
        return pace.bake + pace.stage_limit
    return pace.stage_limit if trial.kind is TrialKind.STAGE else pace.step_limit


def window_minimum(study: Study, trial: Trial) -> timedelta:
    """Return how long a window of this trial must be open before it may be accepted."""
    pace = study.plan.pace
    if trial.kind is TrialKind.WATCH:
        return pace.bake
    return pace.production_window if trial.kind is TrialKind.PRODUCTION else pace.step_minimum


def open_for(window: OpenWindow, at: datetime) -> timedelta:
    """Return how long a window has been open."""
    return at - window.first.at if window.first is not None else timedelta(0)


def answering(study: Study, trial: Trial) -> tuple[str, ...]:
    """Return the replicas whose answers are counted together: those under test, and who shares a backend with them."""
    target = study.plan.target
    return tuple(name for backend in tested_backends(study, trial) for name in target.behind(backend))


def unreadable(study: Study, trial: Trial, seen: Observation) -> str:
    """Return what of the replicas under test and their control could not be read at this tick; empty if all was.

    Where one of several pods is missing the others carry its load, and names have moved: no window is open then.
    """
    for name in answering(study, trial):
        if name not in seen.fingerprints:
            return f"{name} is not ready: {seen.faults.get(name, 'no answer')}"
    if seen.sample is None:
        return f"no metrics: {seen.faults.get('metrics', 'no answer')}"
    names = (*trial.replicas, *control_replicas(study, trial))
    missing = seen.sample.missing(names, study.plan.target.backends(names))
    return f"no metrics of {missing}" if missing else ""

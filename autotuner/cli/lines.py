"""A study as lines for people: one for each judged step, each trial and each phase."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from autotuner.domain.judgement import Counts
from autotuner.domain.selection import capacity_per_second
from autotuner.domain.slo import ALLOWED_BAD_SHARE
from autotuner.domain.study import IN_PRODUCTION, Step, Study, Trial
from autotuner.domain.titles import KIND_TITLES, PHASE_TITLES


def trial_line(study: Study, trial: Trial) -> str:
    """One line for a trial: its number, kind, configuration and, once judged, its verdict and capacity."""
    head = f"#{trial.number} {KIND_TITLES[trial.kind]}: {trial.configuration.describe()} on {', '.join(trial.replicas)}"
    if trial.verdict is None:
        return head
    capacity = capacity_per_second(study, trial)
    known = trial.kind not in IN_PRODUCTION and capacity is not None
    carried = f", carried {'at least ' if trial.censored else ''}{capacity:.0f}/s" if known else ""
    return f"{head}: {trial.verdict.name}{carried}"


def step_line(study: Study, step: Step) -> str:
    """One line for a judged load level: load, requests, slow against allowed, latencies, batch, times, verdict."""
    counts = step.candidate
    latency = step.latency
    quantiles = "/".join(
        _milliseconds(v) for v in (latency.p50_seconds, latency.p95_seconds, latency.p99_seconds)
    )
    parts = [
        f"{step.level.share:4.0%} of traffic" if step.level.number >= 0 else "warming up",
        f"{step.rate_per_second:4.0f}/s",
        _against_allowed(counts, study.plan.slo.p99_ceiling_seconds),
        f"p50/p95/p99 {quantiles} ms",
    ]
    if step.use is not None:
        batch = f"{step.use.realised_batch:.1f}" if step.use.realised_batch is not None else "-"
        parts.append(f"batch {batch}")
        parts.append(
            f"queue {_milliseconds(step.use.queue_seconds)} compute {_milliseconds(step.use.compute_seconds)} ms"
        )
    return f"{'  '.join(parts)}  {step.verdict.name}"


def _against_allowed(counts: Counts, ceiling_seconds: float) -> str:
    allowed = ALLOWED_BAD_SHARE * counts.total
    return f"{counts.bad_at_most:,} of {counts.total:,} over {ceiling_seconds * 1e3:g} ms (allowed {allowed:.0f})"


def _milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:.0f}"


def news(before: Study | None, after: Study) -> Iterator[tuple[str, str]]:
    """Yield what happened between two states of a study, as (kind, line): phase, trial, step, reason, verdict."""
    known = before.trials if before is not None else ()
    for old, trial in zip(known, after.trials, strict=False):
        yield from _continued(after, old, trial)
    if before is None or before.phase is not after.phase:
        yield "phase", PHASE_TITLES[after.phase]
    for trial in after.trials[len(known) :]:
        yield "trial", trial_line(after, replace(trial, verdict=None))
        if trial.proposal is not None:
            yield "reason", trial.proposal.reason
        yield from _continued(after, replace(trial, steps=(), voids=0, ended_at=None), trial)


def _continued(study: Study, old: Trial, trial: Trial) -> Iterator[tuple[str, str]]:
    """What happened to a trial that was known before."""
    for step in trial.steps[len(old.steps) :]:
        yield "step", step_line(study, step)
        yield "verdict", step.judgement.reason
    if trial.voids > old.voids and len(trial.steps) == len(old.steps):
        yield "verdict", trial.reason
    if trial.verdict is not None and trial.ended_at is not None and old.ended_at is None:
        yield "judged", trial_line(study, trial)

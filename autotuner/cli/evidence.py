"""A study and its trials for people: every verdict with the numbers it rests on."""

from __future__ import annotations

import math
from collections.abc import Iterator

from autotuner.cli.lines import trial_line
from autotuner.domain.benefit import Standing, benefit
from autotuner.domain.evidence import strictness
from autotuner.domain.findings.kinds import Kind, title_of
from autotuner.domain.findings.opening import opening
from autotuner.domain.hindsight import Prediction, predictions
from autotuner.domain.judgement import SLOW_SHARE_OF_ALPHA, Levels
from autotuner.domain.slo import ALLOWED_BAD_SHARE
from autotuner.domain.slow_requests import SlowRequests
from autotuner.domain.study import Step, Study, Trial
from autotuner.domain.titles import KIND_TITLES, PHASE_TITLES, WAY_TITLES

STAMP = "%Y-%m-%d %H:%M:%S %Z"


def study_text(study: Study) -> Iterator[str]:
    """Yield the lines of a study: its promise, how it stands, what it was worth, and each trial."""
    plan = study.plan
    slo = plan.slo
    yield f"study {study.id}: {study.outcome.value if study.outcome else PHASE_TITLES[study.phase]}"
    yield f"  {study.reason or 'no reason yet'}"
    note = f" ({plan.target.note})" if plan.target.note else ""
    yield f"  target {plan.target.name}, model {plan.target.model}{note}"
    yield f"  started {study.created_at:{STAMP}} by {study.actor}" + (
        f", ended {study.ended_at:{STAMP}}" if study.ended_at else ""
    )
    yield (
        f"  SLO budget version {slo.version}: p99 ≤ {slo.p99_ceiling_seconds * 1e3:g} ms, errors ≤ "
        f"{slo.error_ratio_ceiling:g}, canary ≤ {slo.max_canary_share:g} of all requests"
    )
    harm = f"{study.harm_requests:.0f} of {slo.harm_budget_requests}"
    yield f"  harm: {harm} slow or failed requests above the allowed {ALLOWED_BAD_SHARE:.0%}"
    yield f"  dispersion used {study.dispersion:.3g}, measured {_figure(study.measured_dispersion)}"
    for finding in opening(study):
        yield f"  production before: {title_of(finding)}: {'; '.join(finding.evidence)}"
        if finding.kind is not Kind.HEALTHY:
            yield f"    → {finding.remedy}"
    worth = benefit(study)
    for title, standing in (("incumbent", worth.incumbent), ("winner", worth.winner)):
        if standing is not None:
            yield f"  {title}: {standing_text(standing, plan.target.currency)}"
    if worth.capacity_ratio is not None:
        yield f"  capacity: {worth.capacity_ratio:.2f} × the incumbent's"
    for trial in study.trials:
        yield f"  {trial_line(study, trial)}"
    yield from _predictions_text(study)
    yield f"all evidence of a trial: autotuner show {study.id}/NUMBER"


def _predictions_text(study: Study) -> Iterator[str]:
    """Yield a line for each trial whose p99 was predicted; none when no sampler did."""
    found = predictions(study)
    if found:
        yield "  p99 predicted by the sampler (90 % band) against observed:"
    for each in found:
        yield f"    trial {each.trial.number} {prediction_text(each)}"


def prediction_text(each: Prediction) -> str:
    """One prediction beside what was observed, in one line."""
    band = f"{each.low_seconds * 1e3:.3g}–{each.high_seconds * 1e3:.3g}"
    verdict = {None: "", True: ", within the band", False: ", outside the band"}[each.within]
    return (
        f"at {each.rate_per_second:.0f}/s: predicted {_milliseconds(each.p99_seconds)} ({band}), "
        f"observed {_milliseconds(each.observed_seconds)}{verdict}"
    )


def standing_text(standing: Standing, currency: str) -> str:
    """One configuration as measured, in one line."""
    parts = [standing.configuration.describe()]
    if standing.capacity_per_second is not None:
        parts.append(
            f"carried {'at least ' if standing.at_least else ''}{standing.capacity_per_second:.0f}/s"
        )
    if standing.p99_seconds is not None:
        parts.append(f"p99 {standing.p99_seconds * 1e3:.0f} ms at production's load")
    if standing.compute_seconds_per_million is not None:
        parts.append(f"{standing.compute_seconds_per_million:.0f} compute seconds per million")
    if standing.cost_per_million is not None:
        parts.append(f"{standing.cost_per_million:.2f} {currency} per million at capacity")
    return "; ".join(parts)


def trial_text(study: Study, trial: Trial) -> Iterator[str]:
    """Yield the lines of a trial: why it was tried, each step with its evidence, and the verdict's reason."""
    yield trial_line(study, trial)
    yield f"  proposed {trial.proposed_at:{STAMP}}" + (
        f", ended {trial.ended_at:{STAMP}}" if trial.ended_at else ""
    )
    if trial.proposal is not None:
        yield f"  proposed by {trial.proposal.sampler}: {trial.proposal.reason}"
        for name, value in trial.proposal.predicted.items():
            yield f"    predicted {name}: {value:.4g}"
        yield from (f"    p99 {prediction_text(p)}" for p in predictions(study) if p.trial == trial)
    if trial.reason:
        yield f"  {trial.reason}"
    if trial.limited_by:
        yield f"  ended by: {trial.limited_by}"
    harm = f"{trial.harm_requests:.1f} slow or failed requests above the allowed {ALLOWED_BAD_SHARE:.0%}"
    yield f"  harm: {harm}; voids: {trial.voids}"
    strict = strictness(trial)
    yield (
        f"  judged as {KIND_TITLES[trial.kind]}: chance of a wrong ACCEPT ≤ {strict.accept_alpha:g}, "
        f"of a wrong REJECT ≤ {strict.reject_alpha:g}"
    )
    for step in trial.steps:
        yield from step_text(step, strict)


def step_text(step: Step, strict: Levels) -> Iterator[str]:
    """Yield the lines of one judged load level."""
    judgement, counts, control = step.judgement, step.candidate, step.control
    level = "warming up" if step.level.number < 0 else f"level {step.level.number}"
    yield f"  {level}, {step.level.share:.0%} of traffic, attempt {step.attempt + 1}: {step.verdict.name}"
    rates = f"{step.rate_per_second:.1f}/s of {step.total_rate_per_second:.1f}/s in all"
    yield f"    {step.started_at:%H:%M:%S} to {step.ended_at:%H:%M:%S}, {rates}"
    yield (
        f"    counts: {counts.total} requests, slow or failed {counts.bad_at_least} to {counts.bad_at_most}, "
        f"failed {counts.failed}; control: {control.total}, {control.bad_at_least} to {control.bad_at_most}, "
        f"{control.failed}"
    )
    low, high = judgement.interval
    yield (
        f"    share {judgement.estimate:.3%}, 95 % interval {low:.3%} to {high:.3%}, allowed {ALLOWED_BAD_SHARE:.0%}; "
        f"dispersion {judgement.dispersion:.3g}"
    )
    reject = strict.reject_alpha * SLOW_SHARE_OF_ALPHA
    yield (
        f"    e-value for ACCEPT {_evidence(judgement.log_e_accept)} (needs {1 / strict.accept_alpha:g}), "
        f"for REJECT {_evidence(judgement.log_e_reject)} (needs {1 / reject:g})"
    )
    latency = step.latency
    figures = " / ".join(
        _milliseconds(q) for q in (latency.p50_seconds, latency.p95_seconds, latency.p99_seconds)
    )
    yield f"    p50 / p95 / p99: {figures}"
    if step.use is not None:
        yield from _use_text(step)
    yield f"    harm: {step.harm_requests:.1f} requests"
    if step.slow is not None:
        yield from _slow_text(step.slow)
    yield f"    {judgement.reason}"


def _use_text(step: Step) -> Iterator[str]:
    use = step.use
    assert use is not None
    yield (
        f"    queue {_milliseconds(use.queue_seconds)}, compute {_milliseconds(use.compute_seconds)}, "
        f"realised batch {_figure(use.realised_batch)}, compute per inference "
        f"{_milliseconds(use.compute_seconds_per_inference)} ± {_milliseconds(step.compute_error)}"
    )
    memory = [_gigabytes(use.memory_used_bytes), _gigabytes(use.memory_total_bytes)]
    yield f"    memory {memory[0]} of {memory[1]}, device busy {_figure(use.device_utilisation)}"


def _slow_text(slow: SlowRequests) -> Iterator[str]:
    if slow.fault:
        yield f"    slow requests by span: not known ({slow.source}: {slow.fault})"
    else:
        parts = ", ".join(
            f"{WAY_TITLES[each.part]} {_milliseconds(each.mean_seconds)}" for each in slow.parts
        )
        seen = f"{slow.requests} seen by {slow.source}, mean {_milliseconds(slow.mean_seconds)}"
        yield f"    slow requests by span ({seen}): {parts}"
        if slow.outside_inference is not None:
            yield f"      {slow.outside_inference:.0%} of their time was not inference"
        yield "      slowest: " + ", ".join(
            f"{e.trace_id} ({_milliseconds(e.seconds)})" for e in slow.slowest
        )
    yield from (f"      {remark}" for remark in slow.remarks)


def _evidence(log_e: float) -> str:
    """An e-value from its natural logarithm, also where the number itself has no float."""
    if -300 < log_e < 300:
        return f"{math.exp(log_e):.3g}"
    return f"e^{log_e:.0f}"


def _figure(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3g}"


def _milliseconds(seconds: float | None) -> str:
    return "unknown" if seconds is None else f"{seconds * 1e3:.3g} ms"


def _gigabytes(size_bytes: float | None) -> str:
    return "unknown" if size_bytes is None else f"{size_bytes / 1e9:.2f} GB"

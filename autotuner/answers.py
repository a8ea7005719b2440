"""Studies, trials and steps as the JSON objects that `--json` prints: all evidence, nothing rounded.

Durations carry their unit in the name; what was not measured is null.
"""

from __future__ import annotations

from typing import Any

from autotuner.domain.benefit import Standing, benefit
from autotuner.domain.configuration import Configuration
from autotuner.domain.evidence import strictness
from autotuner.domain.findings.kinds import Finding
from autotuner.domain.findings.opening import opening
from autotuner.domain.gpu_hours import GpuHours
from autotuner.domain.judgement import SLOW_SHARE_OF_ALPHA, Counts
from autotuner.domain.selection import capacity_per_second
from autotuner.domain.slo import ALLOWED_BAD_SHARE, SloBudget
from autotuner.domain.slow_requests import SlowRequests
from autotuner.domain.study import Step, Study, Trial
from autotuner.ports import AuditRecord, StudySummary
from autotuner.records import to_record


def ending_object(study: Study) -> dict[str, Any]:
    """How a study ended, or stands, and what it was worth."""
    worth = benefit(study)
    seconds = (study.ended_at - study.created_at).total_seconds() if study.ended_at else None
    return {
        "study": study.id,
        "target": study.plan.target.name,
        "phase": study.phase.value,
        "outcome": study.outcome.value if study.outcome else None,
        "reason": study.reason,
        "incumbent": standing_object(worth.incumbent),
        "winner": standing_object(worth.winner),
        "capacity_ratio": worth.capacity_ratio,
        "trials": worth.candidates,
        "seconds": seconds,
        "slow_requests_caused": worth.harm_requests,
        "harm_budget": worth.harm_budget_requests,
        "gpu_hours": gpu_hours_object(worth.gpu_hours),
    }


def gpu_hours_object(hours: GpuHours) -> dict[str, Any]:
    """What a study cost in GPU hours, and what its winner saves a day."""
    return {
        "gpus_per_replica": hours.per_replica,
        "canary": hours.canary,
        "measuring": hours.measuring,
        "saved_per_day": hours.saved_per_day,
        "saved_at_least": hours.saved_at_least,
        "unknown": hours.unknown,
    }


def standing_object(standing: Standing | None) -> dict[str, Any] | None:
    """One configuration as a study measured it."""
    if standing is None:
        return None
    return {
        "configuration": configuration_object(standing.configuration),
        "capacity_per_second": standing.capacity_per_second,
        "capacity_at_least": standing.at_least,
        "p99_ms": _thousand(standing.p99_seconds),
        "compute_seconds_per_million": standing.compute_seconds_per_million,
        "cost_per_million": standing.cost_per_million,
    }


def configuration_object(configuration: Configuration) -> dict[str, Any]:
    """The tuned fields, spelt as Triton spells them."""
    return {
        "max_queue_delay_microseconds": configuration.max_queue_delay_microseconds,
        "preferred_batch_size": list(configuration.preferred_batch_size),
        "instance_count": configuration.instance_count,
        "max_batch_size": configuration.max_batch_size,
    }


def summary_object(summary: StudySummary) -> dict[str, Any]:
    """A study as a list shows it."""
    made: dict[str, Any] = to_record(summary)
    return made


def study_object(study: Study) -> dict[str, Any]:
    """A study with every trial and all evidence."""
    plan = study.plan
    return {
        **ending_object(study),
        "created_at": study.created_at.isoformat(),
        "ended_at": study.ended_at.isoformat() if study.ended_at else None,
        "actor": study.actor,
        "objective": plan.target.objective.value,
        "slo": slo_object(plan.slo),
        "plan": {
            "max_trials": plan.max_trials,
            "ramp_steps": plan.ramp_steps,
            "minimum_gain": plan.minimum_gain,
            "approval": plan.approval.value,
            "sampler": plan.sampler,
            "seed": plan.seed,
            "max_dispersion": to_record(plan.max_dispersion),
        },
        "dispersion_used": study.dispersion,
        "dispersion_measured": study.measured_dispersion,
        "total_rate_per_second": study.reference_rate_per_second,
        "winner_trial": study.winner,
        "promoted": list(study.promoted),
        "production_findings": [finding_object(one) for one in opening(study)],
        "trials": [trial_object(trial, capacity_per_second(study, trial)) for trial in study.trials],
    }


def finding_object(one: Finding) -> dict[str, Any]:
    """One finding of a diagnosis, or of a study about production."""
    return {
        "kind": one.kind.value,
        "confidence": one.confidence.value,
        "evidence": list(one.evidence),
        "remedy": one.remedy,
    }


def slo_object(slo: SloBudget) -> dict[str, Any]:
    """One version of a budget."""
    return {
        "version": slo.version,
        "p99_ms": slo.p99_ceiling_seconds * 1e3,
        "error_ratio": slo.error_ratio_ceiling,
        "max_canary_share": slo.max_canary_share,
        "harm_budget_requests": slo.harm_budget_requests,
        "actor": slo.actor,
        "reason": slo.reason,
    }


def trial_object(trial: Trial, capacity: float | None) -> dict[str, Any]:
    """A trial with all evidence behind its verdict. capacity: requests per second of one replica."""
    return {
        "number": trial.number,
        "kind": trial.kind.value,
        "replicas": list(trial.replicas),
        "configuration": configuration_object(trial.configuration),
        "state": trial.state.value,
        "verdict": trial.verdict.value if trial.verdict else None,
        "reason": trial.reason,
        "limited_by": trial.limited_by,
        "capacity_per_second": capacity,
        "capacity_at_least": trial.censored,
        "voids": trial.voids,
        "slow_requests_caused": trial.harm_requests,
        "proposed_at": trial.proposed_at.isoformat(),
        "ended_at": trial.ended_at.isoformat() if trial.ended_at else None,
        "proposal": _proposal_object(trial),
        "steps": [step_object(trial, step) for step in trial.steps],
    }


def _proposal_object(trial: Trial) -> dict[str, Any] | None:
    if trial.proposal is None:
        return None
    return {
        "sampler": trial.proposal.sampler,
        "reason": trial.proposal.reason,
        "predicted": dict(trial.proposal.predicted),
    }


def step_object(trial: Trial, step: Step) -> dict[str, Any]:
    """One judged load level: what was measured, what it was judged on, and what the evidence had to reach."""
    judgement, levels = step.judgement, strictness(trial)
    return {
        "level": step.level.number,
        "share": step.level.share,
        "attempt": step.attempt,
        "started_at": step.started_at.isoformat(),
        "ended_at": step.ended_at.isoformat(),
        "rate_per_second": step.rate_per_second,
        "total_rate_per_second": step.total_rate_per_second,
        "verdict": step.verdict.value,
        "reason": judgement.reason,
        "counts": _counts_object(step.candidate),
        "control": _counts_object(step.control),
        "estimate": judgement.estimate,
        "interval_95": list(judgement.interval),
        "dispersion": judgement.dispersion,
        "allowed_share": ALLOWED_BAD_SHARE,
        "accept_alpha": levels.accept_alpha,
        "reject_alpha": levels.reject_alpha * SLOW_SHARE_OF_ALPHA,
        "log_e_accept": to_record(judgement.log_e_accept),
        "log_e_reject": to_record(judgement.log_e_reject),
        "p50_ms": _thousand(step.latency.p50_seconds),
        "p95_ms": _thousand(step.latency.p95_seconds),
        "p99_ms": _thousand(step.latency.p99_seconds),
        "compute_error_ms": _thousand(step.compute_error),
        **_use_object(step),
        "slow_requests_caused": step.harm_requests,
        "slow_by_span": None if step.slow is None else _slow_object(step.slow),
    }


def _slow_object(slow: SlowRequests) -> dict[str, Any]:
    return {
        "source": slow.source,
        "requests": slow.requests,
        "mean_ms": _thousand(slow.mean_seconds),
        "outside_inference": slow.outside_inference,
        "parts": [
            {"part": each.part.value, "mean_ms": each.mean_seconds * 1e3, "longest_in": each.longest_in}
            for each in slow.parts
        ],
        "slowest": [
            {"trace_id": each.trace_id, "ms": each.seconds * 1e3, "longest": each.longest.value}
            for each in slow.slowest
        ],
        "remarks": list(slow.remarks),
        "fault": slow.fault,
    }


def _counts_object(counts: Counts) -> dict[str, int]:
    return {
        "total": counts.total,
        "bad_at_most": counts.bad_at_most,
        "bad_at_least": counts.bad_at_least,
        "failed": counts.failed,
    }


def _use_object(step: Step) -> dict[str, Any]:
    use = step.use
    return {
        "queue_ms": _thousand(use.queue_seconds) if use else None,
        "compute_ms": _thousand(use.compute_seconds) if use else None,
        "realised_batch": use.realised_batch if use else None,
        "compute_ms_per_inference": _thousand(use.compute_seconds_per_inference) if use else None,
        "device_utilisation": use.device_utilisation if use else None,
        "memory_used_bytes": use.memory_used_bytes if use else None,
        "memory_total_bytes": use.memory_total_bytes if use else None,
    }


def audit_object(record: AuditRecord) -> dict[str, Any]:
    """One record of the audit."""
    made: dict[str, Any] = to_record(record)
    return made


def _thousand(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e3

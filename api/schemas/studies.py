"""Studies, their trials, evidence and promotions on the wire; the same words as the command line's `--json`."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from api.schemas.targets import BudgetAnswer, budget_answer
from api.schemas.wire import Answer
from autotuner.answers import gpu_hours_object, standing_object, trial_object
from autotuner.catalogue import Progress, StudyStanding, TrialEvidence, TrialSummary
from autotuner.domain.benefit import benefit
from autotuner.domain.judgement import Verdict
from autotuner.domain.spans import Part
from autotuner.domain.study import Approval, Outcome, Phase, Study, TrialKind, TrialState, Wish
from autotuner.instruments.origins import origins_of
from autotuner.ports import StudySummary
from autotuner.sections import NAME_PATTERN, Section
from autotuner.target_file import StudySection
from autotuner.telemetry.traces import course_of_trial, trace_url

Unbounded = float | Literal["inf", "-inf"]
"""A number that JSON cannot always hold."""

EXAMPLE_START = {"target": "small-vision", "study": {"max_trials": 8, "approval": "manual"}}


class StartStudy(Section):
    """A study to be started."""

    target: str = Field(
        pattern=NAME_PATTERN, description="the name of a registered target", examples=["small-vision"]
    )
    study: StudySection | None = Field(
        default=None,
        description="a section of study settings; what is left out is as it is registered with the target",
    )


class ConfigurationAnswer(Answer):
    """The tuned fields, spelt as Triton spells them."""

    max_queue_delay_microseconds: int = Field(
        description="Longest queue delay, microseconds.", examples=[5000]
    )
    preferred_batch_size: list[int] = Field(
        description="Preferred batch sizes, ascending; empty for none.", examples=[[4, 8]]
    )
    instance_count: int = Field(description="Instances of the model on one replica.", examples=[2])
    max_batch_size: int = Field(description="Largest batch.", examples=[32])


class StudyItem(Answer):
    """A study as a list shows it."""

    id: str = Field(description="The study's id.", examples=["small-vision-20260105-020000-1f2e3d"])
    target: str = Field(description="The target it tunes.", examples=["small-vision"])
    phase: Phase = Field(description="What is durably true of it.", examples=["search"])
    outcome: Outcome | None = Field(description="How it ended; null while it has not.", examples=["promoted"])
    reason: str = Field(
        description="Why it stands or ended so.", examples=["the winner serves on every replica"]
    )
    created_at: datetime = Field(description="When it was started.", examples=["2026-01-05T02:00:00Z"])
    ended_at: datetime | None = Field(
        description="When it ended; null while it has not.", examples=["2026-01-05T04:10:00Z"]
    )
    trials: int = Field(description="How many trials it made so far, all kinds.", examples=[9])


class PlanAnswer(Answer):
    """What was fixed when the study started."""

    max_trials: int = Field(description="Configurations tried at most.", examples=[12])
    ramp_steps: int = Field(description="Load levels of one trial.", examples=[6])
    minimum_gain: float = Field(
        description="Smaller relative gains keep the incumbent: 0.05 is 5 %.", examples=[0.05]
    )
    max_voids: int = Field(
        description="How often a level is repeated that the environment spoilt.", examples=[2]
    )
    approval: Approval = Field(description="Whether a winner waits for an approver.", examples=["manual"])
    sampler: str = Field(description="What proposes configurations.", examples=["greybox"])
    seed: int = Field(description="The sampler's seed.", examples=[0])


class StudyAnswer(StudyItem):
    """A study as it stands, without its trials."""

    actor: str = Field(description="Who started it.", examples=["anna"])
    wish: Wish = Field(
        description="What an operator last asked of it; its next tick obeys.", examples=["run"]
    )
    sequence: int = Field(
        description="Number of its newest journal entry; event ids are the same.", examples=[42]
    )
    objective: str = Field(description="What it maximises.", examples=["capacity"])
    slo_budget: BudgetAnswer = Field(
        description="The version of the SLO budget it is judged by, whatever changes later."
    )
    plan: PlanAnswer = Field(description="What was fixed when it started.")
    winner: int | None = Field(
        description="Number of the trial whose configuration is to be promoted; null while there is none.",
        examples=[3],
    )
    promoted: list[str] = Field(description="Stable replicas that carry the winner.", examples=[["stable-0"]])
    harm_requests: float = Field(
        description="Slow or failed requests above the allowed 1 % that it has caused.", examples=[12.5]
    )
    dispersion: Unbounded = Field(
        description="Factor that all counts are divided by, from 1.", examples=[2.4]
    )
    total_rate_per_second: float | None = Field(
        description="Mean rate over all replicas during the baseline, requests per second; null before it.",
        examples=[412.0],
    )


class TrialItem(Answer):
    """A trial as a list shows it."""

    study: str = Field(
        description="The study it belongs to.", examples=["small-vision-20260105-020000-1f2e3d"]
    )
    target: str = Field(description="The study's target.", examples=["small-vision"])
    number: int = Field(description="Its number in the study, from 0.", examples=[3])
    kind: TrialKind = Field(description="Why the configuration is measured.", examples=["candidate"])
    state: TrialState = Field(description="What is durably true of it.", examples=["judged"])
    replicas: list[str] = Field(description="The replicas under test.", examples=[["canary"]])
    configuration: ConfigurationAnswer = Field(description="The configuration.")
    verdict: Verdict | None = Field(description="The verdict; null before it.", examples=["accept"])
    limited_by: str = Field(
        description="What ended the ramp: `ceiling`, `traffic`, `evidence`, `harm budget`, `load`, or `proposal` for a "
        "trial that was only to be learnt from; empty before it.",
        examples=["ceiling"],
    )
    reason: str = Field(
        description="Why the verdict is what it is.", examples=["ACCEPT up to 120 requests/s"]
    )
    capacity_per_second: float | None = Field(
        description="Highest accepted rate of one replica, requests per second; null when no level was accepted.",
        examples=[120.5],
    )
    harm_requests: float = Field(
        description="Slow or failed requests above the allowed 1 % that it caused.", examples=[1.5]
    )
    proposed_at: datetime = Field(description="When it was proposed.", examples=["2026-01-05T02:12:00Z"])
    ended_at: datetime | None = Field(
        description="When it ended; null while it has not.", examples=["2026-01-05T02:20:00Z"]
    )


class CountsAnswer(Answer):
    """Ended requests of a window, and how many of them were slow or failed."""

    total: int = Field(description="Ended requests.", examples=[1300])
    bad_at_most: int = Field(description="Slow or failed, upper bound from the histogram.", examples=[3])
    bad_at_least: int = Field(description="Slow or failed, lower bound from the histogram.", examples=[2])
    failed: int = Field(description="Failed.", examples=[1])


class PartAnswer(Answer):
    """One part of the way of slow requests."""

    part: Part = Field(
        description="Where: `gateway`, `network`, `gateway_or_network` (the gateway has no span of passing on), "
        "`behind_gateway` (Triton's spans are missing), `triton` (beside the model), `queue`, `compute_input`, "
        "`compute_infer` or `compute_output`.",
        examples=["queue"],
    )
    mean_ms: float = Field(
        description="Mean over the slow requests that were seen, milliseconds.", examples=[80.5]
    )
    longest_in: int = Field(description="In how many of them it was the longest part.", examples=[7])


class SlowestAnswer(Answer):
    """One slow request."""

    trace_id: str = Field(description="Its trace.", examples=["6e2a9906b2538a6aeb74f1f2d1adcb3a"])
    ms: float = Field(description="How long it took, milliseconds.", examples=[187.2])
    longest: Part = Field(description="In which part it spent most of that.", examples=["gateway"])


class SlowBySpanAnswer(Answer):
    """What traces told of slow requests: an explanation, on which no verdict rests."""

    source: str = Field(description="Who was asked.", examples=["Jaeger"])
    requests: int = Field(description="Slow requests that were seen: a sample, not a count.", examples=[7])
    mean_ms: float | None = Field(
        description="Their mean length, milliseconds; the parts add up to it. Null where none was seen.",
        examples=[182.0],
    )
    outside_inference: float | None = Field(
        description="Share of their time, 0 to 1, that the model's backend did not have them; null where not known.",
        examples=[0.88],
    )
    parts: list[PartAnswer] = Field(description="Where their time went, from outside in.")
    slowest: list[SlowestAnswer] = Field(description="A few of them, to be looked at.")
    remarks: list[str] = Field(
        description="What was incomplete or odd.", examples=[["2 of 9 without Triton's spans"]]
    )
    fault: str = Field(description="Why nothing was told; empty when something was.", examples=[""])


class StepAnswer(Answer):
    """One judged load level: what was measured, what it was judged on, what the evidence had to reach."""

    level: int = Field(description="The level's number, from 0; -1 while warming up.", examples=[2])
    share: float = Field(
        description="Share of all requests, 0 to 1, of the replica under test.", examples=[0.4]
    )
    attempt: int = Field(description="How often steps of this trial were void before.", examples=[0])
    started_at: datetime = Field(description="When its window opened.", examples=["2026-01-05T02:13:00Z"])
    ended_at: datetime = Field(description="When its window closed.", examples=["2026-01-05T02:14:00Z"])
    rate_per_second: float = Field(
        description="Requests per second and replica under test.", examples=[120.5]
    )
    total_rate_per_second: float = Field(
        description="Requests per second over all replicas.", examples=[301.2]
    )
    verdict: Verdict = Field(description="The verdict on this level.", examples=["accept"])
    reason: str = Field(description="Why.", examples=["ACCEPT: 3 of 1300 slow or failed"])
    counts: CountsAnswer = Field(description="Counts of the replicas under test.")
    control: CountsAnswer = Field(description="Counts of the other stable replicas in the same window.")
    estimate: float = Field(description="Share of slow or failed requests, 0 to 1.", examples=[0.0023])
    interval_95: list[float] = Field(
        description="95 % interval of the estimate.", examples=[[0.0005, 0.0067]]
    )
    dispersion: Unbounded = Field(description="Factor that the evidence was divided by.", examples=[1.4])
    allowed_share: float = Field(
        description="Share of slow or failed requests that is allowed.", examples=[0.01]
    )
    accept_alpha: float = Field(description="Error level of an ACCEPT.", examples=[0.05])
    reject_alpha: float = Field(description="Error level of a REJECT for slowness.", examples=[0.025])
    log_e_accept: Unbounded = Field(
        description="Natural log of the evidence for below the allowed share.", examples=[4.6]
    )
    log_e_reject: Unbounded = Field(
        description="Natural log of the evidence for above the allowed share.", examples=[-12.3]
    )
    p50_ms: float | None = Field(description="Median latency, milliseconds.", examples=[20.0])
    p95_ms: float | None = Field(description="95th percentile of latency, milliseconds.", examples=[50.0])
    p99_ms: float | None = Field(description="99th percentile of latency, milliseconds.", examples=[88.0])
    compute_error_ms: float | None = Field(
        description="Standard error of compute_ms_per_inference, milliseconds.", examples=[0.01]
    )
    queue_ms: float | None = Field(description="Mean time in Triton's queue, milliseconds.", examples=[5.0])
    compute_ms: float | None = Field(
        description="Mean compute time of a request, milliseconds.", examples=[10.0]
    )
    realised_batch: float | None = Field(description="Mean inferences per execution.", examples=[3.7])
    compute_ms_per_inference: float | None = Field(
        description="Compute time per inference, milliseconds.", examples=[2.5]
    )
    device_utilisation: float | None = Field(description="Busy share of the device, 0 to 1.", examples=[0.5])
    memory_used_bytes: float | None = Field(description="Device memory in use, bytes.", examples=[1e9])
    memory_total_bytes: float | None = Field(description="Device memory there is, bytes.", examples=[16e9])
    slow_requests_caused: float = Field(
        description="Slow or failed requests above the allowed 1 %.", examples=[1.5]
    )
    slow_by_span: SlowBySpanAnswer | None = Field(
        description="Where slow requests spent their time, by their spans; null where nobody was asked."
    )


class ProposalAnswer(Answer):
    """Why the configuration was proposed."""

    sampler: str = Field(description="What proposed it.", examples=["greybox"])
    reason: str = Field(description="Why.", examples=["the best of 24 candidates by expected improvement"])
    predicted: dict[str, float] = Field(
        description="Figures behind the proposal; names carry the units.",
        examples=[{"capacity_per_second": 130.0}],
    )


class SourceAnswer(Answer):
    """Where the counts of a trial were read."""

    what: str = Field(
        description="`gateway`, a replica's name, or `servers` for all replicas.", examples=["gateway"]
    )
    url: str = Field(
        description="The page that was scraped, look by look, or the metrics server that was asked; `POD` stands for a "
        "pod's address.",
        examples=["http://10.0.0.10:8002/metrics"],
    )
    query: str = Field(
        description="The PromQL selector whose raw samples were asked for; empty for a scraped page.",
        examples=[""],
    )


class TrialAnswer(TrialItem):
    """A trial with all evidence behind its verdict."""

    capacity_at_least: bool = Field(
        description="Whether only the traffic ended the ramp: the capacity is then at least as given."
    )
    voids: int = Field(description="Steps that the environment spoilt.", examples=[0])
    proposal: ProposalAnswer | None = Field(
        description="Why it was proposed; null for what no sampler proposes."
    )
    sources: list[SourceAnswer] = Field(description="Where its counts were read.")
    trace_id: str = Field(
        description="Its trace: every tick and call that carried it, where traces are sent (OTLP).",
        examples=["4bf92f3577b34da6a3ce929d0e0e4736"],
    )
    trace_url: str | None = Field(
        description="Where to look at the trace; null where no place is set.",
        examples=["http://127.0.0.1:16686/trace/4bf92f3577b34da6a3ce929d0e0e4736"],
    )
    steps: list[StepAnswer] = Field(description="Every judged load level, in order.")


class StandingAnswer(Answer):
    """One configuration as a study measured it; null for what was not measured."""

    configuration: ConfigurationAnswer = Field(description="The configuration.")
    capacity_per_second: float | None = Field(
        description="Highest accepted rate per replica, requests per second.", examples=[120.5]
    )
    capacity_at_least: bool = Field(description="Whether only the traffic limited it.")
    p99_ms: float | None = Field(
        description="p99 at production's load per replica, milliseconds.", examples=[88.0]
    )
    compute_seconds_per_million: float | None = Field(
        description="Compute seconds of a million inferences at that load.", examples=[2500.0]
    )
    cost_per_million: float | None = Field(
        description="Cost of a million inferences at capacity, in the target's currency.", examples=[5.8]
    )


class GpuHoursAnswer(Answer):
    """What finding out cost in GPU hours, and what the winner saves; null where it is not known, never zero."""

    gpus_per_replica: int | None = Field(
        description="GPUs of one replica, as its configuration names them.", examples=[1]
    )
    canary: float | None = Field(
        description="GPU hours of the canary from the study's start to its end.", examples=[3.2]
    )
    measuring: float | None = Field(
        description="The part of them, GPU hours, in which judged windows were open.", examples=[0.7]
    )
    saved_per_day: float | None = Field(
        description="GPU hours a day that production's load needs less with the winner, every replica at its capacity; "
        "negative where it needs more.",
        examples=[38.4],
    )
    saved_at_least: bool = Field(
        description="Whether that is a lower bound: only the traffic limited the winner."
    )
    unknown: str = Field(
        description="Why what is null is not known; empty when all is.",
        examples=["the model's instances are KIND_CPU"],
    )


class PromotionAnswer(Answer):
    """What a study would bring into production, or brought, and what that is worth."""

    study: str = Field(description="The study.", examples=["small-vision-20260105-020000-1f2e3d"])
    target: str = Field(description="Its target.", examples=["small-vision"])
    phase: Phase = Field(description="`approval` while somebody must decide.", examples=["approval"])
    outcome: Outcome | None = Field(
        description="How the study ended; null while it has not.", examples=["promoted"]
    )
    wish: Wish = Field(description="What was last asked of the study.", examples=["approve"])
    started_by: str = Field(
        description="Who started it; with four eyes somebody else must approve.", examples=["anna"]
    )
    winner_trial: int | None = Field(
        description="Number of the winner's trial; null while there is none.", examples=[3]
    )
    promoted: list[str] = Field(description="Stable replicas that carry the winner.", examples=[["stable-0"]])
    incumbent: StandingAnswer | None = Field(description="What served before; null before it was measured.")
    winner: StandingAnswer | None = Field(
        description="The winner, or the best candidate so far; null without one."
    )
    capacity_ratio: float | None = Field(
        description="The winner's capacity over the incumbent's; null where one is not known.", examples=[1.4]
    )
    harm_requests: float = Field(
        description="Slow or failed requests above the allowed 1 % that finding out cost.", examples=[12.5]
    )
    harm_budget_requests: int = Field(description="How many it may cost.", examples=[500])
    gpu_hours: GpuHoursAnswer = Field(description="What it cost in GPU hours, and what it saves a day.")


class ProgressAnswer(Answer):
    """One line of a study's journal."""

    sequence: int = Field(description="Its number, from 1.", examples=[42])
    at: datetime = Field(description="When.", examples=["2026-01-05T02:13:00Z"])
    kind: str = Field(description="`decision` or `outcome`.", examples=["decision"])
    reason: str = Field(
        description="What was decided or what came of it, and why.", examples=["level 2 is accepted"]
    )
    actor: str = Field(description="The worker that wrote it.", examples=["host:4711"])


def study_item(summary: StudySummary) -> StudyItem:
    """Return a study as a list shows it."""
    return StudyItem(**_summary(summary))


def _summary(summary: StudySummary) -> dict[str, Any]:
    return {
        **vars(summary),
        "phase": Phase(summary.phase),
        "outcome": None if summary.outcome is None else Outcome(summary.outcome),
    }


def study_answer(standing: StudyStanding) -> StudyAnswer:
    """Return a study as it stands."""
    plan = standing.plan
    return StudyAnswer(
        **_summary(standing.summary),
        actor=standing.actor,
        wish=standing.wish,
        sequence=standing.sequence,
        objective=plan.target.objective.value,
        slo_budget=budget_answer(plan.slo),
        plan=PlanAnswer(**{name: getattr(plan, name) for name in PlanAnswer.model_fields}),
        winner=standing.winner,
        promoted=list(standing.promoted),
        harm_requests=standing.harm_requests,
        dispersion=_bounded(standing.dispersion),
        total_rate_per_second=standing.reference_rate_per_second,
    )


def trial_item(trial: TrialSummary) -> TrialItem:
    """Return a trial as a list shows it."""
    return TrialItem(**_trial(trial))


def _trial(trial: TrialSummary) -> dict[str, Any]:
    said = {**vars(trial), "replicas": list(trial.replicas)}
    said["configuration"] = ConfigurationAnswer(
        max_queue_delay_microseconds=trial.configuration.max_queue_delay_microseconds,
        preferred_batch_size=list(trial.configuration.preferred_batch_size),
        instance_count=trial.configuration.instance_count,
        max_batch_size=trial.configuration.max_batch_size,
    )
    return said


def trial_answer(evidence: TrialEvidence, trace_template: str = "") -> TrialAnswer:
    """Return a trial with all its evidence. trace_template: where traces are looked at, empty for nowhere."""
    trace_id = course_of_trial(evidence.summary.study, evidence.trial.number).trace_id
    told = trial_object(evidence.trial, evidence.summary.capacity_per_second)
    return TrialAnswer(
        **_trial(evidence.summary),
        capacity_at_least=told["capacity_at_least"],
        voids=told["voids"],
        proposal=told["proposal"],
        sources=[SourceAnswer(**vars(origin)) for origin in origins_of(evidence.plan.target)],
        trace_id=trace_id,
        trace_url=trace_url(trace_template, trace_id),
        steps=[StepAnswer(**step) for step in told["steps"]],
    )


def promotion_answer(study: Study, wish: Wish) -> PromotionAnswer:
    """Return what a study would bring into production, or brought."""
    worth = benefit(study)
    incumbent, winner = standing_object(worth.incumbent), standing_object(worth.winner)
    return PromotionAnswer(
        study=study.id,
        target=study.plan.target.name,
        phase=study.phase,
        outcome=study.outcome,
        wish=wish,
        started_by=study.actor,
        winner_trial=study.winner,
        promoted=list(study.promoted),
        incumbent=None if incumbent is None else StandingAnswer(**incumbent),
        winner=None if winner is None else StandingAnswer(**winner),
        capacity_ratio=worth.capacity_ratio,
        harm_requests=worth.harm_requests,
        harm_budget_requests=worth.harm_budget_requests,
        gpu_hours=GpuHoursAnswer(**gpu_hours_object(worth.gpu_hours)),
    )


def progress_answer(line: Progress) -> ProgressAnswer:
    """Return one line of a study's journal."""
    return ProgressAnswer(**vars(line))


def _bounded(number: float) -> Unbounded:
    if number == float("inf"):
        return "inf"
    return "-inf" if number == float("-inf") else number

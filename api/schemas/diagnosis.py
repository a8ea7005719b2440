"""A diagnosis on the wire: the object of `autotuner diagnose --json`, field by field. What is not known is null."""

from __future__ import annotations

from datetime import datetime, timedelta

from pydantic import Field

from api.schemas.wire import Answer
from autotuner.domain.findings.kinds import Confidence, Kind
from autotuner.domain.needs import Answer as Known
from autotuner.section_values import Duration
from autotuner.sections import Section

SHORTEST, LONGEST = timedelta(seconds=2), timedelta(seconds=60)
WINDOW_ALLOWED = "a duration from 2s to 60s"
EXAMPLE_ASKED = {"window": "20s", "p99_ms": 80}


class AskDiagnosis(Section):
    """How long to look, and what to hold it against."""

    window: Duration = Field(default=timedelta(seconds=10), description=f"{WINDOW_ALLOWED}: how long to look")
    p99_ms: float | None = Field(
        default=None,
        gt=0,
        le=600_000,
        description="milliseconds above 0, up to 600000: the ceiling; left out: the target's own",
    )


class FindingAnswer(Answer):
    """One thing that is the matter, or that nothing is."""

    kind: Kind = Field(description="What it is; the list is closed.", examples=["misconfiguration"])
    confidence: Confidence = Field(description="How sure that is.", examples=["sure"])
    evidence: list[str] = Field(description="Sentences with the figures it rests on.")
    remedy: str = Field(description="What to do.", examples=["remove preferred_batch_size"])


class TimesAnswer(Answer):
    """Milliseconds of a part of a request."""

    mean: float | None = Field(description="Mean over the window, milliseconds.", examples=[12.5])
    p50: float | None = Field(description="Median, milliseconds.", examples=[11.0])
    p95: float | None = Field(description="95th percentile, milliseconds.", examples=[25.0])
    p99: float | None = Field(description="99th percentile, milliseconds.", examples=[40.0])


class BreakdownAnswer(Answer):
    """Where a request's time goes, in milliseconds."""

    source: str = Field(description="What measured the whole.", examples=["the gateway's histogram"])
    total: TimesAnswer = Field(description="The whole, as the outermost source saw it.")
    before_triton: TimesAnswer = Field(description="Gateway less Triton.")
    queue: TimesAnswer = Field(description="In the queue of Triton's batcher.")
    compute_input: TimesAnswer = Field(description="Copying inputs.")
    compute_infer: TimesAnswer = Field(description="In the model.")
    compute_output: TimesAnswer = Field(description="Copying outputs.")
    rest: TimesAnswer = Field(description="In Triton, but in none of these counters.")


class RealisedSizeAnswer(Answer):
    """One batch size that ran."""

    batch_size: int = Field(description="Items of the batch.", examples=[8])
    executions: int = Field(description="How often it ran in the window.", examples=[160])
    share: float = Field(description="Fraction of all executions, 0 to 1.", examples=[0.8])
    mean_ms: float = Field(description="Mean time of one, milliseconds.", examples=[21.4])


class RealisedAnswer(Answer):
    """Realised against configured batch size, with the device."""

    mean: float | None = Field(description="Items of the mean execution.", examples=[6.9])
    p50: int | None = Field(description="Median size over executions.", examples=[8])
    p95: int | None = Field(description="95th percentile of the size.", examples=[8])
    p99: int | None = Field(description="99th percentile of the size.", examples=[9])
    configured: int | None = Field(description="max_batch_size.", examples=[32])
    preferred: list[int] = Field(description="Preferred sizes as they are set.", examples=[[4, 8]])
    histogram: list[RealisedSizeAnswer] = Field(description="Sizes that ran, smallest first.")
    device_utilisation: float | None = Field(
        description="Mean fraction of the time, 0 to 1, that the device was busy.", examples=[0.93]
    )
    memory_used_bytes: float | None = Field(description="Device memory in use, bytes.", examples=[9e8])
    memory_total_bytes: float | None = Field(description="Device memory, bytes.", examples=[16e9])


class TunedAnswer(Answer):
    """A configuration, spelt as Triton spells it."""

    max_queue_delay_microseconds: int = Field(description="Microseconds.", examples=[0])
    preferred_batch_size: list[int] = Field(description="Batch sizes.", examples=[[4, 8]])
    instance_count: int = Field(description="Instances on one replica.", examples=[1])
    max_batch_size: int = Field(description="Largest batch.", examples=[32])


class BandAnswer(Answer):
    """A predicted figure and the limits it lies between in nine cases of ten."""

    value: float = Field(description="The figure.", examples=[212.0])
    low: float = Field(description="Lower limit.", examples=[190.0])
    high: float = Field(description="Upper limit.", examples=[236.0])


class ExpectedAnswer(Answer):
    """What is expected of a configuration."""

    configuration: TunedAnswer = Field(description="Which one.")
    p99_ms: BandAnswer = Field(description="p99 at today's rate, milliseconds.")
    capacity_per_second: BandAnswer | None = Field(
        description="Highest rate within the ceiling, requests per second on one replica; null: never within it."
    )
    mean_batch: float = Field(description="Items of the mean execution at today's rate.", examples=[3.1])
    device_ms_per_inference: float = Field(
        description="Device time of one inference, milliseconds.", examples=[4.2]
    )


class PredictedCostAnswer(Answer):
    """What a million inferences cost."""

    currency: str = Field(description="Currency.", examples=["USD"])
    now_at_capacity: float | None = Field(
        description="With today's configuration at its capacity.", examples=[2.9]
    )
    then_at_capacity: float | None = Field(description="With the best one at its capacity.", examples=[1.8])
    at_todays_rate: float = Field(description="At today's rate, whatever the configuration.", examples=[4.0])


class BurstsAnswer(Answer):
    """Bursts between two counts, inferred."""

    sigma: float = Field(description="Standard deviation of the rate's logarithm.", examples=[0.4])
    seconds: float = Field(description="How long one lasts, seconds.", examples=[0.15])


class ArrivalsAnswer(Answer):
    """How requests arrive."""

    rate_per_second: float = Field(description="Requests per second on the busiest replica.", examples=[170])
    dispersion_of_counts: float = Field(
        description="Variance over mean of the counts: 1 for Poisson arrivals, more for bursts.",
        examples=[1.7],
    )
    seconds_between_counts: float = Field(description="Seconds from one count to the next.", examples=[0.25])
    bursts_between_counts: BurstsAnswer = Field(description="What the counts cannot show.")


class CurveAnswer(Answer):
    """One point of the batch-latency curve."""

    batch_size: int = Field(description="Items.", examples=[8])
    seen_ms: float | None = Field(
        description="Mean time in the window, milliseconds; null: did not run.", examples=[21.4]
    )
    executions: int = Field(description="How often it ran.", examples=[160])
    fitted_ms: float = Field(description="The fitted curve, milliseconds.", examples=[21.3])


class FrontierAnswer(Answer):
    """The lowest p99 at a throughput."""

    rate_per_second: float = Field(description="Requests per second on one replica.", examples=[200])
    p99_ms: float = Field(description="Milliseconds.", examples=[63.0])
    configuration: TunedAnswer = Field(description="Which configuration reaches it.")


class DiagnosedPredictionAnswer(Answer):
    """What tuning would be worth, or why that cannot be said; everything after `doubts` only where it can."""

    possible: bool = Field(description="Whether the window carries a prediction.")
    conclusion: str = Field(description="One sentence.")
    why_not: str | None = Field(description="Why there is none.", examples=["no request came in the window"])
    needed: list[str] = Field(description="What would have to be measured.")
    doubts: list[str] = Field(description="What the bands do not hold.")
    today: ExpectedAnswer | None = Field(default=None, description="Today's configuration.")
    best: ExpectedAnswer | None = Field(
        default=None, description="The best one; null: none holds the ceiling at today's rate."
    )
    cost_per_million: PredictedCostAnswer | None = Field(
        default=None, description="Money; null without a price of a replica."
    )
    arrivals: ArrivalsAnswer | None = Field(default=None, description="The arrival process.")
    curve: list[CurveAnswer] = Field(default=[], description="The batch-latency curve.")
    frontier: list[FrontierAnswer] = Field(default=[], description="The frontier, by rising rate.")
    knee: FrontierAnswer | None = Field(
        default=None, description="Where more throughput begins to cost much."
    )


class NeedAnswer(Answer):
    """One thing that a study needs."""

    what: str = Field(description="Its name.", examples=["a weighted route"])
    answer: Known = Field(description="Whether it is there.", examples=["yes"])
    detail: str = Field(description="One sentence.")


class StudyPossibleAnswer(Answer):
    """Whether a study could run."""

    possible: bool | None = Field(description="Null: something that decides is not known.")
    missing: list[str] = Field(description="What is not there, or not known.")
    verdict_takes_seconds: float | None = Field(
        description="Seconds that one verdict would take at this rate.", examples=[120]
    )
    needs: list[NeedAnswer] = Field(description="Each need.")


class LookedAtAnswer(Answer):
    """One server that was looked at."""

    triton: str | None = Field(description="Its version.", examples=["2.51.0"])
    model_versions: list[str] = Field(
        description="Versions of the model that it has loaded; empty where it does not tell.",
        examples=[["1"]],
    )
    requests: int = Field(description="Requests that it finished in the window.", examples=[1700])
    reloads: int = Field(description="How often the model was loaded anew in the window.", examples=[0])


class CertifiedAnswer(Answer):
    """What the target's newest certificate says of what was looked at."""

    study: str = Field(
        description="The study that gave it.", examples=["small-vision-20260105-020000-1f2e3d"]
    )
    lapsed: str = Field(
        description="Why its certificate no longer covers what production runs; empty while it does.",
        examples=["stable-0 runs version 2 of the model instead of 1: to be certified again"],
    )


class UnreadAnswer(Answer):
    """Something that could not be read."""

    what: str = Field(description="What.")
    why: str = Field(description="Why.")
    lost: str = Field(description="What is lost by it.")


class DiagnosisAnswer(Answer):
    """What is wrong with a target's servers, and what tuning would be worth."""

    version: str = Field(description="Version of the autotuner.", examples=["0.1.0"])
    model: str = Field(description="The model.", examples=["small_vision"])
    at: datetime = Field(description="End of the window.", examples=["2026-01-05T02:00:00Z"])
    window_seconds: float = Field(description="Length of the window, seconds.", examples=[10.0])
    p99_ceiling_ms: float = Field(description="The ceiling, milliseconds.", examples=[100.0])
    rate_per_second: float = Field(description="Requests per second on the mean replica.", examples=[170.0])
    configuration: TunedAnswer | None = Field(description="Today's; null: not one that can be tuned.")
    replicas: dict[str, LookedAtAnswer] = Field(description="By the replica's name.")
    headline: str = Field(description="The most important finding in one line.")
    findings: list[FindingAnswer] = Field(description="Most important first; never empty.")
    breakdown_ms: BreakdownAnswer = Field(description="Where a request's time goes.")
    realised_batch: RealisedAnswer = Field(description="Realised against configured batch size.")
    prediction: DiagnosedPredictionAnswer = Field(description="What tuning would be worth.")
    study_possible: StudyPossibleAnswer = Field(
        description="Whether a study could run here, and what it lacks."
    )
    unread: list[UnreadAnswer] = Field(description="What could not be read.")
    certificate: CertifiedAnswer | None = Field(
        default=None, description="Whether the newest certificate holds; null without one."
    )

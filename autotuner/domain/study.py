"""Records of a study and of its trials: frozen values that only `lifecycle` evolves.

Everything a decision needs is in here or in the observation beside it, so that a decision can be computed
again from the records (guards rule 4).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from autotuner.domain.configuration import Configuration
from autotuner.domain.judgement import Counts, Judgement, Verdict
from autotuner.domain.measurement import BatchTiming, Latency, Sample, ServerUse
from autotuner.domain.provenance import UNKNOWN, Provenance
from autotuner.domain.slo import SloBudget
from autotuner.domain.slow_requests import SlowRequests
from autotuner.domain.target import Target
from autotuner.stats import overdispersion

UNKNOWN_DISPERSION = overdispersion.DEFAULT
"""Assumed until production has been looked at: the same as when a look at it says too little."""


GREYBOX = "greybox"
"""The sampler that knows the batcher; the others are Optuna's own."""

METHOD = 2
"""Version of the grey-box method, raised whenever the same records would give another proposal."""


class Phase(StrEnum):
    """What is durably true of a study."""

    CREATED = "created"
    BASELINE = "baseline"
    SEARCH = "search"
    CONFIRMATION = "confirmation"
    APPROVAL = "approval"
    PROMOTION = "promotion"
    WATCH = "watch"
    RESTORATION = "restoration"
    ENDED = "ended"


class Outcome(StrEnum):
    """How a study ended."""

    PROMOTED = "promoted"
    KEPT = "kept"
    INCONCLUSIVE = "inconclusive"
    ABORTED = "aborted"
    ROLLED_BACK = "rolled_back"
    """A study that took an earlier promotion back: production is as it was before it."""


class TrialKind(StrEnum):
    """Why a configuration is measured. All kinds go through the same procedure."""

    PRODUCTION = "production"
    """The stable replicas as they were found; nothing is changed."""
    BASELINE = "baseline"
    """The incumbent on the canary (A/A)."""
    CANDIDATE = "candidate"
    CONFIRMATION = "confirmation"
    CONTROL = "control"
    """The incumbent again, on fresh data, right after the winner was confirmed."""
    STAGE = "stage"
    """One stable replica after its promotion."""
    WATCH = "watch"
    """All stable replicas after the last stage."""


IN_PRODUCTION = frozenset({TrialKind.PRODUCTION, TrialKind.STAGE, TrialKind.WATCH})
"""Kinds whose replicas are measured at production's own weights."""


class TrialState(StrEnum):
    """What is durably true of a trial."""

    PROPOSED = "proposed"
    APPLIED = "applied"
    WARMING = "warming"
    ROUTED = "routed"
    MEASURING = "measuring"
    RETREATING = "retreating"
    JUDGED = "judged"


class Approval(StrEnum):
    """Who lets a winner into production."""

    AUTOMATIC = "automatic"
    MANUAL = "manual"


class Wish(StrEnum):
    """What an operator last asked of a study; the next tick obeys."""

    RUN = "run"
    PAUSE = "pause"
    CANCEL = "cancel"
    APPROVE = "approve"
    DISAPPROVE = "disapprove"


@dataclass(frozen=True)
class Pace:
    """How long each part of a study may take."""

    warm_up: timedelta = timedelta(seconds=30)
    """How long a newly loaded configuration carries little traffic, after the first cold second."""
    settle: timedelta = timedelta(seconds=10)
    look_interval: timedelta = timedelta(seconds=5)
    flush_interval: timedelta = timedelta(seconds=5)
    """How often the gateway merges its histograms."""
    step_minimum: timedelta = timedelta(seconds=30)
    """A level is not accepted sooner, however good it looks: bursts come and go."""
    production_window: timedelta = timedelta(minutes=2)
    """How long production is watched before anything is changed: its rate and burstiness are learnt from it."""
    step_limit: timedelta = timedelta(minutes=10)
    no_data_limit: timedelta = timedelta(seconds=30)
    load_limit: timedelta = timedelta(minutes=5)
    stage_limit: timedelta = timedelta(minutes=20)
    bake: timedelta = timedelta(minutes=30)
    approval_limit: timedelta = timedelta(hours=12)
    study_limit: timedelta = timedelta(hours=6)
    restore_limit: timedelta = timedelta(minutes=10)


@dataclass(frozen=True)
class StudyPlan:
    """All that is fixed when a study starts."""

    target: Target
    slo: SloBudget
    pace: Pace = Pace()
    max_trials: int = 12
    ramp_steps: int = 6
    warm_up_share: float = 0.10
    """Share of requests the canary carries while it warms up, at most its fair share."""
    minimum_gain: float = 0.05
    """Relative gain in the leading objective below which the incumbent is kept."""
    max_voids: int = 2
    """How often a step that the environment spoilt is repeated."""
    max_dispersion: float = math.inf
    """The dispersion factor is not taken higher than this. A brisk rehearsal limits it to end within minutes, and
    says so; near saturation slow requests come in clusters of a hundred, and honest evidence takes that much more."""
    approval: Approval = Approval.AUTOMATIC
    sampler: str = GREYBOX
    seed: int = 0
    keeps_batches: bool = True
    """Whether steps keep realised batches and arrivals. Studies recorded before that was possible do without, and read
    back as they were: their replay stays the same."""
    reverses: Reversal | None = None
    """The promotion that this study takes back; it then tries nothing. None for a study that tunes."""
    method: int = METHOD
    """Version of the grey-box method that the study began with. A replay computes its proposals again only by the same
    version; records from before versions were kept mean 1."""
    tells_needs: bool = True
    """Whether its beginning tells what of a study's needs was doubtful or not known; earlier records do not."""
    keeps_counts: bool = True
    """Whether the step of production keeps what was counted in it; earlier records do not."""


@dataclass(frozen=True)
class Incumbent:
    """Production as it was found, restored exactly unless a winner is promoted.

    configs: the complete model configuration of each replica, as JSON text; fingerprints: what they mean.
    weights: the gateway's weights; configuration: the tuned fields, the same on every stable replica.
    """

    configuration: Configuration
    configs: Mapping[str, str]
    fingerprints: Mapping[str, str]
    weights: Mapping[str, int]
    provenance: Provenance = UNKNOWN
    """What production and canary ran when the study began, as far as it was told."""


@dataclass(frozen=True)
class Reversal:
    """A promotion that is to be taken back: the study that made it, production before it, and what it promoted."""

    study_id: str
    before: Incumbent
    promoted: Configuration


@dataclass(frozen=True)
class Level:
    """One load level: the share of all requests that the measured replica carries."""

    number: int
    share: float


@dataclass(frozen=True)
class Arrived:
    """Requests sent to the replicas under test between two looks, and the seconds between them."""

    seconds: float
    sent: int


@dataclass(frozen=True)
class Increment:
    """What happened on the replicas under test between two looks.

    total: measured requests; over: those above each bucket edge, from the ceiling's edge downwards; failed: failures.
    compute_seconds and inferences are None where the servers did not tell.
    """

    total: int
    over: tuple[int, ...]
    failed: int
    compute_seconds: float | None
    inferences: int | None
    arrived: Arrived | None = None
    """What was sent to them; None where the plan does not keep it."""


@dataclass(frozen=True)
class Step:
    """One judged load level inside a trial."""

    level: Level
    attempt: int
    started_at: datetime
    ended_at: datetime
    candidate: Counts
    control: Counts
    rate_per_second: float
    total_rate_per_second: float
    latency: Latency
    use: ServerUse | None
    harm_requests: float
    judgement: Judgement
    compute_error: float | None = None
    """Standard error of `use.compute_seconds_per_inference`, from its spread over the looks of the window."""
    increments: tuple[Increment, ...] = ()
    """Look by look, kept for production and the baseline: the dispersion of the counts is learnt from them."""
    batches: tuple[BatchTiming, ...] = ()
    """What the replica under test ran in the window, by batch size; empty where it is unknown or they are several."""
    arrived: tuple[Arrived, ...] = ()
    """Requests sent, look by look, up to the newest looks that a window keeps."""
    model_versions: tuple[str, ...] = ()
    """Versions of the model that were loaded on the replicas under test at its end; empty where untold."""
    counted: Sample | None = None
    """What gateway and servers counted in a window of production, kept for what a diagnosis makes of it; None else."""
    slow: SlowRequests | None = None
    """What traces told of its slow requests, read after it was judged; None where nobody was asked or has answered."""

    @property
    def verdict(self) -> Verdict:
        """The judgement's verdict."""
        return self.judgement.verdict


@dataclass(frozen=True)
class OpenWindow:
    """A load level being measured.

    routed: the sample at the change of weights (harm counts from there); first: where the window opens after
    settling; recent: the newest samples, as far back as a request may be overdue; increments: look by look.
    The level while warming up has the number -1: it is guarded, but no evidence for the configuration.
    """

    level: Level
    attempt: int
    routed_at: datetime
    routed: Sample | None = None
    first: Sample | None = None
    recent: tuple[Sample, ...] = ()
    increments: tuple[Increment, ...] = ()
    blind_since: datetime | None = None
    """Since when nothing could be read, if nothing can."""
    harm_requests: float = 0.0
    closed_at: datetime | None = None
    """When the traffic was taken away, if it was."""


@dataclass(frozen=True)
class Proposal:
    """A configuration to try and why.

    predicted: named figures behind the proposal (units in the names); empty for samplers that predict nothing.
    highest_rate_per_second: on one replica, above which no level of the trial is opened, where that is below what a
    replica carries in production: the trial is there to learn from and not to be chosen. None for the whole ramp.
    """

    configuration: Configuration
    reason: str
    sampler: str
    predicted: Mapping[str, float] = field(default_factory=dict)
    highest_rate_per_second: float | None = None


@dataclass(frozen=True)
class SearchOver:
    """Why no further configuration is worth a trial: what a sampler answers in place of a proposal."""

    reason: str


@dataclass(frozen=True)
class Trial:
    """One configuration put on a replica and measured over load levels.

    replicas: the replicas under test (one, or all stable ones in a watch). limited_by says what ended the
    ramp: `ceiling`, `traffic` (the highest level was accepted: capacity is censored), `evidence`, `harm budget`,
    `load`, or `proposal` (the highest level of a trial that only teaches was accepted).
    """

    number: int
    kind: TrialKind
    replicas: tuple[str, ...]
    configuration: Configuration
    levels: tuple[Level, ...]
    state: TrialState
    proposed_at: datetime
    reason: str = ""
    proposal: Proposal | None = None
    window: OpenWindow | None = None
    steps: tuple[Step, ...] = ()
    warmed: bool = False
    voids: int = 0
    blocked_since: datetime | None = None
    """Since when the configuration could not be put on its replicas, if it cannot."""
    draining_since: datetime | None = None
    """Since when the replica has been working off what it had, with no new traffic."""
    closed_harm_requests: float = 0.0
    tail: OpenWindow | None = None
    """The last window, while what the replicas were sent in it is still being answered: its harm goes on counting."""
    verdict: Verdict | None = None
    limited_by: str = ""
    ended_at: datetime | None = None

    @property
    def accepted(self) -> tuple[Step, ...]:
        """Steps that were accepted, lowest level first; warming up is not one of them."""
        return tuple(s for s in self.steps if s.verdict is Verdict.ACCEPT and s.level.number >= 0)

    @property
    def harm_requests(self) -> float:
        """Slow-or-failed requests above the allowed share that this trial has caused so far."""
        still = sum(window.harm_requests for window in (self.window, self.tail) if window is not None)
        return self.closed_harm_requests + still

    @property
    def only_teaches(self) -> bool:
        """Whether its proposal limits it to less than production's load: to learn from, and not to be chosen."""
        return self.proposal is not None and self.proposal.highest_rate_per_second is not None

    @property
    def censored(self) -> bool:
        """Whether the traffic, not the ceiling, ended the ramp."""
        return self.limited_by == "traffic"


@dataclass(frozen=True)
class Pending:
    """An action that was decided and whose outcome is not recorded yet."""

    action: Action
    decided_at: datetime


@dataclass(frozen=True)
class Load:
    """Put `configuration` on `replica` (its complete configuration with only the tuned fields changed)."""

    replica: str
    configuration: Configuration


@dataclass(frozen=True)
class Restore:
    """Put the incumbent's complete configuration back on `replica`, exactly as it was read."""

    replica: str


@dataclass(frozen=True)
class SetWeights:
    """Give each replica this weight at the gateway."""

    weights: Mapping[str, int]


@dataclass(frozen=True)
class Propose:
    """Ask the sampler for the next configuration."""

    number: int


@dataclass(frozen=True)
class PutUp:
    """Put up a canary beside a workload that has none of its own, and give the route a place for it."""


@dataclass(frozen=True)
class TakeDown:
    """Take the canary down and give the route back as it was."""


Action = Load | Restore | SetWeights | Propose | PutUp | TakeDown


@dataclass(frozen=True)
class Study:
    """One tuning run over a target."""

    id: str
    plan: StudyPlan
    created_at: datetime
    actor: str
    phase: Phase = Phase.CREATED
    incumbent: Incumbent | None = None
    trials: tuple[Trial, ...] = ()
    pending: Pending | None = None
    dispersion: float = UNKNOWN_DISPERSION
    """The factor all counts are divided by, within the plan's limit; measured_dispersion is without the limit."""
    measured_dispersion: float | None = None
    control_baseline: Counts | None = None
    reference_rate_per_second: float | None = None
    """Mean rate over all replicas during the baseline; what a level's share is a share of."""
    winner: int | None = None
    """Number of the trial whose configuration is to be promoted."""
    rejected_winners: tuple[int, ...] = ()
    promoted: tuple[str, ...] = ()
    """Stable replicas that carry the winner."""
    unsettled: tuple[str, ...] = ()
    """Replicas on which a load was given up without an answer: it may still take effect, until one succeeds."""
    phase_since: datetime | None = None
    canary_since: datetime | None = None
    """Since when there is a canary that this study put up, and has to take down."""
    proposed_to: str | None = None
    """Who owns production's configuration, where the winner was proposed to them and not promoted."""
    intended: Outcome | None = None
    outcome: Outcome | None = None
    reason: str = ""
    ended_at: datetime | None = None

    @property
    def harm_requests(self) -> float:
        """Slow-or-failed requests above the allowed share that this study has caused so far."""
        return sum(trial.harm_requests for trial in self.trials)

    @property
    def trial(self) -> Trial | None:
        """The newest trial."""
        return self.trials[-1] if self.trials else None

"""What lists can be asked: filters, sort, page. A parameter that nobody knows is refused: it would filter nothing."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from api.parameters import STUDY_PATTERN, Instant
from autotuner.bookkeeping.audit import AuditAction
from autotuner.catalogue import (
    MOST,
    AuditFilter,
    Between,
    Span,
    StudyFilter,
    TrialFilter,
    TrialOrder,
    TrialSort,
)
from autotuner.domain.configuration import MAX_DELAY_MICROSECONDS
from autotuner.domain.judgement import Verdict
from autotuner.domain.study import Outcome, Phase, TrialKind, TrialState
from autotuner.sections import NAME_PATTERN

LARGEST_BATCH = 1_000_000

Since = Annotated[
    Instant | None,
    Field(description="Not before this instant (RFC 3339).", examples=["2026-01-05T00:00:00Z"]),
]
Until = Annotated[
    Instant | None, Field(description="Before this instant (RFC 3339).", examples=["2026-01-06T00:00:00Z"])
]
Target = Annotated[
    str | None, Field(pattern=NAME_PATTERN, description="Only of this target.", examples=["small-vision"])
]
Study = Annotated[
    str | None,
    Field(
        pattern=STUDY_PATTERN,
        description="Only of this study.",
        examples=["small-vision-20260105-020000-1f2e3d"],
    ),
]
Delay = Annotated[
    int | None, Field(ge=0, le=MAX_DELAY_MICROSECONDS, description="Bound of the queue delay, microseconds.")
]
Instances = Annotated[int | None, Field(ge=0, le=1000, description="Bound of the instance count.")]
Batch = Annotated[int | None, Field(ge=0, le=LARGEST_BATCH, description="Bound of the largest batch size.")]


class Question(BaseModel):
    """Query parameters of a list."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Paged(Question):
    """Query parameters of a list that comes in pages."""

    limit: int = Field(50, ge=1, le=MOST, description="Items on a page at most.", examples=[50])
    cursor: str | None = Field(
        None,
        max_length=2000,
        description="`next_cursor` of the page before, with the same filters and sort; left out for the first page.",
    )


class TargetsAsked(Paged):
    """Which targets."""

    retired: bool | None = Field(None, description="Only retired ones, or only others; left out: all.")


class StudiesAsked(Paged):
    """Which studies."""

    target: Target = None
    phase: Phase | None = Field(None, description="Only in this phase.", examples=["search"])
    outcome: Outcome | None = Field(None, description="Only those that ended so.", examples=["promoted"])
    since: Since = None
    until: Until = None

    def wanted(self) -> StudyFilter:
        """The filter; `since` and `until` are of a study's start."""
        return StudyFilter(self.target, self.phase, self.outcome, Span(self.since, self.until))


class PromotionsAsked(Paged):
    """Which promotions."""

    target: Target = None
    waiting: bool = Field(
        True, description="True: winners that wait for approval; false: those that were promoted."
    )

    def wanted(self) -> StudyFilter:
        """The filter."""
        if self.waiting:
            return StudyFilter(self.target, phase=Phase.APPROVAL)
        return StudyFilter(self.target, outcome=Outcome.PROMOTED)


class LedgerAsked(Paged):
    """Which lines of the ledger."""

    target: Target = None


class TrialsOf(Question):
    """Which trials."""

    study: Study = None
    target: Target = None
    kind: TrialKind | None = Field(None, description="Only of this kind.", examples=["candidate"])
    state: TrialState | None = Field(None, description="Only in this state.", examples=["judged"])
    verdict: Verdict | None = Field(None, description="Only with this verdict.", examples=["reject"])
    delay_min: Delay = None
    delay_max: Delay = None
    instances_min: Instances = None
    instances_max: Instances = None
    max_batch_size_min: Batch = None
    max_batch_size_max: Batch = None
    preferred: str | None = Field(
        None,
        pattern=r"^(none|[1-9]\d{0,5}(,[1-9]\d{0,5}){0,31})$",
        description="Only with exactly these preferred batch sizes, with commas between them; `none` for none.",
        examples=["4,8"],
    )
    since: Since = None
    until: Until = None

    def wanted(self) -> TrialFilter:
        """The filter; `since` and `until` are of a trial's proposal."""
        return TrialFilter(
            study=self.study,
            target=self.target,
            kind=self.kind,
            state=self.state,
            verdict=self.verdict,
            delay_microseconds=Between(self.delay_min, self.delay_max),
            instances=Between(self.instances_min, self.instances_max),
            max_batch_size=Between(self.max_batch_size_min, self.max_batch_size_max),
            preferred=self._sizes(),
            proposed=Span(self.since, self.until),
        )

    def _sizes(self) -> tuple[int, ...] | None:
        if self.preferred is None:
            return None
        return () if self.preferred == "none" else tuple(sorted(set(map(int, self.preferred.split(",")))))


class Sorted(Paged):
    """How trials are sorted."""

    sort: TrialSort = Field(
        TrialSort.PROPOSED_AT, description="What to sort by; among equals by study and number."
    )
    descending: bool = Field(True, description="Largest, or newest, first.")

    def order(self) -> TrialOrder:
        """The order."""
        return TrialOrder(self.sort, self.descending)


class TrialsAsked(TrialsOf, Sorted):
    """Which trials, sorted how."""


class NightsAsked(Paged):
    """Which nights."""

    target: Target = None


class AuditAsked(Paged):
    """Which audit records."""

    actor: str | None = Field(None, max_length=200, description="Only by this actor.", examples=["anna"])
    action: AuditAction | None = Field(None, description="Only this action.", examples=["budget_loosened"])
    subject: str | None = Field(
        None, max_length=200, description="Only of this target, study, or `token` and its id."
    )
    since: Since = None
    until: Until = None

    def wanted(self) -> AuditFilter:
        """The filter."""
        action = None if self.action is None else self.action.value
        return AuditFilter(self.actor, action, self.subject, Span(self.since, self.until))

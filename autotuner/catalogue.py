"""What people look up in the records: filters, sort orders and pages, and the door to a store that answers them.

A page is bounded and ends in a mark, the sort key of its last item; the next page begins after that mark, so pages
neither repeat nor lose what was there all the time, however much is added meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Generic, Protocol, TypeVar

from autotuner.domain.benefit import Benefit
from autotuner.domain.configuration import Configuration
from autotuner.domain.judgement import Verdict
from autotuner.domain.registration import Registration
from autotuner.domain.study import Outcome, Phase, StudyPlan, Trial, TrialKind, TrialState, Wish
from autotuner.ports import AuditRecord, StudySummary

T = TypeVar("T")

Mark = tuple[str | int | float | datetime, ...]
"""The sort key of the last item of a page."""

MOST = 500
"""Items of a page at most."""


@dataclass(frozen=True)
class Page(Generic[T]):
    """A bounded part of a list. mark: where the next page begins; None when this is the last."""

    items: tuple[T, ...]
    mark: Mark | None


@dataclass(frozen=True)
class Window:
    """Which part of a list is asked for. limit: 1 to MOST. after: the mark of the page before."""

    limit: int = 50
    after: Mark | None = None


def every(page_of: Callable[[Window], Page[T]]) -> Iterator[T]:
    """Yield all items of a list in its order, page after page; a page is asked for when the one before is used up."""
    window: Window | None = Window(MOST)
    while window is not None:
        page = page_of(window)
        yield from page.items
        window = None if page.mark is None else Window(MOST, page.mark)


@dataclass(frozen=True)
class Between:
    """A range of whole numbers; both ends belong to it, None leaves a side open."""

    least: int | None = None
    most: int | None = None

    def holds(self, value: int) -> bool:
        """Say whether a value lies in the range."""
        return (self.least is None or value >= self.least) and (self.most is None or value <= self.most)


@dataclass(frozen=True)
class Span:
    """A span of time: from `since` on, before `until`; None leaves a side open."""

    since: datetime | None = None
    until: datetime | None = None

    def holds(self, at: datetime) -> bool:
        """Say whether an instant lies in the span."""
        return (self.since is None or at >= self.since) and (self.until is None or at < self.until)


EVER = Span()
ANY = Between()


@dataclass(frozen=True)
class StudyFilter:
    """Which studies; None for any. created: when they were started."""

    target: str | None = None
    phase: Phase | None = None
    outcome: Outcome | None = None
    created: Span = EVER


class TrialSort(StrEnum):
    """What trials are sorted by; among equals by study and number."""

    PROPOSED_AT = "proposed_at"
    CAPACITY = "capacity_per_second"
    HARM = "harm_requests"


@dataclass(frozen=True)
class TrialFilter:
    """Which trials; None for any. Ranges are of the configuration; preferred: exactly these sizes, ascending."""

    study: str | None = None
    target: str | None = None
    kind: TrialKind | None = None
    state: TrialState | None = None
    verdict: Verdict | None = None
    delay_microseconds: Between = ANY
    instances: Between = ANY
    max_batch_size: Between = ANY
    preferred: tuple[int, ...] | None = None
    proposed: Span = EVER


@dataclass(frozen=True)
class TrialOrder:
    """How trials are sorted. Trials without a capacity count as having none: 0 is less than any other."""

    by: TrialSort = TrialSort.PROPOSED_AT
    descending: bool = True


@dataclass(frozen=True)
class TrialSummary:
    """A trial as a list shows it.

    capacity_per_second: highest accepted rate of one replica; None when no level was accepted. harm_requests: slow or
    failed requests above the allowed 1 %.
    """

    study: str
    target: str
    number: int
    kind: TrialKind
    state: TrialState
    replicas: tuple[str, ...]
    configuration: Configuration
    verdict: Verdict | None
    limited_by: str
    reason: str
    capacity_per_second: float | None
    harm_requests: float
    proposed_at: datetime
    ended_at: datetime | None


@dataclass(frozen=True)
class TrialEvidence:
    """A trial with all evidence behind its verdict, and the plan it was measured under."""

    summary: TrialSummary
    trial: Trial
    plan: StudyPlan


@dataclass(frozen=True)
class StudyStanding:
    """A study as it stands, without its trials.

    harm_requests: slow or failed requests above the allowed 1 % it has caused. winner: number of the trial whose
    configuration is to be promoted. sequence: number of its newest journal entry.
    """

    summary: StudySummary
    plan: StudyPlan
    actor: str
    wish: Wish
    sequence: int
    winner: int | None
    promoted: tuple[str, ...]
    harm_requests: float
    dispersion: float
    reference_rate_per_second: float | None


@dataclass(frozen=True)
class AuditFilter:
    """Which audit records; None for any."""

    actor: str | None = None
    action: str | None = None
    subject: str | None = None
    at: Span = EVER


@dataclass(frozen=True)
class LedgerLine:
    """What one promotion was worth: incumbent against winner, and what finding out cost.

    reason: why it was promoted. currency: of the costs. rolled_back_by: the study that took it back; None while it
    stands.
    """

    study_id: str
    target: str
    promoted_at: datetime
    reason: str
    worth: Benefit
    currency: str
    rolled_back_by: str | None = None
    rolled_back_at: datetime | None = None


@dataclass(frozen=True)
class Progress:
    """One line of a study's journal, for somebody who watches it."""

    sequence: int
    at: datetime
    kind: str
    reason: str
    actor: str


@dataclass(frozen=True)
class Glance:
    """A target at a glance.

    newest: its newest study. serving: what production serves by the records, as the newest study that read production
    found it, or as a watch accepted it; None where nothing tells.
    """

    newest: StudySummary | None = None
    serving: Configuration | None = None


NOTHING_YET = Glance()


class Catalogue(Protocol):
    """Lists and details of what is recorded. One call is one transaction; all raise Unavailable."""

    def targets(self, window: Window, *, retired: bool | None = None) -> Page[Registration]:
        """Return targets by name. retired: only such, or only others."""

    def studies(self, wanted: StudyFilter, window: Window) -> Page[StudySummary]:
        """Return studies, newest first."""

    def glances(self, targets: Sequence[str]) -> Mapping[str, Glance]:
        """Return targets at a glance, by name; targets without a study are left out."""

    def study_id(self, name: str) -> str:
        """Return the id of a study. Raises NotFound. The name `latest` means the newest one."""

    def standing(self, study_id: str) -> StudyStanding:
        """Return a study without its trials. Raises NotFound. The name `latest` means the newest one."""

    def trials(self, wanted: TrialFilter, order: TrialOrder, window: Window) -> Page[TrialSummary]:
        """Return trials in the order asked for."""

    def every_trial(self, wanted: TrialFilter) -> Iterator[TrialSummary]:
        """Yield every trial there is, oldest first, without ever holding them all."""

    def evidence(self, study_id: str, number: int) -> TrialEvidence:
        """Return a trial with all its evidence. Raises NotFound."""

    def ledger(self, target: str | None, window: Window) -> Page[LedgerLine]:
        """Return promotions, newest first, and what each was worth. target: None for all."""

    def progress(self, study_id: str, after: int, limit: int) -> Sequence[Progress]:
        """Return lines of a study's journal from the one after `after` on, in order. Raises NotFound."""

    def audit(self, wanted: AuditFilter, window: Window) -> Page[AuditRecord]:
        """Return audit records, newest first."""

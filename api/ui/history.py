"""The history of a target on a time line: studies with what they measured, promotions, and versions of the budget."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from markupsafe import Markup

from api.ui.timeline import Line, Mark, draw
from autotuner.bootstrap import Application
from autotuner.catalogue import Span, TrialFilter, TrialOrder, TrialSummary, Window
from autotuner.domain.judgement import Verdict
from autotuner.domain.slo import SloBudget
from autotuner.domain.study import Outcome, Phase, TrialKind
from autotuner.domain.titles import PHASE_TITLES
from autotuner.ports import StudySummary
from autotuner.report.text import UNKNOWN, whole

READ = 200
"""Trials of a kind that are read for a time line; its studies have a few each."""

VERSIONS_SHOWN = 20

BEFORE = 0.5
"""A time line begins so much of its length before its first capacity: there the budget was set that it was under."""


@dataclass(frozen=True)
class Event:
    """Something that happened to a target. kind: `study`, `promotion` or `budget`. address: of the page about it."""

    at: datetime
    kind: str
    title: str
    told: str
    address: str


@dataclass(frozen=True)
class History:
    """Events, newest first, and the same drawn; no pictures when no capacity was measured yet."""

    events: tuple[Event, ...]
    pictures: tuple[Markup, ...]


def history_of(app: Application, name: str, studies: Sequence[StudySummary]) -> History:
    """Return the history of a target over the time of these studies, which are its newest ones, newest first."""
    since = studies[-1].created_at if studies else None
    incumbents = _by_study(app, TrialFilter(target=name, kind=TrialKind.BASELINE, proposed=Span(since)))
    winners = _by_study(
        app,
        TrialFilter(target=name, kind=TrialKind.CONFIRMATION, verdict=Verdict.ACCEPT, proposed=Span(since)),
    )
    budgets = list(app.store.budgets(name))[-VERSIONS_SHOWN:]
    events = [_study_event(each, incumbents.get(each.id), winners.get(each.id)) for each in studies]
    events += _budget_events(name, budgets)
    marks = tuple(_marks(studies, incumbents, winners))
    lines = tuple(_lines(budgets, marks))
    return History(tuple(sorted(events, key=lambda event: event.at, reverse=True)), draw(name, marks, lines))


def _by_study(app: Application, wanted: TrialFilter) -> dict[str, TrialSummary]:
    """The newest trial that fits, of each study."""
    found = app.catalogue.trials(wanted, TrialOrder(descending=False), Window(READ)).items
    return {trial.study: trial for trial in found}


def _study_event(study: StudySummary, old: TrialSummary | None, new: TrialSummary | None) -> Event:
    address = f"/ui/studies/{study.id}"
    told = study.reason or PHASE_TITLES[Phase(study.phase)]
    carried = f" The incumbent ({old.configuration.describe()}) carried {_rate(old)}." if old else ""
    if study.outcome == Outcome.PROMOTED and new is not None:
        title = f"Promoted: {new.configuration.describe()}"
        return Event(study.ended_at or study.created_at, "promotion", title, _ended(told) + carried, address)
    title = f"Study: {study.outcome.replace('_', ' ')}" if study.outcome else "Study under way"
    return Event(study.ended_at or study.created_at, "study", title, _ended(told) + carried, address)


def _ended(told: str) -> str:
    return told if told.endswith((".", "!", "?")) else f"{told}."


def _rate(trial: TrialSummary) -> str:
    least = "≥ " if trial.limited_by == "traffic" else ""
    return UNKNOWN if trial.capacity_per_second is None else f"{whole(trial.capacity_per_second, least)}/s"


def _budget_events(name: str, budgets: Sequence[SloBudget]) -> Iterator[Event]:
    before: SloBudget | None = None
    for slo in budgets:
        loosened = before is not None and bool(before.loosened_fields(slo))
        title = f"SLO budget, version {slo.version}" + (" (loosened)" if loosened else "")
        told = f"p99 ceiling {slo.p99_ceiling_seconds * 1e3:g} ms, by {slo.actor}"
        told += f": {slo.reason}" if slo.reason else ""
        if slo.created_at is not None:
            yield Event(slo.created_at, "budget", title, _ended(told), f"/ui/targets/{name}/slo-budget")
        before = slo


def _marks(
    studies: Sequence[StudySummary], old: dict[str, TrialSummary], new: dict[str, TrialSummary]
) -> Iterator[Mark]:
    """Incumbents as each study measured them, and winners that were promoted."""
    for study in studies:
        address = f"/ui/studies/{study.id}"
        for kind, trial in (("incumbent", old.get(study.id)), ("winner", new.get(study.id))):
            promoted = kind == "incumbent" or study.outcome == Outcome.PROMOTED
            if trial is not None and trial.capacity_per_second is not None and promoted:
                what = "incumbent" if kind == "incumbent" else "promoted winner"
                words = f"{what}: {trial.configuration.describe()}, {_rate(trial)}"
                at = trial.ended_at or trial.proposed_at
                yield Mark(at, trial.capacity_per_second, kind, words, address)


def _lines(budgets: Sequence[SloBudget], marks: Sequence[Mark]) -> Iterator[Line]:
    """Versions of the budget that came into force while the marks were made."""
    if not marks:
        return
    first, last = min(mark.at for mark in marks), max(mark.at for mark in marks)
    before = max((last - first) * BEFORE, timedelta(minutes=2))
    for slo in budgets:
        at = slo.created_at
        if at is not None and first - before <= at <= last:
            yield Line(at, f"v{slo.version}: {slo.p99_ceiling_seconds * 1e3:g} ms")

"""A study as its page shows it: what it does now, its ramp, its chart with points that open trials, and its reasons.

A study with more trials than MOST_DRAWN is shown without what needs all of its record at once, so a page costs the
same whatever is recorded. Its trials are listed page by page either way.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from markupsafe import Markup

from autotuner.bootstrap import Application
from autotuner.catalogue import Progress, StudyStanding
from autotuner.domain.benefit import benefit
from autotuner.domain.study import Level, Phase, Step, Study, Trial, Wish
from autotuner.report import series, tables
from autotuner.report.charts import SIZES, Plot, scatter
from autotuner.report.reasons import Reason, reasons
from autotuner.report.text import percent

MOST_DRAWN = 60
"""Trials of a study whose whole record is read for its page; nightly studies have a dozen."""

NEWS_SHOWN = 8


@dataclass(frozen=True)
class Rung:
    """One load level of the trial under way. state: `accepted`, `rejected`, `now`, `next` and the like."""

    share: str
    state: str
    told: str


@dataclass(frozen=True)
class Ramp:
    """The trial under way, level by level."""

    trial: Trial
    rungs: tuple[Rung, ...]


@dataclass(frozen=True)
class StudyView:
    """What the page of a study shows of it. study: None for one that is too large to be read whole."""

    standing: StudyStanding
    study: Study | None
    ramp: Ramp | None
    pictures: tuple[Markup, ...]
    ramps: tuple[tuple[str, str], ...]
    reasons: tuple[Reason, ...]
    trials: tables.Table | None
    news: tuple[Progress, ...]

    @property
    def is_over(self) -> bool:
        """Whether nothing will change any more."""
        return self.standing.summary.phase == Phase.ENDED

    @property
    def harm_share(self) -> float:
        """Share of the harm budget that is spent, 0 to 1."""
        return min(1.0, self.standing.harm_requests / self.standing.plan.slo.harm_budget_requests)

    @property
    def asked(self) -> str:
        """What an operator asked for and the next tick will obey; empty when nothing is outstanding."""
        wish = self.standing.wish
        return "" if self.is_over or wish is Wish.RUN else str(wish)

    @property
    def comparison(self) -> tables.Table | None:
        """Incumbent against winner; None before the incumbent was measured."""
        if self.study is None or benefit(self.study).incumbent is None:
            return None
        return tables.comparison(self.study)


def view_of(app: Application, standing: StudyStanding) -> StudyView:
    """Return what the page of a study shows."""
    study_id = standing.summary.id
    study = app.store.study(study_id) if standing.summary.trials <= MOST_DRAWN else None
    news = app.catalogue.progress(study_id, max(0, standing.sequence - NEWS_SHOWN), NEWS_SHOWN)
    plot = linked(series.latency_plot(study), study_id) if study is not None else None
    return StudyView(
        standing=standing,
        study=study,
        ramp=_ramp(study) if study is not None else None,
        pictures=tuple(scatter(plot, size) for size in SIZES) if plot is not None and plot.points else (),
        ramps=tuple((ramp.role, ramp.name) for ramp in plot.ramps) if plot is not None else (),
        reasons=reasons(study) if study is not None else (),
        trials=_trials(study) if study is not None else None,
        news=tuple(reversed(news)),
    )


def linked(plot: Plot, study_id: str) -> Plot:
    """Return a plot whose points open their trials."""
    points = tuple(
        replace(point, address=f"/ui/studies/{study_id}/trials/{point.trial}") for point in plot.points
    )
    return replace(plot, points=points)


def _trials(study: Study) -> tables.Table:
    """The report's table of trials, newest first, each number a link to the trial."""
    made = tables.trials(study)
    link = Markup('<a href="/ui/studies/{}/trials/{}" aria-label="trial {}">{}</a>')
    rows = [
        (link.format(study.id, trial.number, trial.number, row[0]), *row[1:])
        for trial, row in zip(study.trials, made.rows, strict=True)
    ]
    return replace(made, caption="Trials, newest first", rows=tuple(reversed(rows)))


def _ramp(study: Study) -> Ramp | None:
    """The trial under way; None between two trials, and when the study has ended."""
    trial = study.trial
    if trial is None or trial.verdict is not None:
        return None
    newest = {step.level.number: step for step in trial.steps}
    return Ramp(trial, tuple(_rung(trial, level, newest.get(level.number)) for level in trial.levels))


def _rung(trial: Trial, level: Level, step: Step | None) -> Rung:
    share = "warming up" if level.number < 0 else percent(level.share)
    window = trial.window
    if window is not None and window.level == level:
        seen = sum(each.total for each in window.increments)
        over = sum(each.over[0] if each.over else 0 for each in window.increments)
        told = f"{seen:,} requests so far, {over:,} above the ceiling" if seen else "settling"
        return Rung(share, "now", told)
    if step is not None:
        return Rung(share, str(step.verdict), step.judgement.reason)
    return Rung(share, "done" if level.number < 0 and trial.warmed else "next", "")

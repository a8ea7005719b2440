"""The report's tables as text: what the template places, cell by cell."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

from markupsafe import Markup

from autotuner.domain.benefit import Standing, benefit
from autotuner.domain.evidence import strictness
from autotuner.domain.judgement import SLOW_SHARE_OF_ALPHA, Verdict
from autotuner.domain.selection import baseline, capacity_per_second
from autotuner.domain.slo import ALLOWED_BAD_SHARE
from autotuner.domain.study import IN_PRODUCTION, Step, Study, Trial, TrialKind, TrialState
from autotuner.domain.titles import KIND_TITLES
from autotuner.report.series import level_words, shown_step, winner_title
from autotuner.report.svg import icon
from autotuner.report.text import (
    UNKNOWN,
    change,
    evidence,
    figure,
    length,
    milliseconds,
    percent,
    whole,
)

Cell = str | Markup


@dataclass(frozen=True)
class Column:
    """A column's heading and whether it holds figures, which are aligned to the right."""

    title: str
    is_figure: bool = False


@dataclass(frozen=True)
class Table:
    """A table with a caption; the first cell of each row is its heading."""

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]


@cache
def badge(verdict: Verdict | None, state: TrialState | None = None) -> Markup:
    """Return a verdict as a shape and its name; what is not judged yet has only a state."""
    if verdict is None:
        return Markup('<span class="badge">{}</span>').format(state or UNKNOWN)
    return Markup('<span class="badge badge-{}">{}{}</span>').format(verdict, icon(verdict), verdict.name)


def _figures(*titles: str) -> tuple[Column, ...]:
    return tuple(Column(title, is_figure=True) for title in titles)


def comparison(study: Study) -> Table:
    """Incumbent against winner: equal load, capacity, and what a million inferences take."""
    worth = benefit(study)
    old, new = worth.incumbent, worth.winner
    currency = study.plan.target.currency
    ratio = UNKNOWN if worth.capacity_ratio is None else f"× {worth.capacity_ratio:.2f}"
    rows: list[tuple[Cell, ...]] = [
        ("configuration", *(s.configuration.describe() if s else UNKNOWN for s in (old, new)), ""),
        ("capacity per replica, requests/s", _capacity(old), _capacity(new), ratio),
        _compared("p99 at production's load per replica, ms", *_pair(old, new, "p99_seconds", 1e3)),
        _compared(
            "compute seconds per million inferences", *_pair(old, new, "compute_seconds_per_million", 1.0)
        ),
        _compared(
            f"cost per million inferences at capacity, {currency}", *_pair(old, new, "cost_per_million", 1.0)
        ),
    ]
    if study.plan.target.replica_cost_per_hour is None:
        rows[-1] = ("cost per million inferences (no price per replica is set)", *[UNKNOWN] * 3)
    columns = (Column(""), *_figures("incumbent", winner_title(study), "change"))
    return Table("Incumbent against winner", columns, tuple(rows))


def _capacity(standing: Standing | None) -> str:
    if standing is None:
        return UNKNOWN
    return whole(standing.capacity_per_second, "≥ " if standing.at_least else "")


def _pair(
    old: Standing | None, new: Standing | None, field: str, scale: float
) -> tuple[float | None, float | None]:
    def one(standing: Standing | None) -> float | None:
        value: float | None = getattr(standing, field) if standing is not None else None
        return None if value is None else value * scale

    return one(old), one(new)


def _compared(title: str, old: float | None, new: float | None) -> tuple[Cell, ...]:
    return title, figure(old), figure(new), change(old, new)


def trials(study: Study) -> Table:
    """Every trial in order, with its verdict, what it cost and why."""
    columns = (
        Column("#"),
        Column("kind"),
        Column("configuration"),
        Column("verdict"),
        *_figures("capacity per replica, /s", "harm, requests"),
        Column("why"),
    )
    return Table("Trials in order", columns, tuple(_trial(study, trial) for trial in study.trials))


def _trial(study: Study, trial: Trial) -> tuple[Cell, ...]:
    capacity = capacity_per_second(study, trial) if trial.kind not in IN_PRODUCTION else None
    return (
        f"#{trial.number}",
        KIND_TITLES[trial.kind],
        f"{trial.configuration.describe()} on {', '.join(trial.replicas)}",
        badge(trial.verdict, trial.state),
        whole(capacity, "≥ " if trial.censored else ""),
        whole(trial.harm_requests),
        _why(trial),
    )


ENDS = {
    "ceiling": "The ceiling ended the ramp.",
    "traffic": "Every level was accepted: the traffic, not the ceiling, ended the ramp.",
    "evidence": "Want of evidence ended the ramp.",
    "harm budget": "The harm budget could not pay for a higher level.",
    "proposal": "The proposal limited the ramp: the trial was there to learn from, at less than production's load.",
    "load": "The configuration could not be put on the replica.",
}


def _why(trial: Trial) -> Markup:
    said = [Markup("<p>{}</p>").format(words) for words in _ending(trial)]
    if trial.proposal is not None:
        predicted = ", ".join(f"{name} {figure(value)}" for name, value in trial.proposal.predicted.items())
        words = trial.proposal.reason + (f" (predicted: {predicted})" if predicted else "")
        said.append(Markup('<p class="quiet">Why it was tried: {}</p>').format(words))
    return Markup("").join(said or [UNKNOWN])


def _ending(trial: Trial) -> list[str]:
    """What was accepted, what was said last, and what ended the ramp."""
    if trial.kind in IN_PRODUCTION:
        return [trial.reason] if trial.reason else []
    said = []
    if trial.accepted:
        said.append(f"Accepted at up to {level_words(trial.accepted[-1])}.")
    if trial.reason and (not trial.steps or trial.steps[-1].verdict is not Verdict.ACCEPT):
        said.append(f"Then {trial.reason}" if trial.accepted else trial.reason)
    if trial.limited_by:
        said.append(ENDS.get(trial.limited_by, f"The ramp ended by: {trial.limited_by}."))
    return said


def steps(trial: Trial) -> Table:
    """Every judged load level of a trial, with all counts its verdict rests on."""
    columns = (
        Column("share of traffic"),
        *_figures("rate, /s", "slow or failed of total", "allowed", "failed", "control, slow of total"),
        *_figures("evidence for (needed)", "evidence against (needed)", "dispersion"),
        Column("verdict"),
    )
    caption = f"Steps of trial #{trial.number}"
    return Table(caption, columns, tuple(_step(trial, step) for step in trial.steps))


def _step(trial: Trial, step: Step) -> tuple[Cell, ...]:
    judged, counts, control = step.judgement, step.candidate, step.control
    levels = strictness(trial)
    return (
        _share(step) + (f", attempt {step.attempt + 1}" if step.attempt else ""),
        whole(step.rate_per_second),
        _slow(counts.bad_at_most, counts.bad_at_least, counts.total),
        figure(ALLOWED_BAD_SHARE * counts.total),
        whole(counts.failed),
        f"{control.bad_at_least:,} of {control.total:,}" if control.total else "no control",
        f"{evidence(judged.log_e_accept)} ({figure(1 / levels.accept_alpha)})",
        f"{evidence(judged.log_e_reject)} ({figure(1 / (SLOW_SHARE_OF_ALPHA * levels.reject_alpha))})",
        figure(judged.dispersion),
        badge(step.verdict),
    )


def _slow(most: int, least: int, total: int) -> str:
    slow = f"{most:,}" if most == least else f"{least:,}–{most:,}"
    return f"{slow} of {total:,}"


def _every_step(study: Study) -> list[tuple[Trial, Step]]:
    return [(trial, step) for trial in study.trials for step in trial.steps]


def _step_name(trial: Trial, step: Step) -> str:
    return f"#{trial.number} {_share(step)}"


def _share(step: Step) -> str:
    return "warming up" if step.level.number < 0 else percent(step.level.share)


def latency_data(study: Study) -> Table:
    """The figures of the latency chart."""
    columns = (
        Column("trial, share of traffic"),
        Column("configuration"),
        *_figures("rate, /s", "p50, ms", "p95, ms", "p99, ms"),
        Column("verdict"),
    )
    rows = [
        (
            _step_name(trial, step),
            trial.configuration.describe(),
            whole(step.rate_per_second),
            milliseconds(step.latency.p50_seconds),
            milliseconds(step.latency.p95_seconds),
            milliseconds(step.latency.p99_seconds),
            badge(step.verdict),
        )
        for trial, step in _every_step(study)
    ]
    return Table("Latency at each step", columns, tuple(rows))


def time_data(study: Study) -> Table:
    """The figures of the chart of times, trial by trial."""
    columns = (
        Column("trial"),
        Column("share of traffic"),
        *_figures("queue, ms", "compute, ms", "compute per inference, ms"),
    )
    rows = []
    for trial in study.trials:
        step = shown_step(study, trial)
        if step is not None and step.use is not None:
            use = step.use
            rows.append(
                (
                    f"#{trial.number} {trial.configuration.describe()}",
                    _share(step),
                    milliseconds(use.queue_seconds),
                    milliseconds(use.compute_seconds),
                    milliseconds(use.compute_seconds_per_inference),
                )
            )
    return Table("Time in queue and compute", columns, tuple(rows))


def batch_data(study: Study) -> Table:
    """The figures of the batch chart."""
    columns = (
        Column("trial, share of traffic"),
        Column("configuration"),
        *_figures("rate, /s", "mean batch"),
        Column("verdict"),
    )
    rows = [
        (
            _step_name(trial, step),
            trial.configuration.describe(),
            whole(step.rate_per_second),
            figure(step.use.realised_batch),
            badge(step.verdict),
        )
        for trial, step in _every_step(study)
        if step.use is not None and step.use.realised_batch is not None
    ]
    return Table("Realised batch at each step", columns, tuple(rows))


def stages(study: Study) -> Table:
    """Promotion stages and the watch, with what each saw."""
    columns = (
        Column("stage"),
        Column("replicas"),
        Column("verdict"),
        *_figures("slow or failed of total", "p99, ms", "rate, /s", "watched for", "harm, requests"),
    )
    rows = [_stage(t) for t in study.trials if t.kind in (TrialKind.STAGE, TrialKind.WATCH)]
    return Table("Promotion, stage by stage", columns, tuple(rows))


def _stage(trial: Trial) -> tuple[Cell, ...]:
    judged = [step for step in trial.steps if step.level.number >= 0] or list(trial.steps)
    start: tuple[Cell, ...] = (
        f"#{trial.number} {KIND_TITLES[trial.kind]}",
        ", ".join(trial.replicas),
        badge(trial.verdict, trial.state),
    )
    if not judged:
        return (*start, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, whole(trial.harm_requests))
    last = judged[-1]
    return (
        *start,
        _slow(last.candidate.bad_at_most, last.candidate.bad_at_least, last.candidate.total),
        milliseconds(last.latency.p99_seconds),
        whole(last.rate_per_second),
        length(last.ended_at - last.started_at),
        whole(trial.harm_requests),
    )


def promises(study: Study) -> Table:
    """The budget that was fixed before the study began."""
    slo = study.plan.slo
    rows: list[tuple[Cell, ...]] = [
        ("p99 ceiling", f"{slo.p99_ceiling_seconds * 1e3:g} ms"),
        ("error ratio ceiling", percent(slo.error_ratio_ceiling)),
        ("largest share of traffic on the canary", percent(slo.max_canary_share)),
        (
            "harm budget",
            f"{slo.harm_budget_requests:,} requests above the allowed {percent(ALLOWED_BAD_SHARE)}",
        ),
        ("version", f"{slo.version}, by {slo.actor}" + (f": {slo.reason}" if slo.reason else "")),
    ]
    return Table(
        "The budget, fixed before the study began", (Column("promise"), Column("value")), tuple(rows)
    )


def dispersion_sentence(study: Study) -> str:
    """Return what the counts' scatter was taken for, and honestly what that is worth."""
    used, measured, limit = study.dispersion, study.measured_dispersion, study.plan.max_dispersion
    if measured is None:
        return f"The study ended before the scatter of its counts was measured; a factor of {figure(used)} was assumed."
    if math.isinf(limit) or measured <= limit:
        return f"Measured {figure(measured)} and used in full: every count was divided by it before it was judged."
    return (
        f"Measured {figure(measured)}, but this rehearsal limits the factor to {figure(limit)} so that it ends within "
        f"minutes. Its chances of a wrong verdict are therefore larger than the levels say. A study in production has "
        f"no such limit: it would look about {measured / limit:.0f} times as long for the same evidence."
    )


def shown_load(study: Study) -> str:
    """Return the load at which p99 and compute are compared, in words."""
    before = baseline(study)
    step = shown_step(study, before) if before is not None else None
    if step is None:
        return ""
    return f"{level_words(step)}, about {whole(step.rate_per_second)} requests/s on one replica"


def summary(study: Study) -> str:
    """Return what the study found, in figures and one sentence; empty when there is nothing to compare."""
    worth = benefit(study)
    old, new = worth.incumbent, worth.winner
    if old is None or new is None or new.capacity_per_second is None or old.capacity_per_second is None:
        return ""
    ratio = "" if worth.capacity_ratio is None else f" (× {worth.capacity_ratio:.2f})"
    carried = (
        f"{_capacity(new)} requests/s per replica within the ceiling, the incumbent {_capacity(old)}{ratio}"
    )
    at_load = ""
    if old.p99_seconds is not None and new.p99_seconds is not None:
        pair = f"{milliseconds(new.p99_seconds)} ms against {milliseconds(old.p99_seconds)} ms"
        at_load = f"; at production's load its p99 was {pair}"
    return f"The {winner_title(study)}, {new.configuration.describe()}, carried {carried}{at_load}."

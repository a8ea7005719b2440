"""Which of a study's figures the charts show: every step by its verdict, and two trials as ramps."""

from __future__ import annotations

from collections.abc import Callable

from autotuner.domain.benefit import winning_trial
from autotuner.domain.judgement import Verdict
from autotuner.domain.measurement import ServerUse
from autotuner.domain.ramp import production_level
from autotuner.domain.selection import baseline, capacity_per_second
from autotuner.domain.study import Outcome, Step, Study, Trial
from autotuner.domain.titles import KIND_TITLES
from autotuner.report.charts import Bar, Bars, Plot, Point, Ramp
from autotuner.report.text import milliseconds, percent, whole

SAME_SHARE = 0.005
"""Levels whose shares differ by less are the same load."""

Reading = Callable[[Step], float | None]


def winner_title(study: Study) -> str:
    """Return what the winning trial's configuration is to be called."""
    if study.winner is None:
        return "best candidate"
    return "winner" if study.outcome in (Outcome.PROMOTED, None) else "winner (not promoted)"


def shown_step(study: Study, trial: Trial) -> Step | None:
    """Return the step at production's load per replica, else the lowest one; None without a server's figures."""
    share = production_level(study.plan).share
    known = [s for s in trial.steps if s.level.number >= 0 and _times(s) is not None]
    at_production = [s for s in known if abs(s.level.share - share) < SAME_SHARE]
    return min(at_production or known, key=lambda step: step.level.share, default=None)


def level_words(step: Step) -> str:
    """Return a step's load in words."""
    return "warming up" if step.level.number < 0 else f"{percent(step.level.share)} of the traffic"


def _times(step: Step) -> tuple[float, float] | None:
    use = step.use
    if use is None or use.queue_seconds is None or use.compute_seconds is None:
        return None
    return use.queue_seconds, use.compute_seconds


def _point(trial: Trial, step: Step, y: float | None) -> Point:
    title = (
        f"#{trial.number} {KIND_TITLES[trial.kind]}: {trial.configuration.describe()}; {level_words(step)}, "
        f"{whole(step.rate_per_second)}/s, p99 {milliseconds(step.latency.p99_seconds)} ms, {step.verdict.upper()}"
    )
    return Point(step.rate_per_second, y, step.verdict, title, trial.number)


def _ramp(study: Study, trial: Trial, role: str, name: str, points: dict[int, Point]) -> Ramp:
    """A trial's newest step of each level, lowest first; `points` are what is drawn of it, by the step's place."""
    newest = {trial.steps[place].level.number: place for place in sorted(points)}
    drawn = [newest[number] for number in sorted(newest) if number >= 0]
    accepted = [place for place in drawn if trial.steps[place].verdict is Verdict.ACCEPT]
    capacity = capacity_per_second(study, trial)
    words = f"{name}: {'≥ ' if trial.censored else ''}{whole(capacity)}/s"
    knee = points[accepted[-1]] if accepted else None
    return Ramp(role, name, tuple(points[place] for place in drawn), knee, words)


def _points(trial: Trial, reading: Reading) -> dict[int, Point]:
    """Steps of a trial as points, by their place in it; those without a request have no place in a chart."""
    shown = ((place, step) for place, step in enumerate(trial.steps) if step.candidate.total > 0)
    return {place: _point(trial, step, reading(step)) for place, step in shown}


def _plot(study: Study, reading: Reading, template: Plot, *, needs_value: bool) -> Plot:
    """Fill `template` with the points and the two ramps of a study."""
    drawn = {trial.number: _points(trial, reading) for trial in study.trials}
    if needs_value:
        drawn = {n: {p: x for p, x in points.items() if x.y is not None} for n, points in drawn.items()}
    named = [
        ("incumbent", "incumbent", baseline(study)),
        ("winner", winner_title(study), winning_trial(study)),
    ]
    ramps = [
        _ramp(study, trial, role, name, drawn[trial.number])
        for role, name, trial in named
        if trial is not None and drawn[trial.number]
    ]
    return Plot(
        name=template.name,
        title=template.title,
        description=template.description,
        x_title=template.x_title,
        y_title=template.y_title,
        points=tuple(point for points in drawn.values() for point in points.values()),
        ramps=tuple(ramps),
        ceiling=template.ceiling,
        ceiling_words=template.ceiling_words,
        logarithmic=template.logarithmic,
    )


def latency_plot(study: Study) -> Plot:
    """Rate per replica against p99 latency, with the ceiling."""
    ceiling = study.plan.slo.p99_ceiling_seconds * 1e3
    template = Plot(
        name="latency",
        title="99th-percentile latency against throughput per replica",
        description=(
            "Each mark is one measured load level; its shape is the verdict. The lines join the levels of the "
            "incumbent and of the winner; rings mark the highest level each was accepted at. "
            "The table below the chart has every figure."
        ),
        x_title="requests per second per replica",
        y_title="p99 latency, ms (log scale)",
        points=(),
        ramps=(),
        ceiling=ceiling,
        ceiling_words=f"p99 ceiling {ceiling:g} ms",
        logarithmic=True,
    )
    return _plot(study, _p99_milliseconds, template, needs_value=False)


def batch_plot(study: Study) -> Plot:
    """Rate per replica against the mean batch size the server really made."""
    template = Plot(
        name="batch",
        title="Realised batch against throughput per replica",
        description=(
            "Mean number of requests the server ran in one execution, at each measured load level. "
            "The table below the chart has every figure."
        ),
        x_title="requests per second per replica",
        y_title="mean batch, requests",
        points=(),
        ramps=(),
    )
    return _plot(study, _batch, template, needs_value=True)


def _p99_milliseconds(step: Step) -> float | None:
    p99 = step.latency.p99_seconds
    return None if p99 is None else p99 * 1e3


def _batch(step: Step) -> float | None:
    use: ServerUse | None = step.use
    return use.realised_batch if use is not None else None


def time_bars(study: Study) -> Bars:
    """Mean time in queue and in compute of each trial whose server told them."""
    best, share = winning_trial(study), production_level(study.plan).share
    bars = []
    for trial in study.trials:
        step = shown_step(study, trial)
        times = _times(step) if step is not None else None
        if step is not None and times is not None:
            role = "winner" if best is not None and trial.configuration == best.configuration else ""
            label = f"#{trial.number} {trial.configuration.describe()}"
            load = (
                "" if abs(step.level.share - share) < SAME_SHARE else f", at {percent(step.level.share, 2)}"
            )
            bars.append(Bar(label, role, times[0] * 1e3, times[1] * 1e3, load))
    return Bars(
        name="times",
        title="Mean time in queue and in compute, by trial",
        description=(
            "Milliseconds a request spent waiting in the server's queue and in the model, at production's load per "
            "replica or, where that was not reached, at the lowest level. The table below has every figure."
        ),
        bars=tuple(bars),
    )

"""The plots and the table of docs/proposer.md: one study on the benchmark's true system, by the proposer as it is.

`make docs` draws them anew. Everything is seeded, so the same code gives the same files.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from autotuner.batching.advisor import advise, record
from autotuner.batching.forecast import Forecast, Forecaster
from autotuner.batching.trials import Advice, Aim, Problem, Setting, Tried
from autotuner.benchmark.history import winner
from autotuner.benchmark.scenarios import Scenario
from autotuner.benchmark.system import p99
from autotuner.benchmark.workloads import builtin
from autotuner.benchmark.world import World
from autotuner.cache import cache_directory
from autotuner.domain.prediction import configuration_of
from autotuner.report.charts import Size
from autotuner.report.curves import Chart, Series, Shape, drawn
from autotuner.report.svg import standalone

DOCS = Path(__file__).parents[1] / "docs"
PAGE = DOCS / "proposer.md"
IMAGES = DOCS / "images"
BEGIN, END = "<!-- generated: the study -->", "<!-- end of the study -->"

WORKLOAD, SCENARIO, AIM, SEED, TRIALS = "small-vision", Scenario.BURSTY, Aim.EFFICIENCY, 7, 12
SIZE = Size("plot", 760.0, 380.0)
BAND = 1.64
"""Standard deviations to each side: nine in ten."""

STYLE = """
svg { background: #ffffff; font: 13px system-ui, "Segoe UI", Roboto, sans-serif; }
text { fill: #1b1f26; } .tick, .axis-title { fill: #535c69; font-size: 12px; } .axis { stroke: #535c69; }
.grid { stroke: #e6e9ee; } .ceiling { stroke: #b42a16; stroke-width: 1.6; }
.forbidden { fill: #b42a16; fill-opacity: .07; } .ceiling-words { fill: #b42a16; }
.ramp { fill: none; stroke-width: 2.4; } .ramp-winner { stroke: #1457b8; }
.ramp-incumbent { stroke: #5a6472; stroke-dasharray: 7 4; } .dot-winner { fill: #1457b8; } .dot-other { fill: #b86a00; }
.band-winner { fill: #1457b8; fill-opacity: .16; }
@media (prefers-color-scheme: dark) {
svg { background: #13161b; } text { fill: #e9ebef; } .tick, .axis-title { fill: #a9b1bd; } .axis { stroke: #a9b1bd; }
.grid { stroke: #282e37; } .ceiling { stroke: #ff8d78; } .forbidden { fill: #ff8d78; } .ceiling-words { fill: #ff8d78; }
.ramp-winner { stroke: #7db2ff; } .ramp-incumbent { stroke: #aab3c0; } .dot-winner { fill: #7db2ff; }
.dot-other { fill: #e3a24a; } .band-winner { fill: #7db2ff; fill-opacity: .2; } }
"""


@dataclass(frozen=True)
class Step:
    """One trial: what was foretold for it (None for the incumbent's), why it was proposed, and what it measured."""

    advice: Advice
    foretold: Forecast | None
    tried: Tried


@dataclass(frozen=True)
class Truth:
    """What a setting really does at today's rate: seconds of p99, device seconds for one inference."""

    p99_seconds: float
    busy_seconds: float


class Study:
    """A whole study, and what is really so."""

    def __init__(self) -> None:
        workload = next(one for one in builtin() if one.name == WORKLOAD)
        self.world = World(workload, SCENARIO, AIM, cache_directory())
        self.problem: Problem = self.world.problem(SEED)
        self.steps: list[Step] = []
        advice = advise(self.problem, ())
        while advice.setting is not None and len(self.steps) < TRIALS:
            foretold = self.forecaster(len(self.steps)).forecast(advice.setting) if self.steps else None
            tried = self.world.trial(advice.setting, SEED, len(self.steps) + 1, advice.highest_rate).tried
            self.steps.append(Step(advice, foretold, record(advice, tried)))
            advice = advise(self.problem, self.history(len(self.steps)))
        self.ending = advice.reason if advice.setting is None else f"all {TRIALS} trials are done"
        self.kept = winner(self.problem, self.history(len(self.steps)))
        system = self.world.system
        self._traffic = system.long_traffic(system.rate)

    def history(self, trials: int) -> tuple[Tried, ...]:
        """The first so many trials."""
        return tuple(step.tried for step in self.steps[:trials])

    def forecaster(self, trials: int) -> Forecaster:
        """What is foreseen after so many trials."""
        return Forecaster(self.problem, self.history(trials))

    def truth(self, setting: Setting) -> Truth:
        """What the setting really does."""
        outcome = self.world.system.long_run(setting, self._traffic)
        return Truth(p99(outcome.latency), outcome.busy_seconds() / outcome.latency.size)


def family(study: Study) -> list[Setting]:
    """Settings without preferred sizes, of up to three instances: enough to see the frontier."""
    return [s for s in study.problem.candidates if not s.preferred and s.instances <= 3]


def border(truths: dict[Setting, Truth]) -> list[Setting]:
    """The settings that no other beats in both p99 and device time, leanest first."""
    kept: list[Setting] = []
    lowest = np.inf
    for setting, truth in sorted(
        truths.items(), key=lambda item: (item[1].busy_seconds, item[1].p99_seconds)
    ):
        if truth.p99_seconds < lowest:
            kept.append(setting)
            lowest = truth.p99_seconds
    return kept


def milliseconds(values: Sequence[float]) -> list[float]:
    """Seconds as milliseconds."""
    return [1e3 * value for value in values]


def curve_chart(study: Study) -> Chart:
    """The batch curve as fitted, as it is, and the points it was fitted to."""
    member = study.forecaster(len(study.steps)).members[0]
    levels = [(s.tried.setting, level) for s in study.steps for level in s.tried.levels]
    points = [
        (float(batch.size), 1e3 * batch.compute_seconds / batch.executions)
        for setting, level in levels
        if setting.instances == 1
        for batch in level.batches
        if batch.executions >= 5
    ]
    largest = int(max(size for size, _ in points)) + 4
    true = study.world.system.device(1.0, None).curve_seconds
    sizes = range(1, min(largest, len(true) - 1) + 1)
    fitted = member.device.curve_seconds
    return Chart(
        "curve",
        "The batch curve",
        "Compute time by batch size: points as a server's batch statistics give them, the fitted curve, and the truth.",
        "batch size",
        "compute time, ms",
        (
            Series("incumbent", "truth", tuple((float(n), 1e3 * float(true[n])) for n in sizes)),
            Series("winner", "fitted", tuple((float(n), 1e3 * float(fitted[n])) for n in sizes)),
            Series("other", "measured, one instance", tuple(points), Shape.DOTS),
        ),
    )


def agreement_chart(study: Study, truths: dict[Setting, Truth]) -> tuple[Chart, str]:
    """Predicted against true p99 of settings within twice the ceiling, and the median error in words."""
    forecaster = study.forecaster(len(study.steps))
    limit = 2.0 * study.problem.ceiling_seconds
    pairs = [
        (float(np.exp(forecaster.forecast(s).log_p99)), truth.p99_seconds)
        for s, truth in truths.items()
        if truth.p99_seconds <= limit
    ]
    error = float(np.median([abs(np.log(predicted / true)) for predicted, true in pairs]))
    said = (
        f"The median error of predicted p99 over {len(pairs)} settings without preferred sizes is {error:.1%}"
    )
    trials = [
        (float(np.exp(step.foretold.log_p99)), step.tried.levels[0].p99_seconds)
        for step in study.steps
        if step.foretold is not None
    ]
    low, high = min(min(pair) for pair in pairs), max(max(pair) for pair in pairs)
    chart = Chart(
        "agreement",
        "Predicted against observed p99",
        "On the line prediction and observation agree. Orange: trials, foretold before they were made. "
        "Blue: settings that were never tried, after the last trial.",
        "predicted p99, ms",
        "observed p99, ms",
        (
            Series("incumbent", "equal", ((1e3 * low, 1e3 * low), (1e3 * high, 1e3 * high))),
            Series("winner", "never tried: truth", tuple((1e3 * x, 1e3 * y) for x, y in pairs), Shape.DOTS),
            Series(
                "other",
                "trials: measured",
                tuple((1e3 * x, 1e3 * y) for x, y in trials if y is not None),
                Shape.DOTS,
            ),
        ),
        square=True,
    )
    return chart, said


def frontier_chart(study: Study, truths: dict[Setting, Truth], trials: int) -> tuple[Chart, float]:
    """The frontier as foreseen after so many trials with its bands, and the mean half width of them, relative."""
    forecaster = study.forecaster(trials)
    on_it = [s for s in border(truths) if truths[s].p99_seconds <= 1.3 * study.problem.ceiling_seconds]
    foreseen = [forecaster.cautious(s) for s in on_it]
    across = milliseconds([truths[s].busy_seconds for s in on_it])
    mean = [f.log_p99 for f in foreseen]
    most = np.log(1.8 * study.problem.ceiling_seconds)
    upper = [min(most, f.log_p99 + BAND * f.spread) for f in foreseen]
    lower = [f.log_p99 - BAND * f.spread for f in foreseen]
    there = [(x, 1e3 * float(np.exp(y))) for x, y in zip(across, upper, strict=True)]
    back = [(x, 1e3 * float(np.exp(y))) for x, y in zip(across, lower, strict=True)]
    line = [(x, 1e3 * float(np.exp(y))) for x, y in zip(across, mean, strict=True)]
    dots = [(x, 1e3 * truths[s].p99_seconds) for x, s in zip(across, on_it, strict=True)]
    named = f"after {trials} trial{'' if trials == 1 else 's'}"
    chart = Chart(
        f"frontier-{trials}",
        f"The frontier {named}",
        f"Lowest p99 at each device time per inference, {named}: expected, nine in ten, and the truth as dots.",
        "device time per inference, ms",
        "p99, ms",
        (
            Series("winner", "nine in ten", (*there, *reversed(back)), Shape.BAND),
            Series("winner", "expected", tuple(line)),
            Series("other", "truth", tuple(dots), Shape.DOTS),
        ),
        ceiling=1e3 * study.problem.ceiling_seconds,
        ceiling_words=f"p99 ceiling {1e3 * study.problem.ceiling_seconds:.0f} ms",
        vertical=(0.0, 1.8e3 * study.problem.ceiling_seconds),
    )
    return chart, float(np.mean([f.spread for f in foreseen]) * BAND)


def table(study: Study) -> list[str]:
    """The trials as lines of Markdown."""
    lines = [
        "| trial | configuration | p99 foretold, ms | p99 measured, ms | true p99, ms | device ms per inference |",
        "|---|---|---|---|---|---|",
    ]
    for number, step in enumerate(study.steps, start=1):
        level, truth = step.tried.levels[0], study.truth(step.tried.setting)
        told = "–"
        if step.foretold is not None:
            low, mean, high = (
                1e3 * np.exp(step.foretold.log_p99 + sign * BAND * step.foretold.spread)
                for sign in (-1, 0, 1)
            )
            told = f"{mean:.1f} ({low:.1f}–{high:.1f})"
        seen = "–" if level.p99_seconds is None else f"{1e3 * level.p99_seconds:.1f}"
        lines.append(
            f"| {number} | {words(step.tried.setting)} | {told} | {seen} | {1e3 * truth.p99_seconds:.1f} "
            f"| {1e3 * truth.busy_seconds:.3f} |"
        )
    return lines


def ended(study: Study) -> str:
    """What was kept, what it saves and why the study ended."""
    kept, start = study.truth(study.kept), study.truth(study.problem.incumbent)
    saved = 1.0 - kept.busy_seconds / start.busy_seconds
    return (
        f"Kept: **{words(study.kept)}**: {saved:.0%} less device time per inference than the incumbent. "
        f"Why it ended: {study.ending}."
    )


def words(setting: Setting) -> str:
    """A setting as configurations are spelt."""
    return configuration_of(replace(setting, delay_seconds=round(setting.delay_seconds, 6))).describe()


def figures(study: Study) -> tuple[str, dict[str, Chart]]:
    """The generated part of the page, and the charts by file name."""
    truths = {setting: study.truth(setting) for setting in family(study)}
    agreement, error = agreement_chart(study, truths)
    stages = sorted({1, min(2, len(study.steps)), min(3, len(study.steps)), len(study.steps)})
    charts = {"proposer-curve": curve_chart(study), "proposer-agreement": agreement}
    widths = []
    for trials in stages:
        charts[f"proposer-frontier-{trials}"], width = frontier_chart(study, truths, trials)
        widths.append(f"±{width:.0%} after {trials}")
    accuracy = (
        f"{error} after the last trial. Mean half width of the frontier's bands: {', '.join(widths)} trials."
    )
    pictures = (f"![{chart.title}. {chart.description}](images/{name}.svg)" for name, chart in charts.items())
    lines = [*table(study), "", ended(study), "", accuracy, "", "\n\n".join(pictures)]
    return "\n".join(lines), charts


def updated(text: str, generated: str) -> str:
    """Return the page's text with its generated part anew. Raises ValueError when a marker is missing."""
    before, opened, rest = text.partition(BEGIN)
    _, closed, after = rest.partition(END)
    if not opened or not closed:
        raise ValueError(f"the page needs the markers {BEGIN} and {END}")
    return f"{before}{BEGIN}\n{generated}\n{END}{after}"


def main() -> int:
    """Rewrite the page and its plots; returns the exit code."""
    generated, charts = figures(Study())
    IMAGES.mkdir(exist_ok=True)
    for old in IMAGES.glob("proposer-*.svg"):
        old.unlink()
    for name, chart in charts.items():
        (IMAGES / f"{name}.svg").write_text(standalone(drawn(chart, SIZE), STYLE) + "\n", "utf-8")
    PAGE.write_text(updated(PAGE.read_text("utf-8"), generated), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

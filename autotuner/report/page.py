"""From a study to its page. Nothing on the page is computed by a template: it only places what it is given."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from autotuner.domain.benefit import benefit
from autotuner.domain.findings.kinds import title_of
from autotuner.domain.findings.opening import opening
from autotuner.domain.judgement import Verdict
from autotuner.domain.study import Outcome, Study, Trial, TrialKind
from autotuner.domain.titles import KIND_TITLES
from autotuner.errors import InvalidInput
from autotuner.report import series, tables
from autotuner.report.charts import SIZES, Plot, scatter, stacked
from autotuner.report.hindsight import predicted
from autotuner.report.svg import icon
from autotuner.report.text import instant, length, percent, whole

TEMPLATE = "page.html.j2"

HEADLINES = {
    Outcome.PROMOTED: "Promoted",
    Outcome.KEPT: "Incumbent kept",
    Outcome.INCONCLUSIVE: "Inconclusive",
    Outcome.ABORTED: "Aborted",
    Outcome.ROLLED_BACK: "Rolled back",
    None: "Not ended",
}


@dataclass(frozen=True)
class Picture:
    """A chart in every size, its data as a table, and what its marks mean. No pictures: nothing was measured."""

    heading: str
    explanation: str
    pictures: tuple[Markup, ...]
    data: tables.Table
    ramps: tuple[tuple[str, str], ...] | None = None
    """Role and name of each ramp drawn through the points; None for bars."""

    @property
    def is_scatter(self) -> bool:
        """Whether points by verdict are drawn."""
        return self.ramps is not None


def render(study: Study, note: str) -> str:
    """Return the report of a study as one HTML page that needs no other file.

    note: what stands behind the figures, for instance "emulated GPU". Works for a study in any state.
    """
    return template(TEMPLATE).render(
        study=study,
        note=note,
        headline=HEADLINES[study.outcome],
        outcome=str(study.outcome or "running"),
        summary=tables.summary(study),
        comparison=tables.comparison(study),
        load=tables.shown_load(study),
        has_standing=benefit(study).incumbent is not None,
        found=[(title_of(one), one) for one in opening(study)],
        pictures=pictures(study),
        trials=tables.trials(study),
        predictions=predicted(study),
        steps=[(trial, _summary(trial), tables.steps(trial)) for trial in study.trials if trial.steps],
        stages=tables.stages(study),
        promises=tables.promises(study),
        provenance=provenance(study, note),
        harm=_harm(study),
        legend=[(verdict.name, icon(verdict)) for verdict in Verdict],
    )


def template(name: str) -> Template:
    """Return a page's template. It escapes whatever is put into it, and fails where something is missing."""
    return Environment(
        loader=PackageLoader("autotuner.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    ).get_template(name)


def _summary(trial: Trial) -> str:
    count = len(trial.steps)
    kind = KIND_TITLES[trial.kind]
    return (
        f"#{trial.number} {kind}: {trial.configuration.describe()} ({count} step{'s' if count > 1 else ''})"
    )


@dataclass(frozen=True)
class Harm:
    """Harm done, the budget it was paid from, and the share of it, 0 to 1, that the bar fills."""

    used: str
    budget: str
    share: float
    percentage: str
    is_over: bool


def _harm(study: Study) -> Harm:
    used, budget = study.harm_requests, study.plan.slo.harm_budget_requests
    return Harm(whole(used), whole(budget), min(1.0, used / budget), percent(used / budget), used > budget)


def pictures(study: Study) -> tuple[Picture, ...]:
    """Return the page's charts, each with its data."""
    bars, latency, batch = series.time_bars(study), series.latency_plot(study), series.batch_plot(study)
    return (
        Picture(
            "Latency against throughput",
            "Every load level of every trial. What ran into the shaded part broke the ceiling. The horizontal place is "
            "the rate that really came in the window; the capacity written at a ring is the accepted share of traffic "
            "times the rate measured in the baseline.",
            _scatter(latency),
            tables.latency_data(study),
            _ramps(latency),
        ),
        Picture(
            "Queue against compute",
            "Mean time of a request at production's load per replica or, where a trial did not get there, at its "
            "lowest level. Queue time is what the batching delay and a busy device cost; compute grows with the batch.",
            tuple(stacked(bars, size) for size in SIZES) if bars.bars else (),
            tables.time_data(study),
        ),
        Picture(
            "Realised batch against throughput",
            "How many requests the server really ran at once. A configuration that cannot gather larger batches as "
            "traffic grows is the one that runs out first.",
            _scatter(batch),
            tables.batch_data(study),
            _ramps(batch),
        ),
    )


def _ramps(plot: Plot) -> tuple[tuple[str, str], ...]:
    return tuple((ramp.role, ramp.name) for ramp in plot.ramps)


def _scatter(plot: Plot) -> tuple[Markup, ...]:
    return tuple(scatter(plot, size) for size in SIZES) if plot.points else ()


def provenance(study: Study, note: str) -> tuple[tuple[str, str], ...]:
    """Return where the figures come from, as pairs of name and value."""
    plan = study.plan
    lasted = study.ended_at - study.created_at if study.ended_at is not None else None
    rate = study.reference_rate_per_second
    looks = [t for t in study.trials if t.kind is TrialKind.CANDIDATE]
    return (
        ("study", study.id),
        ("target", f"{plan.target.name} (model {plan.target.model})"),
        ("figures from", note),
        ("started by", study.actor),
        ("created", instant(study.created_at)),
        ("ended", f"{instant(study.ended_at)}, after {length(lasted)}" if lasted is not None else "not yet"),
        ("objective", str(plan.target.objective)),
        ("candidates tried", f"{len(looks)} of at most {plan.max_trials}"),
        ("sampler and seed", f"{plan.sampler}, seed {plan.seed}"),
        ("approval", str(plan.approval)),
        ("traffic in the baseline", "not measured" if rate is None else f"{whole(rate)} requests/s in all"),
        ("budget version", str(plan.slo.version)),
        ("dispersion", tables.dispersion_sentence(study)),
    )


def write_report(study: Study, path: Path, note: str) -> Path:
    """Write the report of a study to `path` and return it. Raises InvalidInput when it cannot be written there."""
    return write_page(render(study, note), path, "report")


def write_page(page: str, path: Path, field: str) -> Path:
    """Write a page to `path` and return it. Raises InvalidInput, naming `field`, when that cannot be done."""
    with _writing(path, field):
        path.write_text(page, encoding="utf-8")
    return path


def check_place(path: Path, field: str) -> None:
    """Raise InvalidInput, naming `field`, when no page could be written to `path`: before a minute is spent on it."""
    new = not path.exists()
    with _writing(path, field):
        path.open("ab").close()
        if new:
            path.unlink()


@contextmanager
def _writing(path: Path, field: str) -> Iterator[None]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise InvalidInput(field, str(path), f"a file that can be written ({error.strerror})") from error

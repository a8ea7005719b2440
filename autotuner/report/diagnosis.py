"""A diagnosis as one self-contained page: findings first, then the pictures that carry them."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from autotuner.batching.production import curve_points
from autotuner.batching.prospect import Prospect
from autotuner.domain.findings.breakdown import Breakdown
from autotuner.domain.findings.diagnosis import Diagnosis
from autotuner.domain.findings.kinds import Kind
from autotuner.domain.findings.prediction import worth
from autotuner.domain.prediction import configuration_of
from autotuner.report import svg
from autotuner.report.charts import SIZES, Size, grid
from autotuner.report.curves import Chart, Ring, Series, Shape, drawn
from autotuner.report.diagnosis_tables import (
    PART_TITLES,
    arrivals_text,
    batch_table,
    device_text,
    named_table,
    parts_table,
)
from autotuner.report.page import template
from autotuner.report.tables import Table
from autotuner.report.text import figure, instant, milliseconds, percent, whole

TEMPLATE = "diagnosis.html.j2"

BAR_SIZES = (Size("wide", 900.0, 64.0), Size("narrow", 340.0, 64.0))
BAR_TOP, BAR_HEIGHT = 24.0, 28.0
LEAST_LABEL = 46.0
"""Pixels that a part of the bar needs to be labelled in it."""

HISTOGRAM_SIZES = (
    Size("wide", 900.0, 280.0),
    Size("narrow", 340.0, 260.0, left=46.0, right=10.0, ticks=4),
)


@dataclass(frozen=True)
class Picture:
    """A chart in every size, and what to see in it. legend: lines as (role, name); data: the same as a table."""

    heading: str
    explanation: str
    pictures: tuple[Markup, ...]
    legend: tuple[tuple[str, str], ...] = ()
    data: Table | None = None
    swatches: tuple[tuple[str, str], ...] = ()
    """Areas as (class, words)."""


def render(found: Diagnosis) -> str:
    """Return a diagnosis as one HTML page that needs no other file."""
    scene = found.scene
    return template(TEMPLATE).render(
        model=scene.model,
        healthy=found.findings[0].kind is Kind.HEALTHY,
        measured=found.measured,
        title=found.findings[0].kind.replace("_", " "),
        findings=found.findings,
        facts=_facts(found),
        pictures=[*_measured_pictures(found), *_predicted_pictures(found)],
        worth=worth(found.prediction),
        prediction=found.prediction,
        named=named_table(found) if found.prediction.prospect is not None else None,
        study=found.study_possible,
        unread=scene.facts.unread,
    )


def _facts(found: Diagnosis) -> tuple[tuple[str, str], ...]:
    """Where the figures come from, as pairs of name and value."""
    scene, prospect = found.scene, found.prediction.prospect
    versions = sorted(set(scene.facts.versions.values()))
    arrivals = (("arrivals", arrivals_text(prospect)),) if prospect is not None else ()
    return (
        ("looked at", f"{instant(found.at)}, for {scene.window.seconds:.0f} s"),
        ("requests", f"{whole(scene.work.requests)}, {figure(scene.window.rate_per_second)}/s on a replica"),
        ("replicas", f"{len(scene.window.replicas)}, Triton {', '.join(versions) or 'of unknown version'}"),
        (
            "configuration",
            scene.configuration.describe() if scene.configuration else "not one that can be tuned",
        ),
        (
            "p99 now",
            f"{milliseconds(scene.latency.p99_seconds)} ms, ceiling {milliseconds(scene.ceiling_seconds)} ms",
        ),
        ("device busy / memory", device_text(found)),
        *arrivals,
    )


# ---- what was measured


def _measured_pictures(found: Diagnosis) -> list[Picture]:
    pictures = []
    if found.breakdown.total_seconds:
        pictures.append(
            Picture(
                "Where a request's time goes",
                f"Mean of the window, from {found.breakdown.source}. Quantiles stand in the table, each "
                "part's own: quantiles of parts do not add up.",
                tuple(time_bar(found.breakdown, size) for size in BAR_SIZES),
                (),
                parts_table(found.breakdown),
                tuple(
                    (f"part-{one.part}", f"{PART_TITLES[one.part]} {milliseconds(one.mean_seconds)} ms")
                    for one in found.breakdown.shares
                    if one.mean_seconds
                ),
            )
        )
    if found.realised.batches:
        pictures.append(
            Picture(
                "Realised against configured batch size",
                "How often each batch size ran. The shaded right end is what max_batch_size would allow; "
                "a wall of one size is a cap.",
                tuple(histogram(found, size) for size in HISTOGRAM_SIZES),
                (),
                batch_table(found),
            )
        )
    return pictures


def time_bar(found: Breakdown, size: Size) -> Markup:
    """Return the stacked bar of a request's mean time; small parts are told by the pointer and the table."""
    known = [(one.part, one.mean_seconds) for one in found.shares if one.mean_seconds]
    scale = svg.Scale(0.0, sum(seconds for _, seconds in known), 2.0, size.width - 2.0)
    parts, begun = [], 0.0
    for part, seconds in known:
        left, right = scale.at(begun), scale.at(begun + seconds)
        begun += seconds
        title = f"{PART_TITLES[part]}: {milliseconds(seconds)} ms"
        drawn_part = [svg.rectangle(left, BAR_TOP, right - left, BAR_HEIGHT, f"part part-{part}")]
        words = PART_TITLES[part]
        if right - left >= max(LEAST_LABEL, 7.2 * len(words)):
            drawn_part.append(svg.text(left + 1, BAR_TOP - 7, words, "tick"))
            drawn_part.append(svg.text(left + 5, BAR_TOP + 19, f"{milliseconds(seconds)} ms", "bar-words"))
        parts.append(svg.titled(title, svg.joined(drawn_part)))
    description = ", ".join(f"{PART_TITLES[part]} {milliseconds(seconds)} ms" for part, seconds in known)
    return svg.document(
        f"time-{size.name}",
        size.width,
        size.height,
        "Mean time of a request by part",
        description,
        svg.joined(parts),
    )


def histogram(found: Diagnosis, size: Size) -> Markup:
    """Return executions by batch size, with what is configured beyond what ran."""
    realised = found.realised
    batches = realised.batches
    total = sum(one.executions for one in batches)
    largest = max(realised.configured, *(one.size for one in batches))
    bottom, right = size.height - size.bottom, size.width - size.right
    x = svg.Scale(0.0, largest + 1.0, size.left, right)
    y = svg.Scale(0.0, 108.0 * max(one.executions for one in batches) / total, bottom, size.top)
    parts = grid(("batch size", "% of executions"), size, x, y)
    ran = max(one.size for one in batches)
    if ran < largest:
        unused = svg.rectangle(
            x.at(ran + 0.5), size.top, right - x.at(ran + 0.5), bottom - size.top, "unused"
        )
        parts.append(svg.titled(f"sizes {ran + 1} to {largest} are allowed and did not run", unused))
    width = max(1.5, 0.8 * (x.at(1.0) - x.at(0.0)))
    for one in batches:
        share = 100.0 * one.executions / total
        bar = svg.rectangle(x.at(one.size) - width / 2, y.at(share), width, bottom - y.at(share), "compute")
        title = f"{one.size}: {percent(one.executions / total)} of executions, {milliseconds(one.mean_seconds)} ms each"
        parts.append(svg.titled(title, bar))
    limit = x.at(realised.configured or largest)
    parts.append(svg.line(limit, size.top, limit, bottom, "ceiling"))
    parts.append(
        svg.text(
            limit - 5, size.top + 12, f"max_batch_size {realised.configured}", "halo ceiling-words", "end"
        )
    )
    return svg.document(
        f"batches-{size.name}",
        size.width,
        size.height,
        "Executions by realised batch size",
        f"Mean batch {figure(realised.mean)} of at most {realised.configured}. The table below has every figure.",
        svg.joined(parts),
    )


# ---- what was predicted


def _predicted_pictures(found: Diagnosis) -> list[Picture]:
    prospect = found.prediction.prospect
    if prospect is None:
        return []
    curve, border = curve_chart(prospect), frontier_chart(found, prospect)
    return [
        Picture(
            "The batch-latency curve",
            "Dots are the mean times of batch sizes that ran; the line is the fit that predictions use. "
            "Where no dot is near, the line is a guess.",
            tuple(drawn(curve, size) for size in SIZES),
            (("frontier", "fitted curve"),),
        ),
        Picture(
            "Throughput against p99, predicted",
            "The frontier is the lowest p99 that any configuration reaches at each throughput; what is in "
            "the shaded part breaks the ceiling. After the knee more throughput costs p99 much faster. "
            "Bands of capacity stand in the table.",
            tuple(drawn(border, size) for size in SIZES),
            tuple((one.role, one.name) for one in border.series if one.shape is Shape.LINE),
        ),
    ]


def curve_chart(prospect: Prospect) -> Chart:
    """Return the curve with the points it was fitted to."""
    points = curve_points(prospect.observed, prospect.understood.members)
    fitted = tuple((float(one.size), one.fitted_seconds * 1e3) for one in points)
    seen = tuple((float(one.size), one.seen_seconds * 1e3) for one in points if one.seen_seconds is not None)
    return Chart(
        "curve",
        "Time of a batch by its size",
        "Dots were measured in the window, the line is fitted.",
        "batch size",
        "ms of compute",
        (
            Series("frontier", "fitted curve", fitted),
            Series("winner", "measured in the window", seen, Shape.DOTS),
        ),
    )


def frontier_chart(found: Diagnosis, prospect: Prospect) -> Chart:
    """Return the frontier, with today's configuration and the best one as lines of their own."""
    ceiling, highest = prospect.question.ceiling_seconds, 2.0 * prospect.question.ceiling_seconds * 1e3
    border = tuple((point.rate_per_second, point.p99_seconds * 1e3) for point in prospect.frontier)
    series = [Series("frontier", "frontier: the lowest p99 at each throughput", border)]
    named = [("incumbent", "today", prospect.today.setting)]
    if prospect.best is not None and prospect.best.setting != prospect.today.setting:
        named.append(("winner", "predicted best", prospect.best.setting))
    for role, name, setting in named:
        climb = next(one for one in prospect.climbs if one.setting == setting)
        points = tuple((one.rate_per_second, min(highest, one.p99_seconds * 1e3)) for one in climb.readings)
        series.append(Series(role, f"{name}: {configuration_of(setting).describe()}", points))
    rings = []
    if prospect.knee is not None:
        at = (prospect.knee.rate_per_second, prospect.knee.p99_seconds * 1e3)
        rings.append(Ring("frontier", at, f"knee: {whole(at[0])}/s at {figure(at[1])} ms"))
    today = (prospect.question.rate_per_second, min(highest, prospect.today.p99_seconds.value * 1e3))
    rings.append(
        Ring(
            "incumbent",
            today,
            f"today: {whole(today[0])}/s at {milliseconds(prospect.today.p99_seconds.value)} ms",
        )
    )
    return Chart(
        "frontier",
        "Predicted p99 against throughput per replica",
        f"{worth(found.prediction)}. Lines end where they leave the chart.",
        "requests per second on one replica",
        "p99, ms",
        tuple(series),
        tuple(rings),
        ceiling * 1e3,
        f"p99 ceiling {milliseconds(ceiling)} ms",
        logarithmic=True,
    )

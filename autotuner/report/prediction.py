"""A what-if answer for people: its tables, its charts and its page. Everything on it is predicted and says so."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from markupsafe import Markup

from autotuner.batching.frontier import Climb
from autotuner.batching.trials import Aim, Setting
from autotuner.batching.whatif import Answer, Pattern, Role, Standing
from autotuner.domain.prediction import configuration_of
from autotuner.report.charts import SIZES
from autotuner.report.curves import Chart, Ring, Series, Shape, drawn
from autotuner.report.page import template
from autotuner.report.tables import Column, Table
from autotuner.report.text import UNKNOWN, change, figure, milliseconds, percent, whole

TEMPLATE = "prediction.html.j2"

CLASSES = {Role.TODAY: "incumbent", Role.CAPACITY: "winner", Role.EFFICIENCY: "lean"}
"""Colours of the named settings."""

PATTERN_WORDS = {
    Pattern.POISSON: "Poisson",
    Pattern.GIVEN: "as in the file",
    Pattern.BURSTIER: "burstier: times 1.75 and 0.5 in turns of 1.2 s",
}

FRONTIER_WORDS = (
    "The frontier is the lowest p99 that any configuration reaches at each throughput; the named ones have lines of "
    "their own. What is in the shaded part breaks the ceiling. After the knee, more throughput costs p99 much faster."
)
TRADE_WORDS = (
    "Capacity is the highest rate at which the ceiling holds, and at every rate from today's up to it. Device time is "
    "what one inference costs at today's rate: a longer wait makes larger batches, which cost less."
)

NO_CEILING = "breaks the ceiling today"


@dataclass(frozen=True)
class Source:
    """What the question was read from. arrivals: in words; note: what stands behind the figures."""

    workload: str
    arrivals: str
    note: str


def words(setting: Setting | None) -> str:
    """A setting as configurations are spelt everywhere; a dash for none."""
    return UNKNOWN if setting is None else configuration_of(setting).describe()


def headline(answer: Answer, source: Source) -> str:
    """One sentence on what was asked."""
    question = answer.question
    return (
        f"{source.workload}: {len(question.settings)} configurations at {figure(question.rate_per_second)} requests/s "
        f"on one replica, p99 at most {milliseconds(question.ceiling_seconds)} ms, {source.arrivals} arrivals"
    )


def conclusion(answer: Answer) -> str:
    """One sentence on what came out."""
    choice, today = answer.choice, answer.standings[Role.TODAY]
    if choice is None:
        return "No configuration holds the ceiling at today's rate: the model, not its batching, is too slow for it."
    chosen = words(choice.climb.setting)
    if choice.climb.setting == today.climb.setting:
        return f"Today's configuration is the best one within ties: {chosen}."
    gained = _gains(answer, today, choice)
    return f"Best for {answer.question.aim}: {chosen}: {gained}."


def _gains(answer: Answer, today: Standing, choice: Standing) -> str:
    capacity = f"capacity {whole(choice.capacity)}/s"
    if today.capacity is None:
        return f"{capacity}, where today's configuration {NO_CEILING}"
    spent = [_busy(answer, one.climb) for one in (today, choice)]
    return (
        f"{capacity} instead of {whole(today.capacity)}/s ({change(today.capacity, choice.capacity)}), "
        f"device time per inference {change(spent[0], spent[1])}"
    )


def _busy(answer: Answer, climb: Climb) -> float | None:
    reading = climb.at(answer.question.rate_per_second)
    return reading.busy_seconds if reading else None


# ---- tables


def _columns(*titles: str) -> tuple[Column, ...]:
    return tuple(Column(title, is_figure=True) for title in titles)


def standings(answer: Answer) -> Table:
    """The named settings at today's rate."""
    rows = []
    for role, standing in answer.standings.items():
        reading = standing.climb.at(answer.question.rate_per_second)
        assert reading is not None, "every setting is looked at up to today's rate and beyond"
        rows.append(
            (
                str(role),
                words(standing.climb.setting),
                NO_CEILING if standing.capacity is None else whole(standing.capacity),
                milliseconds(reading.p99_seconds),
                milliseconds(reading.p50_seconds),
                figure(reading.mean_batch),
                milliseconds(reading.busy_seconds),
                percent(reading.utilisation, 2),
            )
        )
    columns = _columns(
        "capacity, /s", "p99, ms", "p50, ms", "mean batch", "device ms per inference", "device busy"
    )
    caption = "Configurations worth naming; all but the capacity at today's rate"
    return Table(caption, (Column(""), Column("configuration"), *columns), tuple(rows))


def frontier_table(answer: Answer) -> Table:
    """The lowest p99 at each throughput, and today's beside it."""
    today = answer.standings[Role.TODAY].climb
    rows = []
    for point in answer.frontier:
        reading = today.at(point.rate_per_second)
        rows.append(
            (
                f"{figure(point.rate_per_second)}{' (knee)' if point == answer.knee else ''}",
                milliseconds(point.p99_seconds),
                words(point.setting),
                milliseconds(reading.p99_seconds if reading else None),
            )
        )
    columns = (
        *_columns("throughput per replica, /s", "lowest p99, ms"),
        Column("configuration that reaches it"),
        *_columns("today's p99, ms"),
    )
    return Table("The frontier: the lowest p99 at each throughput", columns, tuple(rows))


def rates_table(answer: Answer) -> Table:
    """What another rate would change."""
    rows = []
    roles = [role for role, _ in _distinct(answer)]
    for row in answer.rates:
        share = f"{'−' if row.share < 1 else '+'}{abs(round(100 * (row.share - 1)))} %"
        rows.append(
            (
                f"{figure(row.rate_per_second)} ({share if row.share != 1.0 else 'today'})",
                *(milliseconds(row.p99_seconds.get(role)) for role in roles),
                words(row.best),
            )
        )
    columns = (Column("rate, /s"), *_columns(*(f"p99 {_of(role)}, ms" for role in roles)))
    aim = answer.question.aim
    return Table(
        "Sensitivity to the rate",
        (*columns, Column(f"best for {aim} at that rate")),
        tuple(rows),
    )


def patterns_table(answer: Answer) -> Table:
    """What other arrivals would change."""
    rows = []
    roles = [role for role, _ in _distinct(answer)]
    for row in answer.patterns:
        cells: list[str] = []
        for role in roles:
            capacity = row.capacity.get(role)
            cells.append(milliseconds(row.p99_seconds.get(role)))
            cells.append("breaks" if capacity is None else whole(capacity))
        rows.append((PATTERN_WORDS[row.pattern], *cells, words(row.best)))
    figures = [title for role in roles for title in (f"p99 {_of(role)}, ms", f"capacity {_of(role)}, /s")]
    return Table(
        "Sensitivity to burstiness",
        (
            Column("arrivals"),
            *_columns(*figures),
            Column(f"best for {answer.question.aim} of the shortlist"),
        ),
        tuple(rows),
    )


def _of(role: Role) -> str:
    return {
        Role.TODAY: "of today's",
        Role.CAPACITY: "of the best for capacity",
        Role.EFFICIENCY: "of the best for efficiency",
    }[role]


def tables(answer: Answer) -> tuple[Table, ...]:
    """All tables, the most important one first."""
    return standings(answer), frontier_table(answer), rates_table(answer), patterns_table(answer)


# ---- charts


def frontier_chart(answer: Answer) -> Chart:
    """The frontier with the named settings' own lines."""
    question = answer.question
    highest = 2.0 * question.ceiling_seconds * 1e3
    border = tuple((p.rate_per_second, p.p99_seconds * 1e3) for p in answer.frontier)
    lines = [Series("frontier", "frontier: the lowest p99 at each throughput", border)]
    for role, climb in _distinct(answer):
        points = tuple((r.rate_per_second, min(highest, r.p99_seconds * 1e3)) for r in climb.readings)
        lines.append(Series(CLASSES[role], f"{role}: {words(climb.setting)}", points))
    rings = []
    if answer.knee is not None:
        at = (answer.knee.rate_per_second, answer.knee.p99_seconds * 1e3)
        rings.append(Ring("frontier", at, f"knee: {whole(at[0])}/s at {figure(at[1])} ms"))
    now = answer.standings[Role.TODAY].climb.at(question.rate_per_second)
    if now is not None:
        at = (now.rate_per_second, min(highest, now.p99_seconds * 1e3))
        rings.append(Ring("incumbent", at, f"today: {whole(at[0])}/s at {milliseconds(now.p99_seconds)} ms"))
    return Chart(
        "frontier",
        "Predicted p99 against throughput per replica",
        f"{conclusion(answer)} Lines end where they leave the chart.",
        "requests per second on one replica",
        "p99, ms",
        tuple(lines),
        tuple(rings),
        question.ceiling_seconds * 1e3,
        f"p99 ceiling {milliseconds(question.ceiling_seconds)} ms",
        logarithmic=True,
    )


def trade_chart(answer: Answer) -> Chart | None:
    """Every configuration that holds the ceiling today: what it carries against what it spends; None for none."""
    question = answer.question
    dots, since = [], question.rate_per_second
    for climb in answer.climbs:
        capacity, reading = climb.capacity(since, question.ceiling_seconds), climb.at(since)
        if capacity is not None and reading is not None:
            dots.append((capacity, reading.busy_seconds * 1e3))
    if not dots:
        return None
    series = [Series("other", "every configuration that holds the ceiling today", tuple(dots), Shape.DOTS)]
    rings = []
    for role, climb in _distinct(answer):
        capacity, spent = climb.capacity(since, question.ceiling_seconds), _busy(answer, climb)
        if capacity is not None and spent is not None:
            rings.append(Ring(CLASSES[role], (capacity, spent * 1e3), str(role)))
    return Chart(
        "trade",
        "Device time per inference against capacity",
        "Right carries more under the ceiling, down spends less of the device at today's rate.",
        "capacity, requests per second on one replica",
        "device ms per inference at today's rate",
        tuple(series),
        tuple(rings),
    )


def _distinct(answer: Answer) -> Iterable[tuple[Role, Climb]]:
    """The named settings, each once, under its first role; the leading aim's role comes before the other's."""
    lead = Role.CAPACITY if answer.question.aim is Aim.CAPACITY else Role.EFFICIENCY
    ordered = sorted(
        answer.standings.items(), key=lambda item: (item[0] is not Role.TODAY, item[0] is not lead)
    )
    seen: dict[Setting, tuple[Role, Climb]] = {}
    for role, standing in ordered:
        seen.setdefault(standing.climb.setting, (role, standing.climb))
    return tuple(seen.values())


# ---- the page


@dataclass(frozen=True)
class Picture:
    """A chart in every size, what to see in it, and the lines in its legend as (role, name)."""

    heading: str
    explanation: str
    pictures: tuple[Markup, ...]
    legend: tuple[tuple[str, str], ...]


def render(answer: Answer, source: Source) -> str:
    """Return the answer as one HTML page that needs no other file."""
    charts = [
        (
            frontier_chart(answer),
            FRONTIER_WORDS,
        ),
        (
            trade_chart(answer),
            TRADE_WORDS,
        ),
    ]
    return template(TEMPLATE).render(
        source=source,
        headline=headline(answer, source),
        conclusion=conclusion(answer),
        pictures=[
            Picture(
                chart.title,
                explanation,
                tuple(drawn(chart, size) for size in SIZES),
                tuple((one.role, one.name) for one in chart.series if one.shape is Shape.LINE),
            )
            for chart, explanation in charts
            if chart is not None
        ],
        tables=tables(answer),
    )

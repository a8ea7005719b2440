"""The report's charts as SVG: points by verdict with two ramps drawn through them, and stacked bars.

Each chart is drawn twice, wide and narrow, because text in a shrunken picture cannot be read; the page shows one.
"""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from autotuner.domain.judgement import Verdict
from autotuner.report import svg
from autotuner.report.text import figure, tick

LINE_HEIGHT = 16.0


@dataclass(frozen=True)
class Size:
    """A picture's size and margins in pixels, and the ticks that fit."""

    name: str
    width: float
    height: float
    left: float = 58.0
    right: float = 16.0
    top: float = 14.0
    bottom: float = 46.0
    ticks: int = 8


WIDE = Size("wide", 900.0, 420.0)
NARROW = Size("narrow", 340.0, 330.0, left=46.0, right=10.0, ticks=4)
SIZES = (WIDE, NARROW)


@dataclass(frozen=True)
class Point:
    """One step. y None: above everything that could be measured; it is drawn at the upper edge.

    trial: the number of the trial it belongs to. address: of the page that the point opens; empty for none.
    """

    x: float
    y: float | None
    verdict: Verdict
    title: str
    trial: int = 0
    address: str = ""


@dataclass(frozen=True)
class Ramp:
    """A trial's steps from level to level. knee: the highest accepted one, and the words beside it."""

    role: str
    name: str
    points: tuple[Point, ...]
    knee: Point | None
    words: str


@dataclass(frozen=True)
class Plot:
    """Points over a horizontal axis. ceiling: a horizontal limit in the unit of y, if there is one."""

    name: str
    title: str
    description: str
    x_title: str
    y_title: str
    points: tuple[Point, ...]
    ramps: tuple[Ramp, ...]
    ceiling: float | None = None
    ceiling_words: str = ""
    logarithmic: bool = False


@dataclass(frozen=True)
class Bar:
    """One trial's time, in milliseconds, in queue and in compute."""

    label: str
    role: str
    queue: float
    compute: float
    load: str = ""
    """Where the figures are from, if not from production's load."""


@dataclass(frozen=True)
class Bars:
    """Stacked bars, one a trial."""

    name: str
    title: str
    description: str
    bars: tuple[Bar, ...]


def scatter(plot: Plot, size: Size) -> Markup:
    """Return a plot as a picture. It must have a point."""
    x = svg.around([p.x for p in plot.points], size.left, size.width - size.right)
    y = _vertical(plot, size)
    parts = [
        *grid((plot.x_title, plot.y_title), size, x, y),
        *_ceiling(plot, size, y),
        *(_ramp(ramp, x, y) for ramp in plot.ramps),
        *(_point(point, x, y) for point in plot.points),
        *(_knee(ramp, size, x, y, row) for row, ramp in enumerate(plot.ramps)),
    ]
    if plot.ceiling is not None:
        parts.append(
            svg.text(size.left + 6, y.at(plot.ceiling) - 6, plot.ceiling_words, "halo ceiling-words")
        )
    name = f"{plot.name}-{size.name}"
    made = svg.document(name, size.width, size.height, plot.title, plot.description, svg.joined(parts))
    return svg.with_links(made) if any(point.address for point in plot.points) else made


def _vertical(plot: Plot, size: Size) -> svg.Scale:
    values = [p.y for p in plot.points if p.y is not None]
    if plot.ceiling is not None:
        values.append(plot.ceiling)
    bottom, top = size.height - size.bottom, size.top
    if plot.logarithmic and any(value > 0 for value in values):
        return svg.around_logarithmic(values, bottom, top)
    return svg.around(values or [1.0], bottom, top, from_zero=True)


def _ceiling(plot: Plot, size: Size, y: svg.Scale) -> list[Markup]:
    if plot.ceiling is None:
        return []
    limit, right = y.at(plot.ceiling), size.width - size.right
    return [
        svg.rectangle(size.left, size.top, right - size.left, limit - size.top, "forbidden"),
        svg.line(size.left, limit, right, limit, "ceiling"),
    ]


def grid(titles: tuple[str, str], size: Size, x: svg.Scale, y: svg.Scale) -> list[Markup]:
    """Return axes with ticks, and their titles: of the horizontal and of the vertical one."""
    bottom, right = size.height - size.bottom, size.width - size.right
    parts = [svg.line(size.left, bottom, right, bottom, "axis")]
    for value in y.ticks(6):
        parts.append(svg.line(size.left, y.at(value), right, y.at(value), "grid"))
        parts.append(svg.text(size.left - 6, y.at(value) + 4, tick(value), "tick", "end"))
    for value in x.ticks(size.ticks):
        parts.append(svg.line(x.at(value), bottom, x.at(value), bottom + 4, "axis"))
        parts.append(svg.text(x.at(value), bottom + 18, tick(value), "tick", "middle"))
    parts.append(svg.text(right, size.height - 8, titles[0], "axis-title", "end"))
    middle = (size.top + bottom) / 2
    parts.append(
        Markup(
            '<text class="axis-title" text-anchor="middle" transform="translate(13 {:.1f}) rotate(-90)">{}</text>'
        ).format(middle, titles[1])
    )
    return parts


def _height(point: Point, y: svg.Scale) -> float:
    return y.last_pixel if point.y is None else y.at(point.y)


def _ramp(ramp: Ramp, x: svg.Scale, y: svg.Scale) -> Markup:
    return svg.polyline([(x.at(p.x), _height(p, y)) for p in ramp.points], f"ramp ramp-{ramp.role}")


def _point(point: Point, x: svg.Scale, y: svg.Scale) -> Markup:
    drawn = svg.titled(point.title, svg.mark(point.verdict, x.at(point.x), _height(point, y), 4.5))
    return svg.link(point.address, point.title, drawn) if point.address else drawn


def _knee(ramp: Ramp, size: Size, x: svg.Scale, y: svg.Scale, row: int) -> Markup:
    """Ring the knee, drop a line to the axis and say what it is; each ramp has its own row of words."""
    if ramp.knee is None:
        return Markup("")
    across, height, bottom = x.at(ramp.knee.x), _height(ramp.knee, y), size.height - size.bottom
    beside = bottom - 10 - row * (LINE_HEIGHT + 2)
    leftwards = across > (size.left + size.width - size.right) / 2
    ring = Markup('<circle cx="{:.1f}" cy="{:.1f}" r="9" class="ring ramp-{}"/>').format(
        across, height, ramp.role
    )
    drop = svg.line(across, height + 9, across, bottom, f"drop ramp-{ramp.role}")
    place = (across - 6, "end") if leftwards else (across + 6, "start")
    words = svg.text(place[0], beside, ramp.words, f"halo words-{ramp.role}", place[1])
    return svg.joined([drop, ring, words])


ROW_HEIGHT = 42.0
BAR_HEIGHT = 16.0
LETTER_WIDTH = 6.8
"""Of the small letters of the figures, generously."""


def stacked(bars: Bars, size: Size) -> Markup:
    """Return bars as a picture: the label above each bar, its figures after it. There must be a bar."""
    longest = max(bar.queue + bar.compute for bar in bars.bars)
    words = max(len(_figures(bar)) for bar in bars.bars) * LETTER_WIDTH
    scale = svg.Scale(0.0, longest or 1.0, 2.0, size.width - words - 8.0)
    rows = [_bar(bar, scale, number * ROW_HEIGHT, size.width) for number, bar in enumerate(bars.bars)]
    height = len(rows) * ROW_HEIGHT + 4
    name = f"{bars.name}-{size.name}"
    return svg.document(name, size.width, height, bars.title, bars.description, svg.joined(rows))


def _figures(bar: Bar) -> str:
    return f"{figure(bar.queue)} + {figure(bar.compute)} ms{bar.load}"


def _bar(bar: Bar, scale: svg.Scale, top: float, width: float) -> Markup:
    middle, end = scale.at(bar.queue), scale.at(bar.queue + bar.compute)
    css = f"bar-label words-{bar.role}" if bar.role else "bar-label"
    return svg.titled(
        f"{bar.label}: {figure(bar.queue)} ms in queue, {figure(bar.compute)} ms in compute{bar.load}",
        svg.joined(
            [
                svg.text(2, top + 14, bar.label, css, at_most=width - 4),
                svg.rectangle(2, top + 20, middle - 2, BAR_HEIGHT, "queue"),
                svg.rectangle(middle, top + 20, end - middle, BAR_HEIGHT, "compute"),
                svg.text(end + 6, top + 33, _figures(bar), "tick"),
            ]
        ),
    )

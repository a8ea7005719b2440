"""Charts of predictions as SVG: lines, dots and bands over a pair of axes, with rings and words at single points."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from markupsafe import Markup

from autotuner.report import svg
from autotuner.report.charts import LINE_HEIGHT, Size, grid

Points = tuple[tuple[float, float], ...]


class Shape(StrEnum):
    """How a series is drawn."""

    LINE = "line"
    DOTS = "dots"
    BAND = "band"
    """The area between a lower and an upper line: the points go along the one and back along the other."""


@dataclass(frozen=True)
class Series:
    """Points that belong together. role: the class of its colours; name: what a pointer shows."""

    role: str
    name: str
    points: Points
    shape: Shape = Shape.LINE


@dataclass(frozen=True)
class Ring:
    """A point that is pointed out. words: beside it, above the horizontal axis."""

    role: str
    at: tuple[float, float]
    words: str


@dataclass(frozen=True)
class Chart:
    """Series over a pair of axes. ceiling: a horizontal limit in the unit of y, if there is one."""

    name: str
    title: str
    description: str
    x_title: str
    y_title: str
    series: tuple[Series, ...]
    rings: tuple[Ring, ...] = ()
    ceiling: float | None = None
    ceiling_words: str = ""
    logarithmic: bool = False
    """Of the vertical axis."""

    vertical: tuple[float, float] | None = None
    """The vertical axis' ends, so that several charts can be compared; None: what the points need."""

    square: bool = False
    """Whether both axes have the same scale, so that equal values lie on the diagonal."""


def drawn(chart: Chart, size: Size) -> Markup:
    """Return a chart as a picture. It must have a point."""
    x, y = _scales(chart, size)
    right = size.width - size.right
    parts = list(grid((chart.x_title, chart.y_title), size, x, y))
    if chart.ceiling is not None:
        limit = y.at(chart.ceiling)
        parts.append(svg.rectangle(size.left, size.top, right - size.left, limit - size.top, "forbidden"))
        parts.append(svg.line(size.left, limit, right, limit, "ceiling"))
    parts += [svg.titled(one.name, _series(one, x, y)) for one in chart.series]
    parts += [_ring(ring, size, x, y, row) for row, ring in enumerate(chart.rings)]
    if chart.ceiling is not None:
        place = y.at(chart.ceiling) - 6
        parts.append(svg.text(size.left + 6, place, chart.ceiling_words, "halo ceiling-words"))
    name = f"{chart.name}-{size.name}"
    return svg.document(name, size.width, size.height, chart.title, chart.description, svg.joined(parts))


def _scales(chart: Chart, size: Size) -> tuple[svg.Scale, svg.Scale]:
    across = [x for one in chart.series for x, _ in one.points]
    up = [y for one in chart.series for _, y in one.points]
    if chart.ceiling is not None:
        up.append(chart.ceiling)
    bottom, right = size.height - size.bottom, size.width - size.right
    if chart.square:
        both = svg.around([*across, *up], size.left, right)
        return both, svg.Scale(both.low, both.high, bottom, size.top)
    if chart.vertical is not None:
        return svg.around(across, size.left, right), svg.Scale(*chart.vertical, bottom, size.top)
    scale = svg.around_logarithmic if chart.logarithmic else svg.around
    return svg.around(across, size.left, right), scale(up, bottom, size.top)


def _series(one: Series, x: svg.Scale, y: svg.Scale) -> Markup:
    places = [(x.at(across), y.at(up)) for across, up in one.points]
    if one.shape is Shape.LINE:
        return svg.polyline(places, f"ramp ramp-{one.role}")
    if one.shape is Shape.BAND:
        return svg.polygon(places, f"band band-{one.role}")
    return svg.joined(svg.circle(across, up, 3.5, f"dot dot-{one.role}") for across, up in places)


def _ring(ring: Ring, size: Size, x: svg.Scale, y: svg.Scale, row: int) -> Markup:
    """Ring a point, drop a line to the axis and say what it is; each has its own row of words."""
    across, height, bottom = x.at(ring.at[0]), y.at(ring.at[1]), size.height - size.bottom
    beside = bottom - 10 - row * (LINE_HEIGHT + 2)
    leftwards = across > (size.left + size.width - size.right) / 2
    place = (across - 6, "end") if leftwards else (across + 6, "start")
    return svg.joined(
        [
            svg.line(across, height + 9, across, bottom, f"drop ramp-{ring.role}"),
            svg.circle(across, height, 9.0, f"ring ramp-{ring.role}"),
            svg.text(place[0], beside, ring.words, f"halo words-{ring.role}", place[1]),
        ]
    )

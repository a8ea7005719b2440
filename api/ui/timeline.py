"""A time line as a picture: capacities over time, promotions among them, and lines where the budget changed.

Shapes tell kinds apart, so nothing depends on a colour: a disc is an incumbent, a diamond a promoted winner.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from markupsafe import Markup

from autotuner.report import svg
from autotuner.report.charts import LINE_HEIGHT, SIZES, Size
from autotuner.report.text import tick

LOWER = 0.62
"""A time line is lower than it is wide by this much more than the other charts."""

REMEMBERED = 256
"""Time lines that are kept once they are drawn, some 10 kB each."""

ROWS = 4
"""Heights at which words stand beside the lines, one after another."""

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0
STEPS = (
    MINUTE,
    2 * MINUTE,
    5 * MINUTE,
    10 * MINUTE,
    30 * MINUTE,
    HOUR,
    3 * HOUR,
    6 * HOUR,
    12 * HOUR,
    *(days * DAY for days in (1, 2, 7, 14, 28, 91, 182, 365, 1_000, 10_000)),
)


@dataclass(frozen=True)
class Mark:
    """A capacity at an instant, requests per second. kind: `incumbent` or `winner`. address: of the page behind it."""

    at: datetime
    capacity: float
    kind: str
    words: str
    address: str


@dataclass(frozen=True)
class Line:
    """An instant from which something holds, and what."""

    at: datetime
    words: str


@lru_cache(maxsize=REMEMBERED)
def draw(name: str, marks: tuple[Mark, ...], lines: tuple[Line, ...]) -> tuple[Markup, ...]:
    """Return the time line in every size of the other charts; nothing where there is no mark.

    It is remembered by all that it is made of, so it cannot be out of date.
    """
    return tuple(_drawn(name, marks, lines, size) for size in SIZES) if marks else ()


def _drawn(name: str, marks: Sequence[Mark], lines: Sequence[Line], size: Size) -> Markup:
    height = size.height * LOWER
    bottom, right = height - size.bottom, size.width - size.right
    instants = [mark.at.timestamp() for mark in marks] + [line.at.timestamp() for line in lines]
    spread = max(max(instants) - min(instants), MINUTE)
    x = svg.Scale(min(instants) - 0.05 * spread, max(instants) + 0.05 * spread, size.left, right)
    y = svg.around([mark.capacity for mark in marks], bottom, size.top + 16, from_zero=True)
    ordered = sorted(marks, key=lambda mark: mark.at)
    parts = [
        *_grid(size, x, y, bottom),
        *(_line(line, x, size, bottom - LINE_HEIGHT * (row % ROWS)) for row, line in enumerate(lines)),
        svg.polyline([(x.at(m.at.timestamp()), y.at(m.capacity)) for m in ordered], "ramp ramp-winner"),
        *(_mark(mark, x, y) for mark in ordered),
    ]
    title = f"Capacity of {name} over time"
    told = (
        "Discs are incumbents as each study measured them, diamonds are winners that were promoted. "
        "Vertical lines are new versions of the SLO budget. The list below has all of it."
    )
    made = svg.document(f"timeline-{size.name}", size.width, height, title, told, svg.joined(parts))
    return svg.with_links(made)


def _grid(size: Size, x: svg.Scale, y: svg.Scale, bottom: float) -> list[Markup]:
    right = size.width - size.right
    parts = [svg.line(size.left, bottom, right, bottom, "axis")]
    for value in y.ticks(4):
        parts.append(svg.line(size.left, y.at(value), right, y.at(value), "grid"))
        parts.append(svg.text(size.left - 6, y.at(value) + 4, tick(value), "tick", "end"))
    for at, words in _dates(x, 6 if size is SIZES[0] else 3):
        parts.append(svg.line(x.at(at), bottom, x.at(at), bottom + 4, "axis"))
        parts.append(svg.text(x.at(at), bottom + 18, words, "tick", "middle"))
    parts.append(svg.text(size.left, 12, "capacity per replica, requests per second", "axis-title"))
    parts.append(svg.text(right, bottom + 38, "UTC", "axis-title", "end"))
    return parts


def _dates(x: svg.Scale, most: int) -> list[tuple[float, str]]:
    """Round instants on a scale, as seconds, with their words."""
    step = next(each for each in STEPS if (x.high - x.low) / each <= most)
    first = int(x.low // step) + 1
    instants = [number * step for number in range(first, int(x.high // step) + 1)]
    shape = "%Y-%m-%d" if step >= DAY else "%d %b %H:%M" if x.high - x.low > DAY else "%H:%M"
    return [(at, _at(at).strftime(shape)) for at in instants]


def _at(seconds: float) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)


def _line(line: Line, x: svg.Scale, size: Size, beside: float) -> Markup:
    """A line with its words at the height `beside`, so that those of neighbours do not cover one another."""
    at = x.at(line.at.timestamp())
    leftwards = at > (size.left + size.width - size.right) / 2
    place = (at - 4, "end") if leftwards else (at + 4, "start")
    return svg.joined(
        [
            svg.line(at, size.top + 8, at, size.height * LOWER - size.bottom, "version"),
            svg.text(place[0], beside - 6, line.words, "halo tick", place[1]),
        ]
    )


def _mark(mark: Mark, x: svg.Scale, y: svg.Scale) -> Markup:
    across, height = x.at(mark.at.timestamp()), y.at(mark.capacity)
    if mark.kind == "winner":
        corners = [(across, height - 8), (across + 8, height), (across, height + 8), (across - 8, height)]
        shape = svg.polygon(corners, "promoted")
    else:
        shape = svg.circle(across, height, 5, "incumbent")
    return svg.link(mark.address, mark.words, svg.titled(mark.words, shape))

"""Dashboards drawn as SVG from their own JSON and what a real Prometheus answers to their queries.

Not Grafana's drawing: the same panels, in the same places, with the answers to the same queries, so that a person can
see before importing them what they show and whether their queries give anything.
"""

from __future__ import annotations

import html
import json
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from scripts.monitoring.dashboards import COLUMNS

WIDTH, ROW, GAP, HEAD = 1200, 26, 8, 40
COLOURS = ("#1f5fcc", "#b45f06", "#2b7d48", "#8a3bbd", "#b3263a", "#0b7274", "#7a6014", "#4a5568")
LIMIT_COLOUR, LIMITS = "#b3263a", ("allowed", "ceiling")
INK, GREY, LINE = "#1d2433", "#5a6376", "#e6e8ee"
STEPS = 150
LETTER = 5.6
"""Width of a letter of a legend, near enough."""

PREFIXES = ((1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Span:
    """The time that is drawn, in seconds since 1970."""

    begin: float
    end: float

    @property
    def step(self) -> float:
        """Seconds between two points."""
        return max(1.0, round((self.end - self.begin) / STEPS))


@dataclass(frozen=True)
class Series:
    """One line of a panel."""

    legend: str
    points: Points
    colour: str


@dataclass(frozen=True)
class Frame:
    """Where curves are drawn inside a panel, and what of the values fits."""

    left: float
    right: float
    top: float
    bottom: float
    most: float
    span: Span

    def x(self, at: float) -> float:
        """Where an instant is."""
        return self.left + (at - self.span.begin) / (self.span.end - self.span.begin) * (
            self.right - self.left
        )

    def y(self, value: float) -> float:
        """Where a value is."""
        return self.bottom - value / self.most * (self.bottom - self.top)


def answers(url: str, query: str, span: Span) -> list[tuple[Mapping[str, str], Points]]:
    """Return the series that a query gave within a time."""
    asked = {"query": query, "start": span.begin, "end": span.end, "step": span.step}
    with urllib.request.urlopen(f"{url}/api/v1/query_range?{urlencode(asked)}", timeout=20) as answer:  # noqa: S310
        found = json.load(answer)["data"]["result"]
    return [
        (each["metric"], [(float(at), float(value)) for at, value in each["values"] if value != "NaN"])
        for each in found
    ]


def picture(url: str, dashboard: Mapping[str, Any], span: Span) -> str:
    """Return a dashboard as SVG."""
    panels = dashboard["panels"]
    height = max(p["gridPos"]["y"] + p["gridPos"]["h"] for p in panels) * ROW + HEAD
    drawn = "".join(_panel(panel, _series(url, panel, span), span) for panel in panels)
    title = html.escape(dashboard["title"])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}" font-family="DejaVu Sans, sans-serif">'
        f'<title>{title}</title><rect width="{WIDTH}" height="{height}" fill="#f4f5f7"/>'
        f"{_text(GAP, 26, dashboard['title'], INK, 18)}{drawn}</svg>\n"
    )


def without_data(url: str, dashboard: Mapping[str, Any], span: Span) -> list[str]:
    """Return the titles of panels that show nothing."""
    return [panel["title"] for panel in dashboard["panels"] if not _series(url, panel, span)]


def _series(url: str, panel: Mapping[str, Any], span: Span) -> list[Series]:
    found = [
        (_legend(target["legendFormat"], labels), points)
        for target in panel["targets"]
        for labels, points in answers(url, target["expr"], span)
        if points
    ]
    return [
        Series(legend, points, LIMIT_COLOUR if legend in LIMITS else COLOURS[number % len(COLOURS)])
        for number, (legend, points) in enumerate(found)
    ]


def _legend(template: str, labels: Mapping[str, str]) -> str:
    for name, value in labels.items():
        template = template.replace("{{" + name + "}}", value)
    return template


def _panel(panel: Mapping[str, Any], series: Sequence[Series], span: Span) -> str:
    place, column = panel["gridPos"], WIDTH / COLUMNS
    left, top = place["x"] * column + GAP / 2, place["y"] * ROW + HEAD
    size = (place["w"] * column - GAP, place["h"] * ROW - GAP)
    unit = panel["fieldConfig"]["defaults"]["unit"]
    if not series:
        inside = _text(size[0] / 2, size[1] / 2 + 10, "no data", GREY, 13, "middle")
    elif panel["type"] == "stat":
        inside = _stat(series, panel["options"]["textMode"], unit, size)
    else:
        inside = _curves(series, unit, size, span)
    return (
        f'<g transform="translate({left:.1f} {top})">'
        f'<rect width="{size[0]:.1f}" height="{size[1]}" rx="4" fill="#fff" stroke="#d5d9e2"/>'
        f"{_text(10, 19, panel['title'], INK, 13)}{_text(10, 35, panel['description'], GREY)}{inside}</g>"
    )


def _text(x: float, y: float, words: str, colour: str, size: int = 10, anchor: str = "start") -> str:
    look = f'font-size="{size}" fill="{colour}" text-anchor="{anchor}"'
    return f'<text x="{x:.0f}" y="{y:.0f}" {look}>{html.escape(words)}</text>'


def _stat(series: Sequence[Series], mode: str, unit: str, size: tuple[float, float]) -> str:
    """The newest value of each series that still has one, or its name."""
    newest = max(each.points[-1][0] for each in series)
    now = [each for each in series if each.points[-1][0] == newest]
    step = size[0] / len(now)
    drawn = ""
    for number, each in enumerate(now):
        middle = step * (number + 0.5)
        value = each.legend if mode == "name" else said(each.points[-1][1], unit)
        drawn += _text(middle, size[1] / 2 + 24, value, COLOURS[0], 34, "middle")
        if mode == "value_and_name" or (mode == "auto" and len(now) > 1):
            drawn += _text(middle, size[1] / 2 + 48, each.legend, GREY, 11, "middle")
    return drawn


def _curves(series: Sequence[Series], unit: str, size: tuple[float, float], span: Span) -> str:
    most = _round_up(max(value for each in series for _, value in each.points)) or 1.0
    lines, legend = _legend_lines(series, size)
    frame = Frame(64.0, size[0] - 14, 48.0, size[1] - 22 - 13 * lines, most, span)
    return "".join((*_grid(frame, unit), *(_curve(each, frame) for each in series), legend))


def _curve(series: Series, frame: Frame) -> str:
    """A line, interrupted where there is no value."""
    pieces: list[list[tuple[float, float]]] = []
    last = float("-inf")
    for at, value in series.points:
        if at - last > 1.5 * frame.span.step:
            pieces.append([])
        pieces[-1].append((frame.x(at), frame.y(value)))
        last = at
    dashes = ' stroke-dasharray="5 3"' if series.legend in LIMITS else ""
    look = f'fill="none" stroke="{series.colour}" stroke-width="1.8" stroke-linecap="round"{dashes}'
    return "".join(
        f'<polyline points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in [*piece, piece[-1]])}" {look}/>'
        for piece in pieces
    )


def _legend_lines(series: Sequence[Series], size: tuple[float, float]) -> tuple[int, str]:
    """How many lines the legends take, and the legends: one after another from left to right."""
    places: list[tuple[float, int, Series]] = []
    x, line = 64.0, 0
    for each in series:
        width = 16 + LETTER * len(each.legend) + 14
        if x + width > size[0] and x > 64.0:
            x, line = 64.0, line + 1
        places.append((x, line, each))
        x += width
    base = size[1] - 8 - 13 * line
    drawn = "".join(
        f'<rect x="{x:.0f}" y="{base + 13 * row - 7:.0f}" width="10" height="3" fill="{each.colour}"/>'
        + _text(x + 14, base + 13 * row, each.legend, INK)
        for x, row, each in places
    )
    return line + 1, drawn


def _grid(frame: Frame, unit: str) -> Iterator[str]:
    for part in (0.0, 0.25, 0.5, 0.75, 1.0):
        y = frame.y(part * frame.most)
        yield f'<line x1="{frame.left}" x2="{frame.right:.1f}" y1="{y:.1f}" y2="{y:.1f}" stroke="{LINE}"/>'
        yield _text(frame.left - 6, y + 4, said(part * frame.most, unit), GREY, anchor="end")
    minutes = (frame.span.end - frame.span.begin) / 60
    every = next((each for each in (1, 2, 5, 10, 30) if minutes / each <= 6), 60)
    for minute in range(0, int(minutes) + 1, every):
        x = frame.x(frame.span.begin + 60 * minute)
        yield _text(x, frame.bottom + 13, f"{minute} min", GREY, anchor="middle" if minute else "start")


def _round_up(most: float) -> float:
    """The next round value that four equal parts of an axis can end at."""
    if most <= 0.0:
        return 0.0
    power = 10.0 ** (len(f"{int(most)}") - 1 if most >= 1.0 else -_zeros(most))
    return next(power * step for step in (1, 2, 4, 6, 8, 10) if most <= power * step * (1 + 1e-9))


def _zeros(most: float) -> int:
    return int(f"{most:e}".rpartition("e-")[2])


def said(value: float, unit: str) -> str:
    """Return a value with its unit, as Grafana names units."""
    if unit == "percentunit":
        return f"{value * 100:.3g} %"
    if unit == "s":
        return f"{value * 1e3:.3g} ms" if value < 1.0 else f"{value:.3g} s"
    if unit == "ms":
        return f"{value:.3g} ms"
    if unit == "bytes":
        size, prefix = next((each for each in PREFIXES if value >= each[0]), PREFIXES[-1])
        return f"{value / size:.3g} {prefix}B"
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"

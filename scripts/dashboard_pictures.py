"""Pictures of the dashboards of `deploy/monitoring`, drawn from what a real Prometheus answers to their queries.

    python -m scripts.dashboard_pictures PROMETHEUS_URL FOLDER [MINUTES]

Not Grafana's own drawing: the same panels, in the same places, with the answers to the same queries, so that a person
can see before importing them what they show and whether their queries give anything.
"""

from __future__ import annotations

import html
import json
import sys
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from scripts.monitoring.dashboards import COLUMNS
from scripts.monitoring.files import FOLDER

WIDTH, ROW, GAP = 1200, 26, 8
COLOURS = ("#2f6fdf", "#d9822b", "#3a9a5b", "#a24bd6", "#c23a4b", "#667085", "#0f8b8d", "#8a6d1f")
INK, GREY = "#1d2433", "#667085"
STEPS = 120

Points = Sequence[tuple[float, float]]


def answers(url: str, query: str, minutes: float) -> list[tuple[Mapping[str, str], Points]]:
    """Return the series that a query gave in the last minutes."""
    now = float(_asked(url, "query", {"query": "time()"})[1])
    span = {"start": now - 60 * minutes, "end": now, "step": max(1.0, 60 * minutes / STEPS)}
    found = _asked(url, "query_range", {"query": query, **span})
    return [
        (each["metric"], [(float(at), float(value)) for at, value in each["values"] if value != "NaN"])
        for each in found
    ]


def _asked(url: str, what: str, parameters: Mapping[str, Any]) -> Any:
    with urllib.request.urlopen(f"{url}/api/v1/{what}?{urlencode(parameters)}", timeout=10) as answer:  # noqa: S310
        return json.load(answer)["data"]["result"]


def picture(url: str, dashboard: Mapping[str, Any], minutes: float) -> str:
    """Return a dashboard as SVG."""
    panels = dashboard["panels"]
    height = max(p["gridPos"]["y"] + p["gridPos"]["h"] for p in panels) * ROW + 40
    drawn = "".join(_panel(url, panel, minutes) for panel in panels)
    title = html.escape(dashboard["title"])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif">'
        f"<title>{title}</title>"
        f'<rect width="{WIDTH}" height="{height}" fill="#f4f5f7"/>'
        f'<text x="{GAP}" y="26" font-size="20" fill="#1d2433">{title}</text>{drawn}</svg>\n'
    )


def _panel(url: str, panel: Mapping[str, Any], minutes: float) -> str:
    place = panel["gridPos"]
    unit = WIDTH / COLUMNS
    left, top = place["x"] * unit + GAP / 2, place["y"] * ROW + 40
    width, height = place["w"] * unit - GAP, place["h"] * ROW - GAP
    series = [
        (_legend(target["legendFormat"], labels), points)
        for target in panel["targets"]
        for labels, points in answers(url, target["expr"], minutes)
        if points
    ]
    inside = _stat(series, width, height) if panel["type"] == "stat" else _curves(series, width, height)
    return (
        f'<g transform="translate({left:.1f} {top})">'
        f'<rect width="{width:.1f}" height="{height}" rx="4" fill="#fff" stroke="#d5d9e2"/>'
        f"{_text(10, 18, panel['title'], INK, 13)}{_text(10, 33, panel['description'], GREY)}"
        f"{inside or _text(width / 2, height / 2 + 10, 'no data', GREY, 13, 'middle')}</g>"
    )


def _legend(template: str, labels: Mapping[str, str]) -> str:
    for name, value in labels.items():
        template = template.replace("{{" + name + "}}", value)
    return template


def _text(x: float, y: float, words: str, colour: str, size: int = 10, anchor: str = "start") -> str:
    look = f'font-size="{size}" fill="{colour}" text-anchor="{anchor}"'
    return f'<text x="{x:.0f}" y="{y:.0f}" {look}>{html.escape(words)}</text>'


def _stat(series: Sequence[tuple[str, Points]], width: float, height: float) -> str:
    if not series:
        return ""
    step = width / len(series)
    return "".join(
        _text(step * (number + 0.5), height / 2 + 22, f"{points[-1][1]:g}", COLOURS[0], 34, "middle")
        + _text(step * (number + 0.5), height - 14, legend, GREY, anchor="middle")
        for number, (legend, points) in enumerate(series)
    )


def _curves(series: Sequence[tuple[str, Points]], width: float, height: float) -> str:
    if not series:
        return ""
    left, right, top, bottom = 58.0, width - 10, 44.0, height - 34
    times = [at for _, points in series for at, _ in points]
    begin, end = min(times), max(*times, min(times) + 1)
    most = max(value for _, points in series for _, value in points) or 1.0
    lines = [*_grid(most, (left, right, top, bottom))]
    for number, (legend, points) in enumerate(series):
        colour = COLOURS[number % len(COLOURS)]
        path = " ".join(
            f"{left + (at - begin) / (end - begin) * (right - left):.1f},{bottom - value / most * (bottom - top):.1f}"
            for at, value in points
        )
        lines.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.6"/>')
        place = (left + number % 4 * (width - 70) / 4, height - 18 + number // 4 * 11)
        lines.append(_text(*place, legend, colour))
    return "".join(lines)


def _grid(most: float, frame: tuple[float, float, float, float]) -> Iterator[str]:
    left, right, top, bottom = frame
    for part in (0.0, 0.5, 1.0):
        y = bottom - part * (bottom - top)
        yield f'<line x1="{left}" x2="{right:.1f}" y1="{y:.1f}" y2="{y:.1f}" stroke="#e6e8ee"/>'
        yield _text(left - 6, y + 4, f"{part * most:.3g}", GREY, anchor="end")


def main(arguments: Sequence[str]) -> None:
    """Draw every dashboard."""
    url, folder = arguments[0].rstrip("/"), Path(arguments[1])
    minutes = float(arguments[2]) if len(arguments) > 2 else 5.0
    for path in sorted((FOLDER / "dashboards").glob("*.json")):
        drawn = folder / f"dashboard-{path.stem}.svg"
        drawn.write_text(picture(url, json.loads(path.read_text("utf-8")), minutes), "utf-8")
        print(drawn)


if __name__ == "__main__":
    main(sys.argv[1:])

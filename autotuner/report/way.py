"""The way of slow requests as one stacked bar and a table, by their spans."""

from __future__ import annotations

from markupsafe import Markup

from autotuner.domain.slow_requests import SlowRequests
from autotuner.domain.titles import WAY_TITLES
from autotuner.report import svg
from autotuner.report.charts import Size
from autotuner.report.tables import Column, Table
from autotuner.report.text import milliseconds, percent

SIZES = (Size("wide", 900.0, 58.0), Size("narrow", 340.0, 58.0))
TOP, HEIGHT = 24.0, 28.0
LETTER = 7.2
"""Pixels a letter takes; a part that its words do not fit in is told by the table and the pointer."""


def bars(slow: SlowRequests, name: str) -> tuple[Markup, ...]:
    """Return the bar in every size; none where no slow request was seen. name: unique on the page."""
    return tuple(_bar(slow, name, size) for size in SIZES) if slow.mean_seconds else ()


def _bar(slow: SlowRequests, name: str, size: Size) -> Markup:
    scale = svg.Scale(0.0, sum(each.mean_seconds for each in slow.parts) or 1.0, 2.0, size.width - 2.0)
    drawn, begun = [], 0.0
    for each in slow.parts:
        left, right = scale.at(begun), scale.at(begun + each.mean_seconds)
        begun += each.mean_seconds
        words, figure = WAY_TITLES[each.part], f"{milliseconds(each.mean_seconds)} ms"
        shapes = [svg.rectangle(left, TOP, right - left, HEIGHT, f"way way-{each.part}")]
        if right - left >= LETTER * max(len(words), len(figure)):
            shapes.append(svg.text(left + 1, TOP - 7, words, "tick"))
            shapes.append(svg.text(left + 5, TOP + 19, figure, "way-words"))
        drawn.append(svg.titled(f"{words}: {figure}", svg.joined(shapes)))
    told = ", ".join(f"{WAY_TITLES[each.part]} {milliseconds(each.mean_seconds)} ms" for each in slow.parts)
    title = "Mean time of a slow request by part"
    return svg.document(f"{name}-{size.name}", size.width, size.height, title, told, svg.joined(drawn))


def parts(slow: SlowRequests) -> Table:
    """Return every part with its mean, its share, and how often it was the longest."""
    columns = (
        Column("part"),
        Column("mean, ms", is_figure=True),
        Column("share", is_figure=True),
        Column("longest in", is_figure=True),
    )
    whole = slow.mean_seconds or 0.0
    rows = tuple(
        (
            WAY_TITLES[each.part],
            milliseconds(each.mean_seconds),
            percent(each.mean_seconds / whole if whole else None),
            f"{each.longest_in} of {slow.requests}",
        )
        for each in slow.parts
    )
    return Table("Slow requests by span", columns, rows)

"""The tables of reports, drawn in a terminal: one drawing for every command that shows one."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from autotuner.report.tables import Table as Rows

BAR = 20
"""Cells of the longest bar of a table."""


def for_terminal(data: Rows, shares: Sequence[float] = ()) -> Table:
    """Return a report's table for a terminal; figures are aligned to the right.

    shares: of each row, 0 to 1, drawn as bars in a last column, the largest one in full length.
    """
    table = Table(title=data.caption, title_justify="left", title_style="bold")
    for column in data.columns:
        table.add_column(column.title, justify="right" if column.is_figure else "left")
    bars = [""] * len(data.rows)
    if shares:
        table.add_column("")
        bars = ["█" * (round(BAR * share / max(shares)) or 1) for share in shares]
    for row, bar in zip(data.rows, bars, strict=True):
        table.add_row(*(str(cell) for cell in row), *([bar] if bar else []))
    return table

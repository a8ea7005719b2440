"""The tables of reports, drawn in a terminal: one drawing for every command that shows one."""

from __future__ import annotations

from rich.table import Table

from autotuner.report.tables import Table as Rows


def for_terminal(data: Rows) -> Table:
    """Return a report's table for a terminal; figures are aligned to the right."""
    table = Table(title=data.caption, title_justify="left", title_style="bold")
    for column in data.columns:
        table.add_column(column.title, justify="right" if column.is_figure else "left")
    for row in data.rows:
        table.add_row(*(str(cell) for cell in row))
    return table

"""The report's table of what the model predicted beside what was measured."""

from __future__ import annotations

from autotuner.domain.hindsight import Prediction, predictions
from autotuner.domain.study import Study
from autotuner.report.tables import Cell, Column, Table, badge
from autotuner.report.text import UNKNOWN, milliseconds, percent, whole

BANDS = {None: UNKNOWN, True: "yes", False: "no"}


def predicted(study: Study) -> Table:
    """Predicted and observed p99 of every trial that a model proposed; no rows where none did."""
    columns = (
        Column("trial"),
        Column("configuration"),
        Column("rate per replica, /s", is_figure=True),
        Column("predicted p99, ms", is_figure=True),
        Column("90 % band, ms", is_figure=True),
        Column("observed p99, ms", is_figure=True),
        Column("in the band"),
        Column("risk of a violation", is_figure=True),
        Column("verdict"),
    )
    return Table("Predicted against observed p99", columns, tuple(map(_row, predictions(study))))


def _row(each: Prediction) -> tuple[Cell, ...]:
    return (
        f"#{each.trial.number}",
        each.trial.configuration.describe(),
        whole(each.rate_per_second),
        milliseconds(each.p99_seconds),
        f"{milliseconds(each.low_seconds)}–{milliseconds(each.high_seconds)}",
        milliseconds(each.observed_seconds),
        BANDS[each.within],
        percent(each.risk),
        badge(each.trial.verdict, each.trial.state),
    )

"""The tables of a diagnosis, for the terminal and the page alike."""

from __future__ import annotations

from autotuner.batching.prospect import Band, Expected, Prospect
from autotuner.domain.findings.breakdown import Breakdown, Part
from autotuner.domain.findings.diagnosis import Diagnosis
from autotuner.domain.findings.reading import Batch
from autotuner.domain.prediction import configuration_of
from autotuner.report.tables import Column, Table
from autotuner.report.text import UNKNOWN, figure, milliseconds, percent, whole

PART_TITLES = {
    Part.BEFORE_TRITON: "before Triton",
    Part.QUEUE: "queue",
    Part.INPUT: "input copy",
    Part.INFER: "compute",
    Part.OUTPUT: "output copy",
    Part.REST: "rest in Triton",
}

MOST_SIZES = 24
"""Batch sizes that a table shows one by one; more are put together."""


def _figures(*titles: str) -> tuple[Column, ...]:
    return tuple(Column(title, is_figure=True) for title in titles)


def parts_table(found: Breakdown) -> Table:
    """Each part of a request with mean and quantiles; parts nothing is known of are left out."""
    rows = [
        (
            PART_TITLES[one.part],
            milliseconds(one.mean_seconds),
            *(
                milliseconds(value)
                for value in (one.quantiles.p50_seconds, one.quantiles.p95_seconds, one.quantiles.p99_seconds)
            ),
        )
        for one in found.shares
        if one.mean_seconds is not None
    ]
    whole_row = (
        "the whole",
        milliseconds(found.total_seconds),
        *(
            milliseconds(value)
            for value in (found.total.p50_seconds, found.total.p95_seconds, found.total.p99_seconds)
        ),
    )
    columns = (Column("ms"), *_figures("mean", "p50", "p95", "p99"))
    return Table("A request's time by part; quantiles where the source has them", columns, (*rows, whole_row))


def _shown(found: Diagnosis) -> list[Batch]:
    """The sizes that a table shows one by one, smallest first: those that ran most often."""
    often = sorted(found.realised.batches, key=lambda one: -one.executions)
    return sorted(often[:MOST_SIZES], key=lambda one: one.size)


def batch_shares(found: Diagnosis) -> tuple[float, ...]:
    """Return the share of executions, 0 to 1, of each row of `batch_table`."""
    total = sum(one.executions for one in found.realised.batches) or 1
    shares = [one.executions / total for one in _shown(found)]
    return (*shares, 1.0 - sum(shares)) if len(shares) < len(found.realised.batches) else tuple(shares)


def batch_table(found: Diagnosis) -> Table:
    """How often each batch size ran, and what it took."""
    realised = found.realised
    batches = realised.batches
    total = sum(one.executions for one in batches) or 1
    shown = _shown(found)
    rows = [
        (
            str(one.size),
            whole(one.executions),
            percent(one.executions / total),
            milliseconds(one.mean_seconds),
            milliseconds(one.mean_seconds / one.size),
        )
        for one in shown
    ]
    if len(shown) < len(batches):
        rest = total - sum(one.executions for one in shown)
        rows.append(
            (f"{len(batches) - len(shown)} other sizes", whole(rest), percent(rest / total), UNKNOWN, UNKNOWN)
        )
    p50, p95, p99 = (str(size) if size is not None else UNKNOWN for size in realised.sizes)
    caption = (
        f"Realised batches: mean {figure(realised.mean)}, p50 {p50}, p95 {p95}, p99 {p99}; configured "
        f"{realised.configured or UNKNOWN}"
    )
    columns = (Column("batch"), *_figures("executions", "share", "ms", "ms an item"))
    return Table(caption, columns, tuple(rows))


def device_text(found: Diagnosis) -> str:
    """Return how busy the devices were and what of their memory was used: a pair, as each alone misleads."""
    realised = found.realised
    memory = "not told"
    if realised.memory_used_bytes is not None and realised.memory_total_bytes:
        memory = (
            f"{figure(realised.memory_used_bytes / 1e9)} of {figure(realised.memory_total_bytes / 1e9)} GB"
        )
    used = realised.device_utilisation
    return f"{percent(used) if used is not None else 'not told'} / {memory}"


def arrivals_text(prospect: Prospect) -> str:
    """Return how requests arrive at the replica that is predicted: rate, and burstiness at and below the looks."""
    seen, bursts = prospect.observed, prospect.understood.bursts
    said = (
        f"{figure(seen.rate_per_second)}/s; variance over mean of counts each "
        f"{milliseconds(seen.look_seconds)} ms: {figure(seen.dispersion)} (1: Poisson, more: bursts)"
    )
    if not bursts.sigma:
        return f"{said}; no bursts between looks"
    return f"{said}; between looks the rate varies by {percent(bursts.sigma)} for {milliseconds(bursts.seconds)} ms"


def knee_text(prospect: Prospect) -> str:
    """Return where more throughput begins to cost much; empty where the frontier has no such place."""
    if prospect.knee is None:
        return ""
    knee = prospect.knee
    named = configuration_of(knee.setting).describe()
    return f"{whole(knee.rate_per_second)}/s at a p99 of {milliseconds(knee.p99_seconds)} ms, with {named}"


def band(value: Band | None, scale: float = 1.0) -> str:
    """Return a figure with its band: `212 (190 to 236)`."""
    if value is None:
        return UNKNOWN
    return f"{figure(value.value * scale)} ({figure(value.low * scale)} to {figure(value.high * scale)})"


def named_table(found: Diagnosis) -> Table:
    """Today's configuration beside the best one."""
    prospect, cost = found.prediction.prospect, found.prediction.cost
    assert prospect is not None, "only what was predicted has a table"
    rows = [_named("today", prospect.today, cost.now if cost else None)]
    if prospect.best is not None:
        rows.append(_named("predicted best", prospect.best, cost.then if cost else None))
    columns = [
        Column(""),
        Column("configuration"),
        *_figures("p99 at today's rate, ms", "capacity, /s", "mean batch", "device ms an inference"),
    ]
    if cost is not None:
        columns += _figures(f"{found.prediction.currency} a million, at capacity")
    else:
        rows = [row[:-1] for row in rows]
    return Table(
        "Today's configuration and the predicted best, with bands that hold nine of ten",
        tuple(columns),
        tuple(rows),
    )


def _named(title: str, one: Expected, cost: float | None) -> tuple[str, ...]:
    return (
        title,
        configuration_of(one.setting).describe(),
        band(one.p99_seconds, 1e3),
        band(one.capacity) if one.capacity else "breaks the ceiling",
        figure(one.mean_batch),
        figure(one.busy_seconds * 1e3),
        figure(cost),
    )

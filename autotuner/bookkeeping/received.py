"""How long and how much is kept of spans that were sent here, and how the pieces of one request become one again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from autotuner.ports import SlowTrace

KEPT_FOR = timedelta(hours=1)
"""Longer than a step waits to be explained; whoever wants to keep traces has a store for them."""

MOST_KEPT = 500
"""Slow requests of one target; a window is explained by 50 at most."""

APART = timedelta(seconds=1)
"""Pieces of one request that different processes were sent end at most so far apart."""


def whole(pieces: Iterable[SlowTrace], began: datetime, ended: datetime) -> tuple[SlowTrace, ...]:
    """Return the requests that ended between two instants, put together from their pieces, newest first."""
    found: dict[str, SlowTrace] = {}
    for piece in pieces:
        known = found.get(piece.trace_id)
        found[piece.trace_id] = (
            piece
            if known is None
            else replace(
                known, ended_at=max(known.ended_at, piece.ended_at), spans=(*known.spans, *piece.spans)
            )
        )
    within = [trace for trace in found.values() if began <= trace.ended_at <= ended]
    return tuple(sorted(within, key=lambda trace: trace.ended_at, reverse=True))

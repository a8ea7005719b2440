"""Spans of slow requests in memory."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from autotuner.adapters.memory_store.tables import Memory
from autotuner.bookkeeping.received import KEPT_FOR, MOST_KEPT, whole
from autotuner.domain.sources import OTLP
from autotuner.ports import Listening, SlowTrace


class MemorySpans:
    """`ports.ReceivedSpans` beside a `MemoryStore`, whose tables it is given."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def listening(self) -> Sequence[Listening]:
        """Return the targets with a study that has not ended whose spans are sent here."""
        with self._memory.lock:
            known = [
                each for each in self._memory.targets.values() if self._memory.unfinished_of(each.target.name)
            ]
            traced = [each for each in known if each.target.traces and each.target.traces.kind == OTLP]
            return tuple(Listening(each.target, each.slo.p99_ceiling_seconds) for each in traced)

    def keep(self, traces: Sequence[SlowTrace], now: datetime) -> None:
        """Keep slow requests, and drop what is old or more than is kept of a target."""
        with self._memory.lock:
            rows = [*self._memory.slow_traces, *((now, trace) for trace in traces)]
            for name in {trace.target for trace in traces}:
                own = [row for row in rows if row[1].target == name]
                surplus = {id(row) for row in own[: max(0, len(own) - MOST_KEPT)]}
                rows = [row for row in rows if id(row) not in surplus]
            self._memory.slow_traces = rows
            self.forget(now)

    def forget(self, now: datetime) -> None:
        """Drop what is old."""
        with self._memory.lock:
            kept = [row for row in self._memory.slow_traces if row[0] > now - KEPT_FOR]
            self._memory.slow_traces = kept

    def slow(self, target: str, began: datetime, ended: datetime) -> Sequence[SlowTrace]:
        """Return the slow requests of a target that ended between two instants, each whole, newest first."""
        with self._memory.lock:
            pieces = [trace for _, trace in self._memory.slow_traces if trace.target == target]
        return whole(pieces, began, ended)

"""Schedules, freezes, the line and nights, in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from autotuner.adapters.memory_store.store import MemoryStore
from autotuner.bookkeeping.audit import AuditLine
from autotuner.bookkeeping.nightly import (
    check_schedule,
    freeze_lines,
    freeze_removed_lines,
    kept_schedule,
    line_lines,
    night_missed_lines,
    night_started_lines,
    schedule_lines,
    schedule_removed_lines,
    stopped_line,
)
from autotuner.bookkeeping.rules import aware, plain
from autotuner.domain.access import Said
from autotuner.domain.calendar import Freeze, Line, Night, Schedule, Standing
from autotuner.domain.notices import inconclusive, inconclusive_in_a_row, missed
from autotuner.domain.study import Outcome, Phase, Study
from autotuner.errors import NotFound
from autotuner.ports import NightRecord, NightState


class MemoryNights:
    """`ports.Nights` beside a `MemoryStore`."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._memory = store.memory

    def set_schedule(self, schedule: Schedule, said: Said, mark: str | None = None) -> Schedule:
        """Create or change a target's schedule; see `ports.Nights`."""
        with self._memory.lock:
            self._check_target(schedule.target)
            kept, before = kept_schedule(schedule, said), self._memory.schedules.get(schedule.target)
            check_schedule(schedule.target, before, mark)
            self._memory.schedules[kept.target] = kept
            self._memory.note(schedule_lines(before, kept, said))
            return kept

    def remove_schedule(self, target: str, said: Said, mark: str | None = None) -> None:
        """Remove a target's schedule. Raises NotFound, Outdated."""
        with self._memory.lock:
            if target not in self._memory.schedules:
                raise NotFound("schedule of target", target)
            check_schedule(target, self._memory.schedules[target], mark)
            del self._memory.schedules[target]
            self._memory.note(schedule_removed_lines(target, said))

    def schedules(self, targets: Sequence[str] | None = None) -> Sequence[Schedule]:
        """Return the schedules of these targets, or every one, by target."""
        with self._memory.lock:
            kept = sorted(self._memory.schedules.items())
        return tuple(schedule for name, schedule in kept if targets is None or name in targets)

    def stop_line(self, said: Said) -> Line:
        """Stop the line. Raises InvalidInput without a reason."""
        with self._memory.lock:
            return self._set_line(stopped_line(self._memory.line, said), said)

    def release_line(self, said: Said) -> Line:
        """Let the line run again."""
        with self._memory.lock:
            return self._set_line(Line(), said)

    def add_freeze(self, freeze: Freeze, said: Said) -> Freeze:
        """Record a freeze and return it with its number. Raises NotFound for an unknown target."""
        with self._memory.lock:
            if freeze.target is not None:
                self._check_target(freeze.target)
            kept = replace(freeze, number=next(self._memory.numbers), reason=plain(freeze.reason))
            self._memory.freezes[kept.number] = kept
            self._memory.note(freeze_lines(kept, said))
            return kept

    def remove_freeze(self, number: int, said: Said) -> None:
        """End a freeze. Raises NotFound."""
        with self._memory.lock:
            gone = self._memory.freezes.pop(number, None)
            if gone is None:
                raise NotFound("freeze", number)
            self._memory.note(freeze_removed_lines(gone, said))

    def standing(self, now: datetime) -> Standing:
        """Return what keeps production as it is."""
        with self._memory.lock:
            return self._memory.standing(now)

    def start_night(self, night: Night, study: Study, said: Said) -> bool:
        """Record the study of a night, together with the night being started; see `ports.Nights`."""
        with self._memory.lock:
            if (night.target, night.name) in self._memory.nights:
                return False
            self._store.create_study(study)
            lines = night_started_lines(night, study.id, said)
            return self._settle(NightRecord(night, NightState.STARTED, study.id, None, "", said.at), lines)

    def miss_night(self, night: Night, said: Said) -> bool:
        """Record that a night did not start; see `ports.Nights`."""
        with self._memory.lock:
            if (night.target, night.name) in self._memory.nights:
                return False
            self._check_target(night.target)
            self._memory.tell((missed(night.target, night.name, said.reason, said.at),))
            record = NightRecord(night, NightState.MISSED, None, None, plain(said.reason), aware(said.at))
            return self._settle(record, night_missed_lines(night, said))

    def close_nights(self, inconclusive_nights: int, now: datetime) -> int:
        """Note the outcome of every started night whose study has ended; see `ports.Nights`."""
        with self._memory.lock:
            closed = 0
            for key, record in sorted(self._memory.nights.items(), key=lambda item: item[1].night.due_at):
                study = self._memory.studies[record.study_id].study if record.study_id else None
                if record.state is NightState.STARTED and study is not None and study.phase is Phase.ENDED:
                    outcome = study.outcome.value if study.outcome is not None else None
                    self._memory.nights[key] = replace(record, state=NightState.ENDED, outcome=outcome)
                    self._tell_row(record.night, outcome, inconclusive_nights, now)
                    closed += 1
            return closed

    def settled_until(self) -> Mapping[str, datetime]:
        """Return when the newest settled night of each target was due."""
        with self._memory.lock:
            newest: dict[str, datetime] = {}
            for record in self._memory.nights.values():
                before = newest.get(record.night.target, record.night.due_at)
                newest[record.night.target] = max(before, record.night.due_at)
            return newest

    def nights(
        self, target: str | None = None, limit: int = 50, after: tuple[datetime, str] | None = None
    ) -> Sequence[NightRecord]:
        """Return settled nights, newest first; see `ports.Nights`."""
        with self._memory.lock:
            found = [r.night for r in self._memory.nights.values() if target in (None, r.night.target)]
            by_target = sorted(found, key=lambda night: night.target)
            ordered = sorted(by_target, key=lambda night: night.due_at, reverse=True)
            if after is not None:
                due_at, name = after
                ordered = [
                    n for n in ordered if n.due_at < due_at or (n.due_at == due_at and n.target > name)
                ]
            return tuple(self._memory.nights[night.target, night.name] for night in ordered[:limit])

    def _tell_row(self, night: Night, outcome: str | None, wanted: int, now: datetime) -> None:
        every = self.nights(night.target, len(self._memory.nights))
        if outcome == Outcome.INCONCLUSIVE:
            row = inconclusive_in_a_row(tuple(record.outcome for record in every))
            self._memory.tell((inconclusive(night.target, night.name, wanted, now),) if row == wanted else ())

    def _settle(self, record: NightRecord, lines: Sequence[AuditLine]) -> bool:
        self._memory.nights[record.night.target, record.night.name] = record
        self._memory.note(lines)
        return True

    def _set_line(self, after: Line, said: Said) -> Line:
        before, self._memory.line = self._memory.line, after
        self._memory.note(line_lines(before, after, said))
        return after

    def _check_target(self, target: str) -> None:
        if target not in self._memory.targets:
            raise NotFound("target", target)

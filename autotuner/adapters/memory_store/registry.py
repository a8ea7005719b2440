"""What is registered of targets, in memory."""

from __future__ import annotations

import json
from dataclasses import replace

from autotuner.adapters.memory_store.tables import Memory, text_of
from autotuner.bookkeeping.audit import (
    registration_lines,
    retire_lines,
)
from autotuner.bookkeeping.rules import (
    check_version,
    next_budget,
    next_registration,
    retired_registration,
)
from autotuner.domain.access import Said
from autotuner.domain.registration import Registration, Wanted
from autotuner.domain.slo import SloBudget
from autotuner.domain.target import Target
from autotuner.errors import NotFound
from autotuner.records import from_record


class MemoryRegistry:
    """What is registered of targets, beside a `MemoryStore`."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def registration(self, name: str) -> Registration:
        """Return a target with its newest budget and its defaults, retired or not. Raises NotFound."""
        with self._memory.lock:
            if name not in self._memory.targets:
                raise NotFound("target", name)
            return self._memory.targets[name]

    def register(self, wanted: Wanted, mark: str | None, said: Said) -> Registration:
        """Create, change or revive a target; see `ports.Registry`."""
        with self._memory.lock:
            kept: Target = from_record(Target, json.loads(text_of(wanted.target)))
            before = self._memory.targets.get(kept.name)
            after = next_registration(before, replace(wanted, target=kept), mark, said)
            self._keep(before, after)
            self._memory.note(registration_lines(before, after, said))
            return after

    def set_budget(self, name: str, slo: SloBudget, version: int, said: Said) -> SloBudget:
        """Make a new version of a budget; see `ports.Registry`."""
        with self._memory.lock:
            before = self.registration(name)
            check_version(name, before.slo.version, version)
            after = replace(before, slo=next_budget(before.slo, slo, said.actor, said.reason, said.at))
            self._keep(before, after)
            self._memory.note(registration_lines(before, after, said))
            return after.slo

    def retire(self, name: str, mark: str | None, said: Said) -> Registration:
        """Let no study of a target start any more; see `ports.Registry`."""
        with self._memory.lock:
            before = self.registration(name)
            after = retired_registration(before, mark, said, self._memory.unfinished_of(name))
            self._keep(before, after)
            self._memory.note(retire_lines(before, after, said))
            return after

    def _keep(self, before: Registration | None, after: Registration) -> None:
        name = after.target.name
        self._memory.targets[name] = after
        if before is None or after.slo is not before.slo:
            self._memory.budgets[name] = [*self._memory.budgets.get(name, []), after.slo]

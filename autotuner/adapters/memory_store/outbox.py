"""Notices in memory, and who leads there."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from autotuner.adapters.memory_store.tables import Memory
from autotuner.bookkeeping.nightly import retried
from autotuner.errors import NotFound
from autotuner.ports import Message, MessageState


class MemoryOutbox:
    """`ports.Outbox` beside a `MemoryStore`, whose tables it is given."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def due(self, now: datetime, limit: int) -> Sequence[Message]:
        """Return pending messages whose next attempt is due, oldest first."""
        with self._memory.lock:
            pending = [m for m in self._memory.messages.values() if m.state is MessageState.PENDING]
            due = [message for message in pending if message.next_attempt_at <= now]
            return tuple(sorted(due, key=lambda each: (each.next_attempt_at, each.number))[:limit])

    def settle(self, message: Message) -> None:
        """Record what an attempt came to; nothing happens when the message was settled meanwhile."""
        with self._memory.lock:
            if self._memory.messages[message.number].state is MessageState.PENDING:
                self._memory.messages[message.number] = message

    def messages(self, state: MessageState | None = None, limit: int = 50) -> Sequence[Message]:
        """Return messages, newest first."""
        with self._memory.lock:
            newest = sorted(self._memory.messages.values(), key=lambda each: -each.number)
            return tuple(each for each in newest if state in (None, each.state))[:limit]

    def retry(self, number: int, now: datetime) -> Message:
        """Let a dead message be tried again. Raises NotFound, Conflict when it is not dead."""
        with self._memory.lock:
            if number not in self._memory.messages:
                raise NotFound("notification", number)
            self._memory.messages[number] = retried(self._memory.messages[number], now)
            return self._memory.messages[number]


class MemoryLeadership:
    """`ports.Leadership` beside a `MemoryStore`. Every instance stands for a process of its own."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def leads(self) -> bool:
        """Lead, or go on leading, if nobody else does."""
        with self._memory.lock:
            if self._memory.leader is None:
                self._memory.leader = self
            return self._memory.leader is self

    def resign(self) -> None:
        """Let another one lead."""
        with self._memory.lock:
            if self._memory.leader is self:
                self._memory.leader = None

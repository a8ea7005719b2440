"""The system's clock, and one that tests and simulations turn by hand.

Only this module asks for the time, so everything else can be given another one.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from autotuner.errors import InvalidInput


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """Return the present instant, aware, in UTC."""
        return datetime.now(UTC)


class ManualClock:
    """A clock that stands still until it is turned.

    start: the first instant, aware. Raises InvalidInput for an instant without a time zone.
    """

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        if start.tzinfo is None:
            raise InvalidInput("start", start.isoformat(), "an instant with its time zone")
        self._now = start.astimezone(UTC)

    def now(self) -> datetime:
        """Return the instant it was last turned to, aware, in UTC."""
        return self._now

    def advance(self, by: timedelta) -> datetime:
        """Turn the clock forward and return the new instant. Raises InvalidInput for a negative duration."""
        if by < timedelta(0):
            raise InvalidInput("by", by, "a duration of at least 0: time does not run backwards")
        self._now += by
        return self._now

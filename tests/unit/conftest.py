"""What tests of the REST API share, and those of commands that look for a while."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from autotuner.adapters.clock import ManualClock
    from tests.rest import Rest


@pytest.fixture
def rest() -> Iterator[Rest]:
    """The API over an empty store in memory."""
    from tests.rest import serving  # noqa: PLC0415 - most unit tests need no web framework

    with serving() as made:
        yield made


@pytest.fixture
def turned(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    """The clock of `autotuner diagnose`, which waiting turns, so that a window takes no time."""
    from autotuner.adapters.clock import ManualClock  # noqa: PLC0415 - one command's tests need these
    from autotuner.cli import diagnose  # noqa: PLC0415
    from tests.builders import START  # noqa: PLC0415

    clock = ManualClock(START)
    monkeypatch.setattr(diagnose, "SystemClock", lambda: clock)
    monkeypatch.setattr(diagnose, "_wait", clock.advance)
    return clock

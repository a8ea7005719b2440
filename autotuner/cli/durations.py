"""Durations as options have them: a number with its unit."""

from __future__ import annotations

from datetime import timedelta

from autotuner.errors import InvalidInput
from autotuner.section_values import DURATION, UNITS

DURATION_ALLOWED = "a duration with its unit: 500ms, 90s, 30m, 4h"


def duration(option: str, text: str, allowed: str = DURATION_ALLOWED) -> timedelta:
    """Return the duration that `text` means. Raises InvalidInput naming the option and what is allowed."""
    found = DURATION.fullmatch(text)
    if found is None:
        raise InvalidInput(option, text, allowed)
    return timedelta(seconds=float(found[1]) * UNITS[found[2]])

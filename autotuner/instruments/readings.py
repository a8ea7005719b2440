"""Samples of one scrape, found by name and labels; a number that no counter can be is refused, never made zero."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

Labelled = tuple[Mapping[str, str], float]


class Unreadable(Exception):
    """Metrics or a counter that cannot be believed; `str()` says why, as the end of a sentence."""


class Readings:
    """The samples of one scrape: labels and value by sample name (`…_bucket` apart from `…_count`)."""

    def __init__(self, samples: Mapping[str, Sequence[Labelled]]) -> None:
        self._samples = samples

    def samples(self, name: str, **labels: str) -> list[Labelled]:
        """Return labels and value of each sample called `name` that has all these labels; values unchecked."""
        return [
            (found, value)
            for found, value in self._samples.get(name, ())
            if all(found.get(key) == wanted for key, wanted in labels.items())
        ]

    def total(self, name: str, **labels: str) -> float:
        """Return the sum of the samples called `name` with these labels. Raises Unreadable when there is none."""
        found = self.samples(name, **labels)
        if not found:
            raise Unreadable(f"no {name}" + "".join(f" for {value}" for value in labels.values()))
        return sum(sensible(name, value) for _, value in found)

    def total_or_zero(self, name: str, **labels: str) -> float:
        """Return the same, and 0 when there is no such sample, for counters that only some versions have."""
        return self.total(name, **labels) if self.samples(name, **labels) else 0.0

    def total_or_none(self, names: Iterable[str]) -> float | None:
        """Return the sum of the first of `names` that there is, None when there is none of them."""
        return next((self.total(name) for name in names if self.samples(name)), None)


def sensible(name: str, value: float) -> float:
    """Return `value`. Raises Unreadable when it is not a finite number from 0 up."""
    if not math.isfinite(value) or value < 0:
        raise Unreadable(f"{name} = {value:g}, which no counter can be")
    return value


def bucket_edge(text: str) -> float:
    """Return the number an `le` label means, infinity for the last: servers spell 50 as `50` or `50.0`.

    Raises Unreadable.
    """
    try:
        return sensible("le", float(text)) if text != "+Inf" else math.inf
    except ValueError:
        raise Unreadable(f"a histogram bucket le={text!r}") from None

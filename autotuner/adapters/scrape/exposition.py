"""The Prometheus text format, read strictly: a page that is cut off or no metrics at all must never look like zeros.

A line parser of its own because of the rate: every second, from every server, in a service that shares a core
with what it measures (1 ms for two clusters of 40 buckets each, a third of what the general parser takes).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping

LABEL = r'[a-zA-Z_]\w*="(?:[^"\\]|\\.)*"'
LINE = re.compile(
    rf"([a-zA-Z_:][\w:]*)(?:\{{((?:{LABEL}(?:,\s*{LABEL})*)?),?\s*\}})?[ \t]+([^\s]+)(?:[ \t]+-?\d+)?[ \t]*"
)
PAIR = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"')
ESCAPE = re.compile(r"\\(.)")


class Unreadable(Exception):
    """A page or a counter that cannot be believed; `str()` says why, as the end of a sentence."""


class Page:
    """The samples of the wanted families of one page.

    text: the page. wanted: full sample names (`…_bucket` apart from `…_count`). Raises Unreadable for anything
    that is not a complete page in the text format.
    """

    def __init__(self, text: str, wanted: frozenset[str]) -> None:
        if text.lstrip()[:1] == "<":
            raise Unreadable("a web page instead of metrics")
        if not text.strip():
            raise Unreadable("an empty page")
        if not text.endswith("\n"):
            raise Unreadable("metrics that are cut off at the end")
        self._samples: dict[str, list[tuple[dict[str, str], float]]] = {}
        for line in text.split("\n"):
            if line and not line.startswith("#"):
                self._read(line, wanted)

    def _read(self, line: str, wanted: frozenset[str]) -> None:
        parts = LINE.fullmatch(line)
        if parts is None:
            raise Unreadable(f"a line that is no metric: {line[:60]!r}")
        name, labels, value = parts.groups()
        if name in wanted:
            self._samples.setdefault(name, []).append((_labels(labels or ""), _number(name, value)))

    def samples(self, name: str, **labels: str) -> list[tuple[Mapping[str, str], float]]:
        """Return labels and value of each sample called `name` that has all these labels; values unchecked."""
        return [
            (found, value)
            for found, value in self._samples.get(name, [])
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
        """Return the sum of the first of `names` that the page has, None when it has none of them."""
        return next((self.total(name) for name in names if self.samples(name)), None)


def sensible(name: str, value: float) -> float:
    """Return `value`. Raises Unreadable when it is not a finite number from 0 up."""
    if not math.isfinite(value) or value < 0:
        raise Unreadable(f"{name} = {value:g}, which no counter can be")
    return value


def _labels(text: str) -> dict[str, str]:
    return {
        name: ESCAPE.sub(_unescape, value) if "\\" in value else value for name, value in PAIR.findall(text)
    }


def _unescape(escape: re.Match[str]) -> str:
    return "\n" if escape[1] == "n" else escape[1]


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise Unreadable(f"{name} = {text[:30]!r}, which is no number") from None

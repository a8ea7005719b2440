"""The Prometheus text format, read strictly: a page that is cut off or no metrics at all must never look like zeros.

A line parser of its own because of the rate: every second, from every server, in a service that shares a core
with what it measures (1 ms for two clusters of 40 buckets each, a third of what the general parser takes).
"""

from __future__ import annotations

import re

from autotuner.instruments.readings import Labelled, Readings, Unreadable

LABEL = r'[a-zA-Z_]\w*="(?:[^"\\]|\\.)*"'
LINE = re.compile(
    rf"([a-zA-Z_:][\w:]*)(?:\{{((?:{LABEL}(?:,\s*{LABEL})*)?),?\s*\}})?[ \t]+([^\s]+)(?:[ \t]+-?\d+)?[ \t]*"
)
PAIR = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"')
ESCAPE = re.compile(r"\\(.)")


LONGEST_LINE_CHARACTERS = 65_536
"""A sample of a real server takes some hundred: matching a line of megabytes would hold up everything for seconds."""


class Page(Readings):
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
        self._found: dict[str, list[Labelled]] = {}
        super().__init__(self._found)
        for line in text.split("\n"):
            if line and not line.startswith("#"):
                self._read(line, wanted)

    def _read(self, line: str, wanted: frozenset[str]) -> None:
        if len(line) > LONGEST_LINE_CHARACTERS:
            raise Unreadable(f"a line of {len(line):,} characters: {line[:60]!r}")
        parts = LINE.fullmatch(line)
        if parts is None:
            raise Unreadable(f"a line that is no metric: {line[:60]!r}")
        name, labels, value = parts.groups()
        if name in wanted:
            self._found.setdefault(name, []).append((_labels(labels or ""), _number(name, value)))


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

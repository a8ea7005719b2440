"""The state diagrams of docs/architecture.md, drawn from the transition tables of the code and never by hand.

`make docs` writes them anew between their markers; a test fails while the page is stale.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from autotuner.domain import phases, trial_states
from autotuner.domain.study import Phase, TrialState

PAGE = Path(__file__).parents[1] / "docs" / "architecture.md"

State = TypeVar("State", bound=StrEnum)


def diagram(table: Mapping[tuple[State, str], State], first: State, last: State) -> str:
    """Return a Mermaid state diagram of a transition table; events that lead the same way share an arrow."""
    arrows: dict[tuple[State, State], list[str]] = defaultdict(list)
    for (state, event), following in table.items():
        arrows[state, following].append(event)
    lines = [f"    {one} --> {two}: {' / '.join(events)}" for (one, two), events in arrows.items()]
    return "\n".join(
        ["```mermaid", "stateDiagram-v2", f"    [*] --> {first}", *lines, f"    {last} --> [*]", "```"]
    )


def diagrams() -> dict[str, str]:
    """Return every generated diagram by the name in its marker."""
    return {
        "study phases": diagram(phases.TRANSITIONS, Phase.CREATED, Phase.ENDED),
        "trial states": diagram(trial_states.TRANSITIONS, TrialState.PROPOSED, TrialState.JUDGED),
    }


def updated(text: str) -> str:
    """Return the page's text with every diagram drawn anew. Raises ValueError when a marker is missing."""
    for name, drawn in diagrams().items():
        begin, end = f"<!-- generated: {name} -->", f"<!-- end of {name} -->"
        before, opened, rest = text.partition(begin)
        _, closed, after = rest.partition(end)
        if not opened or not closed:
            raise ValueError(f"the page needs the markers {begin} and {end}")
        text = f"{before}{begin}\n{drawn}\n{end}{after}"
    return text


def main() -> int:
    """Rewrite the page; returns the exit code."""
    text = PAGE.read_text(encoding="utf-8")
    drawn = updated(text)
    if drawn != text:
        PAGE.write_text(drawn, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

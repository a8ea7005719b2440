"""A study recorded before steps kept batches and arrivals reads, and is decided again, as it was."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

import pytest

from autotuner.adapters.memory_store import MemoryStore
from autotuner.domain.study import Study
from autotuner.operations import replay
from autotuner.ports import JournalEntry
from autotuner.records import digest, from_record, to_record
from tests.closed_loop.loop import proposers

FROZEN = Path(__file__).parent / "journals" / "tpe_without_batches.json.xz"
"""A whole study of the sampler `tpe`, start-ups, one asked proposal, confirmation and promotion included."""


@pytest.fixture(scope="module")
def frozen() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(lzma.decompress(FROZEN.read_bytes()))
    return content


class FrozenStore(MemoryStore):
    """A store that holds the one frozen study."""

    def __init__(self, frozen: dict[str, Any]) -> None:
        super().__init__()
        self._frozen = frozen

    def initial(self, study_id: str) -> Study:
        study: Study = from_record(Study, self._frozen["initial"])
        return study

    def study(self, study_id: str) -> Study:
        study: Study = from_record(Study, self._frozen["final"])
        return study

    def journal(self, study_id: str, after: int = 0) -> list[JournalEntry]:
        return [from_record(JournalEntry, entry) for entry in self._frozen["journal"][after:]]


def test_an_old_journal_is_replayed_without_a_difference(frozen: dict[str, Any]) -> None:
    again = replay(FrozenStore(frozen), frozen["final"]["id"], proposers)

    assert again.differences == ()
    assert (again.decisions + again.outcomes, again.proposals) == (len(frozen["journal"]), 4)


def test_an_old_study_is_written_as_it_was_read(frozen: dict[str, Any]) -> None:
    study: Study = from_record(Study, frozen["final"])

    assert json.loads(json.dumps(to_record(study))) == frozen["final"]
    assert digest(study) == frozen["journal"][-1]["state"]
    assert not study.plan.keeps_batches


def test_an_old_study_has_neither_batches_nor_arrivals(frozen: dict[str, Any]) -> None:
    study: Study = from_record(Study, frozen["final"])

    assert not any(step.batches or step.arrived for trial in study.trials for step in trial.steps)

"""Whether a study could run: each need met, not met, or not known, and never yes on what was not read."""

from __future__ import annotations

from typing import Any

import pytest

from autotuner.domain.findings.assess import assess
from autotuner.domain.findings.possible import StudyPossible, study_possible
from autotuner.domain.needs import Answer
from tests.diagnoses import a_config, a_gateway, a_replica, a_scene, some_work


def asked(scene: Any) -> StudyPossible:
    return study_possible(scene, assess(scene))


def answer(found: StudyPossible, what: str) -> Answer:
    (need,) = [need for need in found.needs if what in need.what]
    return need.answer


def test_control_mode_is_never_claimed_because_no_server_tells_it() -> None:
    found = asked(a_scene(a_replica(), a_replica(), gateway=a_gateway(15.0), weighted_route=True))

    assert [need.what for need in found.needs if need.answer is not Answer.YES] == ["explicit model control"]
    assert found.possible is None
    assert "would be a load" in found.missing[0]


@pytest.mark.parametrize(
    ("changes", "what", "expected"),
    [
        ({}, "edge", Answer.UNKNOWN),
        ({"gateway": a_gateway(15.0)}, "edge", Answer.YES),
        ({"gateway": a_gateway(15.0), "ceiling_ms": 80.0}, "edge", Answer.DOUBTFUL),
        ({"gateway": a_gateway(15.0), "ceiling_ms": 400.0}, "edge", Answer.NO),
        ({"weighted_route": False}, "route", Answer.NO),
        ({"config": a_config(dynamic_batching=None)}, "tuned", Answer.NO),
        ({"config": {}}, "tuned", Answer.UNKNOWN),
    ],
)
def test_each_need_is_told_as_it_is(changes: dict[str, Any], what: str, expected: Answer) -> None:
    assert answer(asked(a_scene(**changes)), what) is expected


def test_thin_traffic_says_how_long_a_verdict_would_take() -> None:
    found = asked(a_scene(a_replica(some_work({1: (4, 10.0)}))))

    assert found.verdict_takes is not None
    assert found.verdict_takes.total_seconds() > 30 * 60
    assert answer(found, "traffic") is Answer.NO
    assert found.possible is False


def test_memory_that_may_not_hold_two_versions_is_a_no_only_where_the_model_is_alone() -> None:
    tight = a_replica(memory_used_bytes=10e9)

    assert answer(asked(a_scene(tight)), "memory") is Answer.NO
    assert answer(asked(a_scene(tight, models=4)), "memory") is Answer.UNKNOWN
    assert answer(asked(a_scene()), "memory") is Answer.YES


def test_a_model_slower_than_the_ceiling_forbids_a_study() -> None:
    found = asked(a_scene(a_replica(some_work({1: (100, 150.0)}))))

    assert found.possible is False
    assert found.needs[0].answer is Answer.NO

"""One list of what a study needs: certain where it is certain, and a study is refused for nothing else."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest

from autotuner.domain.configuration import ModelConfig
from autotuner.domain.needs import Answer, Ground, edge, lacking, needs, uncertain
from tests.diagnoses import CONFIG

EDGES = (0.010, 0.050, 0.095, 0.100, 0.200, math.inf)


def a_ground(**changes: Any) -> Ground:
    """A place that has everything but what no server tells."""
    config: ModelConfig = CONFIG
    ground = Ground(0.1, config, EDGES, 100.0, ((4e9, 16e9),), True, True, "weights can be set", 3)
    return replace(ground, **changes)


def answer(ground: Ground, what: str) -> Answer:
    (need,) = [need for need in needs(ground) if what in need.what]
    return need.answer


def test_what_no_server_tells_is_all_that_stays_open() -> None:
    found = needs(a_ground())

    assert lacking(found) == ""
    assert uncertain(found) == "not known: explicit model control"


@pytest.mark.parametrize(
    ("ceiling", "expected"),
    [
        (0.100, Answer.YES),
        (0.105, Answer.YES),
        (0.080, Answer.DOUBTFUL),
        (0.005, Answer.NO),
        (0.4, Answer.NO),
    ],
)
def test_an_edge_far_below_the_ceiling_is_doubtful_and_none_on_a_side_is_missing(
    ceiling: float, expected: Answer
) -> None:
    assert edge(EDGES, ceiling).answer is expected


def test_advice_is_given_only_where_there_is_something_to_mend() -> None:
    assert edge(EDGES, 0.1, "add one").advice == ""
    assert edge(EDGES, 0.105, "add one").advice == "add one"


@pytest.mark.parametrize(
    ("changes", "what", "expected"),
    [
        ({"edges_seconds": None}, "edge", Answer.UNKNOWN),
        ({"rate_per_second": None}, "traffic", Answer.UNKNOWN),
        ({"rate_per_second": 0.0}, "traffic", Answer.NO),
        ({"rate_per_second": 0.1}, "traffic", Answer.NO),
        ({"memory": ()}, "memory", Answer.UNKNOWN),
        ({"memory": ((4e9, 16e9), (10e9, 16e9))}, "memory", Answer.NO),
        ({"memory": ((10e9, 16e9),), "alone": None}, "memory", Answer.UNKNOWN),
        ({"weighted": None}, "route", Answer.UNKNOWN),
        ({"replicas": 1}, "spare", Answer.UNKNOWN),
        ({"config": None}, "tuned", Answer.UNKNOWN),
        ({"config": json.loads('{"max_batch_size": 8}')}, "tuned", Answer.NO),
    ],
)
def test_each_need_is_told_as_it_is(changes: dict[str, Any], what: str, expected: Answer) -> None:
    assert answer(a_ground(**changes), what) is expected


def test_the_first_thing_that_is_missing_is_told_in_words() -> None:
    assert "both sides of 0.4 s" in lacking(needs(a_ground(ceiling_seconds=0.4)))

"""GPU hours are counted where GPUs are known, and unknown is not zero."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from autotuner.domain.gpu_hours import Carried, GpuHours, gpu_hours
from autotuner.domain.study import Incumbent, Study, TrialKind
from tests.builders import REPLICAS, a_configuration, a_plan, a_study, at
from tests.studies import a_step, a_trial, judged

ON_TWO = [{"kind": "KIND_GPU", "count": 2, "gpus": [0, 1]}]
BEFORE, AFTER = Carried(100.0, False), Carried(200.0, False)


def a_case(groups: Any = ON_TWO, **changes: Any) -> Study:
    """Two stable replicas under 400/s together; a study of three hours whose canary was measured for two minutes."""
    text = json.dumps({"name": "small_vision", "instance_group": groups})
    incumbent = Incumbent(a_configuration(), dict.fromkeys(REPLICAS, text), {}, {})
    steps = (a_step(started_at=at(0), ended_at=at(60)), a_step(1, started_at=at(100), ended_at=at(160)))
    fields: dict[str, Any] = {
        "plan": a_plan(),
        "incumbent": incumbent,
        "trials": (
            judged(a_trial(0, kind=TrialKind.PRODUCTION, replicas=("stable-0", "stable-1"))),
            judged(a_trial(1, steps=steps)),
        ),
        "reference_rate_per_second": 400.0,
        "ended_at": a_study().created_at + timedelta(hours=3),
    }
    return a_study(**{**fields, **changes})


def test_the_canary_s_hours_stand_against_what_is_saved_a_day() -> None:
    assert gpu_hours(a_case(), BEFORE, AFTER) == GpuHours(
        per_replica=2,
        canary=6.0,
        measuring=timedelta(minutes=2) / timedelta(hours=1) * 2,
        saved_per_day=(4 - 2) * 2 * 24,
    )


def test_a_winner_that_only_the_traffic_limited_saves_at_least_so_much() -> None:
    found = gpu_hours(a_case(), BEFORE, replace(AFTER, at_least=True))
    assert (found.saved_per_day, found.saved_at_least) == (96.0, True)


def test_a_winner_that_carries_less_saves_less_than_nothing() -> None:
    assert gpu_hours(a_case(), AFTER, BEFORE).saved_per_day == -96.0


@pytest.mark.parametrize(
    ("groups", "why"),
    [
        ([{"kind": "KIND_CPU", "count": 1}], "the model's instances are KIND_CPU"),
        ([{"kind": "KIND_GPU", "count": 1}], "the server does not name the GPUs of the model's instances"),
        ([], "the model's instances are of an unknown kind"),
    ],
)
def test_unknown_gpus_are_unknown_hours(groups: Any, why: str) -> None:
    assert gpu_hours(a_case(groups), BEFORE, AFTER) == GpuHours(unknown=why)


def test_a_study_that_read_nothing_has_none() -> None:
    assert gpu_hours(a_case(incumbent=None), None, None).unknown == "the study has not read production"


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        (None, AFTER, "incumbent and winner were not both measured"),
        (BEFORE, Carried(None, False), "incumbent and winner were not both measured"),
        (Carried(0.0, False), AFTER, "incumbent and winner were not both measured"),
        (
            Carried(100.0, True),
            AFTER,
            "only the traffic ended the incumbent's ramp: it may carry as much",
        ),
    ],
)
def test_what_was_not_measured_saves_nobody_knows_what(
    before: Carried | None, after: Carried, why: str
) -> None:
    found = gpu_hours(a_case(), before, after)
    assert (found.saved_per_day, found.unknown, found.canary) == (None, why, 6.0)


def test_while_a_study_runs_its_cost_is_not_known_yet() -> None:
    found = gpu_hours(a_case(ended_at=None), BEFORE, AFTER)
    assert (found.canary, found.saved_per_day, found.unknown) == (None, 96.0, "the study has not ended")

"""Where slow requests spent their time, as text, as JSON and as a bar: figures, gaps, and faults in words."""

from __future__ import annotations

import pytest

from autotuner.answers import step_object
from autotuner.cli.evidence import step_text
from autotuner.domain.evidence import strictness
from autotuner.domain.slow_requests import SlowRequests, unread
from autotuner.report import way
from tests.studies import AWKWARD, a_step, a_trial, told_by_traces

NOT_READ = unread("Jaeger", "no answer within 5 s")


def text(slow: SlowRequests | None) -> str:
    return "\n".join(step_text(a_step(slow=slow), strictness(a_trial())))


def test_the_evidence_of_a_step_says_every_part() -> None:
    said = text(told_by_traces())
    assert (
        "slow requests by span (2 seen by Tempo, mean 150 ms): gateway 30 ms, queue 75 ms, inference 45 ms"
        in said
    )
    assert "70% of their time was not inference" in said
    assert "slowest: 6e2a9906b2538a6aeb74f1f2d1adcb3a (300 ms)" in said
    assert "1 of 2 without Triton's spans" in said


def test_what_was_not_told_is_said_and_is_no_zero() -> None:
    assert "slow requests by span: not known (Jaeger: no answer within 5 s)" in text(NOT_READ)
    told = step_object(a_trial(), a_step(slow=NOT_READ))["slow_by_span"]
    assert (told["fault"], told["mean_ms"], told["parts"]) == ("no answer within 5 s", None, [])


def test_a_step_that_nobody_asked_about_says_nothing() -> None:
    assert "by span" not in text(None)
    assert step_object(a_trial(), a_step(slow=None))["slow_by_span"] is None


def test_json_has_every_figure_unrounded() -> None:
    told = step_object(a_trial(), a_step())["slow_by_span"]
    assert told["mean_ms"] == AWKWARD / 2 * 1e3
    assert [each["part"] for each in told["parts"]] == ["gateway", "queue", "compute_infer"]
    assert told["slowest"] == [
        {"trace_id": "6e2a9906b2538a6aeb74f1f2d1adcb3a", "ms": AWKWARD * 1e3, "longest": "queue"}
    ]


def test_the_bar_has_every_part_and_its_table_adds_up() -> None:
    wide, narrow = way.bars(told_by_traces(), "way-0")
    for each in ("way-gateway", "way-queue", "way-compute_infer"):
        assert each in wide
        assert each in narrow
    shares = [row[2] for row in way.parts(told_by_traces()).rows]
    assert sum(float(str(share).rstrip("% ")) for share in shares) == pytest.approx(100)
    assert way.bars(NOT_READ, "way-1") == ()

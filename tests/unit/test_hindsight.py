"""What was predicted beside what came: in the records, in the report and on the command line."""

from __future__ import annotations

import pytest

from autotuner.cli.evidence import study_text, trial_text
from autotuner.domain.hindsight import predictions
from autotuner.domain.judgement import Verdict
from autotuner.domain.measurement import Latency
from autotuner.domain.study import Level, Proposal, Step, Study, Trial
from autotuner.report.hindsight import predicted
from autotuner.report.page import render
from tests.builders import a_configuration, changed
from tests.searches import a_search, a_step, a_trial

FORETOLD = {
    "p99_ms": 70.0,
    "p99_low_ms": 60.0,
    "p99_high_ms": 82.0,
    "violation_probability": 0.012,
    "rate_per_second": 250.0,
}


def foretold(*p99_ms: float | None) -> Trial:
    """A candidate whose levels, 200/s and 250/s, had these p99."""
    levels = (Level(0, 0.4), Level(1, 0.5))
    steps = tuple(
        a_step(level, latency=Latency(0.01, 0.02, None if p99 is None else p99 / 1e3))
        for level, p99 in zip(levels, p99_ms, strict=False)
    )
    configuration = a_configuration(instance_count=2)
    proposal = Proposal(configuration, "because", "greybox", FORETOLD)
    return a_trial(1, configuration, levels=levels, steps=steps, proposal=proposal)


def seen(*p99_ms: float | None) -> Study:
    return a_search(foretold(*p99_ms))


@pytest.mark.parametrize(
    ("p99_ms", "observed_seconds", "within"),
    [
        ((50.0, 75.0), 0.075, True),
        ((70.0, 90.0), 0.09, False),
        ((70.0,), None, None),
        ((70.0, None), None, None),
    ],
)
def test_the_observed_p99_is_that_of_the_level_that_was_predicted(
    p99_ms: tuple[float | None, ...], observed_seconds: float | None, within: bool | None
) -> None:
    (found,) = predictions(seen(*p99_ms))

    assert (found.observed_seconds, found.within) == (observed_seconds, within)
    assert (found.p99_seconds, found.low_seconds, found.high_seconds) == (0.07, 0.06, 0.082)
    assert (found.rate_per_second, found.risk) == (250.0, 0.012)


def test_a_void_window_is_no_observation_and_the_newest_counts() -> None:
    level = Level(1, 0.5)
    void = a_step(level, Verdict.VOID, latency=Latency(None, None, 0.5))
    steps: tuple[Step, ...] = (void, a_step(level, latency=Latency(None, None, 0.071)), void)
    (found,) = predictions(a_search(changed(foretold(50.0), steps=steps)))

    assert found.observed_seconds == 0.071


def test_what_predicts_nothing_is_not_listed() -> None:
    study = a_search(a_trial(1, proposal=Proposal(a_configuration(), "because", "tpe")))

    assert predictions(study) == ()
    assert predicted(study).rows == ()
    assert "What was predicted" not in render(study, "a test")
    assert not [line for line in study_text(study) if "predicted" in line]


def test_the_report_and_the_command_line_show_both() -> None:
    study = seen(50.0, 75.0)
    row = predicted(study).rows[0]
    assert row[2:8] == ("250", "70.0", "60.0–82.0", "75.0", "yes", "1.2 %")
    assert "What was predicted, and what came" in render(study, "a test")

    line = "at 250/s: predicted 70 ms (60–82), observed 75 ms, within the band"
    assert [told for told in study_text(study) if line in told] == [f"    trial 1 {line}"]
    assert [told for told in trial_text(study, study.trials[1]) if line in told] == [f"    p99 {line}"]

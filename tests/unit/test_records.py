"""A study's text is put together from remembered parts, and is what writing it whole would give."""

from __future__ import annotations

import gc
import hashlib
import json
import math
from dataclasses import replace
from datetime import timedelta

import pytest

from autotuner import records
from autotuner.domain.calendar import Clearance
from autotuner.domain.measurement import BatchTiming, Sample
from autotuner.domain.observation import Observation, Told
from autotuner.domain.study import METHOD, Proposal, Step, Study, StudyPlan, TrialKind, Wish
from autotuner.records import (
    Written,
    digest,
    digest_after,
    from_record,
    head_text,
    observed_record,
    only_looked,
    study_text,
    to_record,
    window_text,
)
from tests.builders import a_configuration, a_plan, a_sample, a_study, changed
from tests.builders import at as instant
from tests.closed_loop.endings import a_loop, at
from tests.studies import INCREMENTS, a_step, told_by_traces


def written_whole(value: object) -> str:
    return json.dumps(to_record(value), sort_keys=True, separators=(",", ":"))


def with_server(sample: Sample, **changes: object) -> Sample:
    """The sample with other counters of its canary."""
    return replace(sample, servers={**sample.servers, "canary": changed(sample.servers["canary"], **changes)})


SAMPLES = {
    "plain": a_sample(3),
    "with faults": a_sample(3, faults={"canary": "no “answer”\x00"}),
    "nothing read": Sample(instant(3), (), {}, {}),
    "whole seconds": with_server(a_sample(3), queue_seconds=7, memory_used_bytes=8),
    "counted by": with_server(a_sample(3), counted_by="envoy-1 0"),
    "batches": with_server(a_sample(3), batches=(BatchTiming(1, 3, 1), BatchTiming(4, 5, 0.1 + 0.2))),
    "not a number": with_server(a_sample(3), infer_seconds=math.nan, memory_total_bytes=math.inf),
}


@pytest.mark.parametrize("sample", SAMPLES.values(), ids=SAMPLES)
def test_an_observation_is_written_as_the_converter_writes_it(sample: Sample) -> None:
    bare = Observation(instant(4), sample=sample)
    full = Observation(
        instant(4),
        Wish.PAUSE,
        sample,
        {"canary": 7},
        {"canary": "0af"},
        {"canary": '{"name": "ü"}'},
        {"gateway": "no answer"},
        Clearance("frozen", "frozen"),
        told=Told(1, 0, told_by_traces()),
    )

    assert [observed_record(seen).text for seen in (bare, full)] == [
        written_whole(bare),
        written_whole(full),
    ]


def test_a_written_record_is_the_record() -> None:
    seen = Observation(instant(4), sample=a_sample(3), weights={"canary": 7})
    record = observed_record(seen)

    assert record == Written(written_whole(seen))
    assert (len(record), dict(record)) == (8, json.loads(written_whole(seen)))
    assert from_record(Observation, dict(record)) == seen


def test_the_text_is_that_of_the_whole_record_at_every_step_of_a_study() -> None:
    loop, seen = a_loop(), list[Study]()
    ended = False
    while not ended:
        ended = loop.tick().ended
        seen.append(loop.study)

    assert len(seen) > 100
    assert [study.id for study in seen if study_text(study) != written_whole(study)] == []


def test_the_digest_of_what_a_look_leads_to_is_that_of_the_whole_record() -> None:
    loop = a_loop()
    loop.run(until=at(TrialKind.PRODUCTION))
    ended, looks = False, 0
    while not ended:
        before = loop.controller._seen[loop.study_id].study
        ended = loop.tick().ended
        after = loop.controller._seen[loop.study_id].study if not ended else loop.study
        looks += only_looked(before, after)
        whole = hashlib.sha256(written_whole(after).encode()).hexdigest()
        assert (digest_after(before, after), digest(after)) == (whole, whole)

    assert looks > 50


def test_head_and_window_together_are_the_study() -> None:
    loop = a_loop()
    study = loop.run(until=at(TrialKind.CANDIDATE))
    window = window_text(study)
    assert window is not None

    record = json.loads(head_text(study))
    assert record["trials"][-1]["window"] is None
    record["trials"][-1]["window"] = json.loads(window)

    assert from_record(Study, record) == study


def test_a_look_that_leads_to_nothing_changes_the_window_alone() -> None:
    loop = a_loop()
    before = loop.run(until=at(TrialKind.CANDIDATE))
    loop.tick()
    after = loop.study

    assert after != before
    assert only_looked(before, after)
    assert head_text(before) == head_text(after)
    assert not only_looked(before, replace(after, reason="another"))
    assert not only_looked(a_study(), a_study(reason="another"))
    assert not only_looked(before, replace(after, trials=after.trials[:-1]))


def test_what_records_did_not_have_at_first_is_left_out_where_it_says_nothing() -> None:
    step, bare = a_step(), a_step(batches=(), arrived=(), counted=None, increments=INCREMENTS[1:])

    assert {"batches", "arrived", "counted"} <= set(to_record(step))
    assert not {"batches", "arrived", "counted"} & set(to_record(bare))
    assert ["arrived" in record for record in to_record(step)["increments"]] == [True, False]
    assert [from_record(Step, to_record(each)) for each in (step, bare)] == [step, bare]


@pytest.mark.parametrize("name", ["keeps_batches", "tells_needs", "keeps_counts"])
def test_a_plan_does_what_came_later_unless_its_record_is_older_than_that(name: str) -> None:
    plan = a_plan()
    older = {field: value for field, value in to_record(plan).items() if field != name}
    read: StudyPlan = from_record(StudyPlan, older)

    assert from_record(StudyPlan, to_record(plan)) == plan
    assert read == replace(plan, **{name: False})  # type: ignore[arg-type]
    assert to_record(read) == older


def test_a_plan_has_the_first_method_where_its_record_does_not_say() -> None:
    plan = a_plan()
    older = {name: value for name, value in to_record(plan).items() if name != "method"}
    read: StudyPlan = from_record(StudyPlan, older)

    assert to_record(plan)["method"] == METHOD
    assert read == replace(plan, method=1)
    assert to_record(read) == older


def test_a_proposal_names_its_limit_only_where_it_has_one() -> None:
    whole, limited = (Proposal(a_configuration(), "because", "greybox", {}, rate) for rate in (None, 80.0))

    assert "highest_rate_per_second" not in to_record(whole)
    assert to_record(limited)["highest_rate_per_second"] == 80.0
    assert [from_record(Proposal, to_record(each)) for each in (whole, limited)] == [whole, limited]


def test_texts_are_forgotten_with_what_they_are_of() -> None:
    loop = a_loop()
    loop.run(until=at(TrialKind.BASELINE))
    study_text(loop.study)
    kept = len(records._TEXTS._kept)
    del loop
    gc.collect()

    assert len(records._TEXTS._kept) < kept


def test_what_is_equal_but_another_object_is_written_for_itself() -> None:
    first, second = a_study(), a_study(actor="somebody else")

    assert study_text(first) != study_text(second)
    assert json.loads(study_text(second))["actor"] == "somebody else"
    assert to_record(Wish.RUN) == "run"
    assert to_record(timedelta(seconds=1.5)) == 1.5

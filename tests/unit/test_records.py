"""A study's text is put together from remembered parts, and is what writing it whole would give."""

from __future__ import annotations

import gc
import json
from dataclasses import replace
from datetime import timedelta

from autotuner import records
from autotuner.domain.study import Step, Study, StudyPlan, TrialKind, Wish
from autotuner.records import from_record, head_text, only_looked, study_text, to_record, window_text
from tests.builders import a_plan, a_study
from tests.closed_loop.endings import a_loop, at
from tests.studies import INCREMENTS, a_step


def written_whole(study: Study) -> str:
    return json.dumps(to_record(study), sort_keys=True, separators=(",", ":"))


def test_the_text_is_that_of_the_whole_record_at_every_step_of_a_study() -> None:
    loop, seen = a_loop(), list[Study]()
    ended = False
    while not ended:
        ended = loop.tick().ended
        seen.append(loop.study)

    assert len(seen) > 100
    assert [study.id for study in seen if study_text(study) != written_whole(study)] == []


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
    step, bare = a_step(), a_step(batches=(), arrived=(), increments=INCREMENTS[1:])

    assert {"batches", "arrived"} <= set(to_record(step))
    assert not {"batches", "arrived"} & set(to_record(bare))
    assert ["arrived" in record for record in to_record(step)["increments"]] == [True, False]
    assert [from_record(Step, to_record(each)) for each in (step, bare)] == [step, bare]


def test_a_plan_keeps_batches_unless_its_record_is_older_than_that() -> None:
    plan = a_plan()
    older = {name: value for name, value in to_record(plan).items() if name != "keeps_batches"}
    read: StudyPlan = from_record(StudyPlan, older)

    assert from_record(StudyPlan, to_record(plan)) == plan
    assert read == replace(plan, keeps_batches=False)
    assert to_record(read) == older


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

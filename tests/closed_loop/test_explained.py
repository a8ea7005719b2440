"""A study whose target is traced: slow requests are explained beside the verdicts, and no verdict hangs on it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta

import pytest

from autotuner.domain.slow_requests import Question, SlowRequests, slow_requests
from autotuner.domain.sources import TraceStore
from autotuner.domain.study import Outcome, Step, Study
from autotuner.operations import replay
from autotuner.ports import World
from tests.builders import a_target
from tests.closed_loop.loop import Loop, a_short_plan, proposers
from tests.request_spans import CANARY, SERVICES, by_trace, real_spans

ARRIVAL = timedelta(seconds=10)
TRACED = a_target(traces=TraceStore("jaeger", "http://127.0.0.1:1", gateway="gateway", arrival=ARRIVAL))


@dataclass
class KeptTraces:
    """Spans of a real gateway and a real Triton, whatever window is asked about; or nothing, with a reason."""

    fault: str = ""
    asked: list[Question] = field(default_factory=list)

    def slow_requests(self, question: Question) -> SlowRequests:
        """Return what the spans tell."""
        self.asked.append(question)
        if self.fault:
            return SlowRequests("kept", fault=self.fault)
        return slow_requests("kept", by_trace(real_spans()), SERVICES, question, CANARY)


@dataclass
class TracedLoop(Loop):
    """A loop whose target is traced."""

    traces: KeptTraces = field(default_factory=KeptTraces)

    def world(self) -> World:
        return replace(super().world(), traces=self.traces)


def a_loop(traces: KeptTraces | None = None, *, traced: bool = True) -> TracedLoop:
    plan = a_short_plan(target=TRACED if traced else a_target())
    return TracedLoop(plan=plan, traces=traces or KeptTraces())


def steps(study: Study) -> list[Step]:
    return [step for trial in study.trials for step in trial.steps]


@pytest.fixture(scope="module")
def over() -> TracedLoop:
    loop = a_loop()
    loop.run()
    return loop


def test_every_step_with_slow_requests_is_explained_once_and_no_other(over: TracedLoop) -> None:
    slow = [step for step in steps(over.study) if step.candidate.bad_at_most]
    assert slow
    assert all(step.slow is not None and step.slow.requests == 9 for step in slow)
    assert all(step.slow is None for step in steps(over.study) if not step.candidate.bad_at_most)
    assert [(asked.began, asked.ended) for asked in over.traces.asked] == [
        (step.started_at, step.ended_at) for step in slow
    ]


def test_a_study_that_was_explained_decides_again_as_it_did(over: TracedLoop) -> None:
    again = replay(over.store, over.study_id, proposers)
    assert again.differences == ()


def test_what_traces_tell_changes_no_verdict(over: TracedLoop) -> None:
    untold = a_loop(traced=False)
    untold.run()
    assert not untold.traces.asked
    told = [(step.verdict, step.candidate) for step in steps(over.study)]
    assert [(step.verdict, step.candidate) for step in steps(untold.study)] == told
    assert untold.study.outcome is over.study.outcome


def test_a_store_that_never_answers_is_named_and_holds_nothing_up() -> None:
    loop = a_loop(KeptTraces(fault="no answer within 5 s"))
    study = loop.run()
    assert study.outcome in (Outcome.PROMOTED, Outcome.KEPT)
    assert {step.slow.fault for step in steps(study) if step.slow} == {"no answer within 5 s"}
    assert all(step.slow is None or step.slow.mean_seconds is None for step in steps(study))


def test_the_end_waits_for_the_last_answer_and_not_for_long(over: TracedLoop) -> None:
    waited = [text for text in over.said if "waiting for what traces tell" in text]
    last = steps(over.study)[-1]
    if last.candidate.bad_at_most:
        assert waited
    assert over.study.ended_at is not None
    assert over.study.ended_at - last.ended_at < ARRIVAL + timedelta(seconds=60)

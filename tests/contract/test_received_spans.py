"""Every store of received spans: who listens, what is kept, and that it is never more than a bound."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from autotuner.bookkeeping.received import KEPT_FOR, MOST_KEPT
from autotuner.domain.sources import TraceStore
from autotuner.domain.spans import Span
from autotuner.ports import SlowTrace
from tests.builders import START, a_budget, a_plan, a_study, a_target, at
from tests.contract.conftest import Backend
from tests.contract.stored import registered

SENT_HERE = TraceStore("otlp", gateway="gateway")
HOUR = timedelta(hours=1)


def a_trace(number: int = 0, target: str = "vision", **changes: Any) -> SlowTrace:
    span = Span(
        f"{number:032x}", "b" * 16, "", "gateway", "ingress – “x”", 1, 2, {"a": "b"}, {"QUEUE_START": 1}
    )
    fields: dict[str, Any] = {
        "target": target,
        "trace_id": span.trace_id,
        "ended_at": at(number),
        "spans": (span,),
    }
    return SlowTrace(**{**fields, **changes})


def test_only_targets_with_a_study_that_has_not_ended_listen(backend: Backend) -> None:
    for name, traces in (("here", SENT_HERE), ("idle", SENT_HERE), ("elsewhere", None)):
        target = a_target(name=name, traces=traces)
        slo = backend.store.save_target(target, a_budget(), "operator", "first", START)
        if name != "idle":
            backend.store.create_study(a_study(id=name, plan=a_plan(target=target, slo=slo)))

    (listening,) = backend.spans.listening()

    assert (listening.target.name, listening.ceiling_seconds) == ("here", 0.1)
    assert listening.target.traces == SENT_HERE


def test_what_is_kept_comes_back_as_it_was_newest_first(backend: Backend) -> None:
    registered(backend)
    kept = [a_trace(number) for number in range(3)]
    backend.spans.keep(kept, START)
    assert list(backend.spans.slow("vision", at(0), at(9))) == kept[::-1]
    assert list(backend.spans.slow("vision", at(0.5), at(1.5))) == [kept[1]]
    assert not backend.spans.slow("other", at(0), at(9))


def test_pieces_of_one_request_become_one_again(backend: Backend) -> None:
    registered(backend)
    first, second = a_trace(), a_trace(ended_at=at(0.2))
    backend.spans.keep([first], START)
    backend.spans.keep([second], START)
    (whole,) = backend.spans.slow("vision", at(0.1), at(1))
    assert (whole.ended_at, whole.spans) == (at(0.2), (*first.spans, *second.spans))


def test_what_is_old_or_too_much_is_dropped(backend: Backend) -> None:
    registered(backend)
    registered(backend, "other")
    backend.spans.keep([a_trace(0, "other")], START)
    backend.spans.keep([a_trace(number) for number in range(MOST_KEPT + 3)], START)
    kept = backend.spans.slow("vision", START, START + HOUR)
    assert len(kept) == MOST_KEPT
    assert kept[-1].trace_id == a_trace(3).trace_id
    assert len(backend.spans.slow("other", START, START + HOUR)) == 1

    backend.spans.forget(START + KEPT_FOR - timedelta(seconds=1))
    assert len(backend.spans.slow("vision", START, START + HOUR)) == MOST_KEPT
    backend.spans.forget(START + KEPT_FOR)
    assert not backend.spans.slow("vision", START, START + HOUR)

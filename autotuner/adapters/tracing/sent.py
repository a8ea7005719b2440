"""Slow requests from what gateways and servers sent to this service by OTLP."""

from __future__ import annotations

from autotuner.domain.slow_requests import Question, SlowRequests, slow_requests, unread
from autotuner.domain.spans import Services
from autotuner.domain.target import Target
from autotuner.errors import AutotunerError
from autotuner.ports import ReceivedSpans

SOURCE = "OTLP"


class SentTraces:
    """What was sent here of a target's slow requests. received: None where this process has no database."""

    def __init__(self, target: Target, received: ReceivedSpans | None) -> None:
        assert target.traces is not None
        self._target = target
        self._services = Services(target.traces.gateway, target.traces.triton)
        self._received = received

    def slow_requests(self, question: Question) -> SlowRequests:
        """Return where slow requests spent their time; see `Traces`."""
        if self._received is None:
            return unread(SOURCE, "there is no database here that spans are kept in")
        try:
            found = self._received.slow(self._target.name, question.began, question.ended)
        except AutotunerError as error:
            return unread(SOURCE, str(error))
        marks = self._target.marks(question.replicas)
        return slow_requests(SOURCE, [trace.spans for trace in found], self._services, question, marks)

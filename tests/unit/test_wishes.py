"""A cancelled study ends, whatever somebody who does not know of it asks for afterwards."""

from __future__ import annotations

import pytest

from autotuner.domain.study import Approval, Outcome, Phase, Wish
from autotuner.errors import Conflict, Refused
from autotuner.operations import ask
from tests.closed_loop.endings import a_loop, check_ending, reached


def test_nothing_undoes_a_cancellation() -> None:
    loop = a_loop(approval=Approval.MANUAL)
    loop.run(until=reached(Phase.APPROVAL))
    ask(loop.store, loop.clock, loop.study_id, Wish.CANCEL, "on call", "incident")
    for wish in (Wish.APPROVE, Wish.DISAPPROVE, Wish.RUN, Wish.PAUSE):
        with pytest.raises(Refused, match=f"is cancelled: it ends, and cannot be asked to {wish}"):
            ask(loop.store, loop.clock, loop.study_id, wish, "operator", "seen in staging")
    ask(loop.store, loop.clock, loop.study_id, Wish.CANCEL, "operator", "too")
    loop.run()
    assert check_ending(loop).outcome is Outcome.ABORTED
    with pytest.raises(Conflict, match="it has already ended"):
        ask(loop.store, loop.clock, loop.study_id, Wish.APPROVE, "operator", "too late")

"""Starting a study once, and who may approve its winner: the use cases behind command line and REST alike."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from autotuner.adapters.memory_store import MemoryRegistry, MemoryStore
from autotuner.bookkeeping.rules import ANY_MARK
from autotuner.domain.access import Said, Scope, read_scopes
from autotuner.domain.registration import StudyDefaults, Wanted
from autotuner.domain.study import Phase, Study, Wish
from autotuner.errors import Conflict, Forbidden, InvalidInput, Refused
from autotuner.operations import approve, start_once
from autotuner.ports import RequestKey, StartedBefore
from tests.builders import START, ManualClock, a_budget, a_plan, a_study, a_target
from tests.command_line import TARGET, Terminal, a_target_file

KEY = RequestKey("anna", "night-1", "digest")


@pytest.fixture
def store() -> MemoryStore:
    made = MemoryStore()
    made.save_target(a_target(), a_budget(), "operator", "", START)
    return made


def plan_of(store: MemoryStore) -> Study:
    return a_study(plan=a_plan(slo=store.budgets("vision")[-1]))


def test_a_request_that_lost_a_race_gets_the_study_that_won(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of(store).plan
    first, _ = start_once(store, ManualClock(), plan, "anna", KEY)
    known = store.started_before
    answers = iter([None])

    def too_early(actor: str, key: str) -> StartedBefore | None:
        return next(answers, known(actor, key))

    monkeypatch.setattr(store, "started_before", too_early)

    assert start_once(store, ManualClock(), plan, "anna", KEY) == (first, False)
    assert len(store.studies()) == 1


def test_a_request_without_a_key_is_refused_by_an_unfinished_study(store: MemoryStore) -> None:
    plan = plan_of(store).plan
    start_once(store, ManualClock(), plan, "anna", None)

    with pytest.raises(Conflict):
        start_once(store, ManualClock(), plan, "anna", None)
    with pytest.raises(Conflict):
        start_once(store, ManualClock(), plan, "anna", KEY)


def test_a_key_of_another_request_is_refused(store: MemoryStore) -> None:
    plan = plan_of(store).plan
    start_once(store, ManualClock(), plan, "anna", KEY)

    with pytest.raises(InvalidInput, match="Idempotency-Key"):
        start_once(store, ManualClock(), plan, "anna", replace(KEY, digest="another"))


# -- four eyes ---------------------------------------------------------------------------------------------


def a_waiting_study(store: MemoryStore, *, four_eyes: bool) -> Study:
    registry = MemoryRegistry(store.memory)
    registry.register(
        Wanted(a_target(), defaults=StudyDefaults(four_eyes=four_eyes)), ANY_MARK, Said("anna", "", START)
    )
    study = replace(plan_of(store), actor="anna", phase=Phase.APPROVAL)
    store.create_study(study)
    return study


@pytest.mark.parametrize(("four_eyes", "actor"), [(False, "anna"), (False, "bob"), (True, "bob")])
def test_a_winner_is_approved(store: MemoryStore, four_eyes: bool, actor: str) -> None:
    study = a_waiting_study(store, four_eyes=four_eyes)

    approve(store, MemoryRegistry(store.memory), ManualClock(), "latest", (actor, "seen"))

    assert store.wish(study.id) is Wish.APPROVE
    assert (store.audit(1)[0].actor, store.audit(1)[0].reason) == (actor, "seen")


def test_who_started_a_study_does_not_approve_it_where_four_eyes_are_asked_for(store: MemoryStore) -> None:
    study = a_waiting_study(store, four_eyes=True)

    with pytest.raises(Forbidden, match="four eyes"):
        approve(store, MemoryRegistry(store.memory), ManualClock(), study.id, ("anna", ""))

    assert store.wish(study.id) is Wish.RUN


def test_there_is_nothing_to_approve_before_a_winner_waits(store: MemoryStore) -> None:
    store.create_study(plan_of(store))

    with pytest.raises(Refused):
        approve(store, MemoryRegistry(store.memory), ManualClock(), "latest", ("bob", ""))


def test_the_command_keeps_to_four_eyes_too(tmp_path: Path) -> None:
    terminal = Terminal(store=MemoryStore())
    file = a_target_file(tmp_path, study={**TARGET["study"], "four_eyes": True})
    terminal.run("target", "apply", file)
    kept = terminal.application(terminal.settings).registry.registration("vision")
    plan = a_plan(target=kept.target, slo=kept.slo)
    terminal.store.create_study(a_study(plan=plan, actor="tester", phase=Phase.APPROVAL))

    own = terminal.run("approve", "latest")
    terminal.settings = terminal.settings.model_copy(update={"actor": "bob"})
    other = terminal.run("approve", "latest")

    assert (own.code, other.code) == (7, 0)
    assert "four eyes" in own.err


# -- scopes ------------------------------------------------------------------------------------------------


def test_scopes_are_read_in_their_own_order_and_once() -> None:
    assert read_scopes(["admin", "viewer", "admin"]) == (Scope.VIEWER, Scope.ADMIN)


@pytest.mark.parametrize("names", [[], ["root"], ["viewer", ""], ["VIEWER"]])
def test_what_is_no_scope_is_refused(names: list[str]) -> None:
    with pytest.raises(InvalidInput, match="viewer, operator, approver, admin"):
        read_scopes(names)

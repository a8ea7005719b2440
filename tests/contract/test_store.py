"""What every store promises, in memory and in PostgreSQL alike: targets, budgets, studies and the journal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, is_dataclass, replace
from datetime import datetime
from typing import Any

import pytest

from autotuner.domain.access import Said
from autotuner.domain.sharing import Errand
from autotuner.domain.slo import SloBudget
from autotuner.domain.study import Outcome, Pending, Phase, Restore, Reversal, SetWeights, Study, Wish
from autotuner.errors import Conflict, InvalidInput, NotFound
from autotuner.ports import StudySummary
from autotuner.records import digest
from tests.builders import START, a_budget, a_configuration, a_plan, a_study, a_target, at
from tests.contract.conftest import Backend
from tests.contract.stored import LOOSER, audited, created, granted, registered
from tests.studies import (
    AWKWARD,
    a_rich_study,
    a_step,
    a_trial,
    an_entry,
    append,
    decided,
    ended,
    judged,
)

# -- targets and budgets -----------------------------------------------------------------------------------


def test_a_target_comes_back_as_it_was_saved(backend: Backend) -> None:
    target = a_target(note="naïve – “quoted”", replica_cost_per_hour=AWKWARD)

    saved = backend.store.save_target(target, a_budget(), "operator", "first", START)

    assert backend.store.target("vision") == (target, saved)
    assert saved == a_budget(version=1, actor="operator", reason="first", created_at=START)


def test_a_changed_target_replaces_the_old_one_and_keeps_its_budget(backend: Backend) -> None:
    budget = registered(backend)

    backend.store.save_target(a_target(note="moved"), a_budget(), "operator", "moved", at(60))

    assert backend.store.target("vision") == (a_target(note="moved"), budget)
    assert backend.store.budgets("vision") == (budget,)


def test_a_changed_budget_becomes_a_new_version_and_the_old_one_stays(backend: Backend) -> None:
    first = registered(backend)

    tighter = backend.store.save_target(a_target(), a_budget(p99_ceiling_seconds=0.05), "anna", "", at(60))

    assert (tighter.version, tighter.actor, tighter.created_at) == (2, "anna", at(60))
    assert backend.store.budgets("vision") == (first, tighter)
    assert backend.store.target("vision")[1] == tighter


def test_saving_again_what_is_saved_changes_and_audits_nothing(backend: Backend) -> None:
    first = registered(backend)
    before = audited(backend)

    again = backend.store.save_target(a_target(), a_budget(version=7, actor="bob"), "bob", "again", at(60))

    assert again == first
    assert audited(backend) == before


@pytest.mark.parametrize("field", LOOSER)
@pytest.mark.parametrize("reason", ["", "  \n"])
def test_loosening_without_a_reason_is_refused(backend: Backend, field: str, reason: str) -> None:
    first = registered(backend)
    looser = a_budget(**{field: LOOSER[field]})

    with pytest.raises(InvalidInput) as refused:
        backend.store.save_target(a_target(note="sneaked in"), looser, "bob", reason, at(60))

    assert refused.value.field == "reason"
    assert field in str(refused.value)
    assert backend.store.target("vision") == (a_target(), first)


def test_loosening_is_recorded_with_who_and_why(backend: Backend) -> None:
    registered(backend)

    backend.store.save_target(a_target(), a_budget(**LOOSER), "bob", "the product owner agreed", at(60))

    newest = backend.store.audit(1)[0]
    assert (newest.action, newest.actor, newest.reason) == (
        "budget_loosened",
        "bob",
        "the product owner agreed",
    )
    assert newest.details["loosened_fields"] == list(LOOSER)


def test_an_instant_without_a_time_zone_is_refused(backend: Backend) -> None:
    with pytest.raises(InvalidInput, match="time zone"):
        backend.store.save_target(
            a_target(),
            a_budget(),
            "operator",
            "",
            datetime(2026, 1, 1),  # noqa: DTZ001 - the point of the test
        )


@pytest.mark.parametrize(
    "ask",
    [
        lambda store: store.target("nobody"),
        lambda store: store.budgets("nobody"),
        lambda store: store.study("nobody"),
        lambda store: store.study("latest"),
        lambda store: store.initial("nobody"),
        lambda store: store.journal("nobody"),
        lambda store: store.next_sequence("nobody"),
        lambda store: store.wish("nobody"),
        lambda store: store.set_wish("nobody", Wish.PAUSE, "bob", "", START),
        lambda store: store.kept_up("nobody", "stable-0", Said("worker", "", START)),
    ],
)
def test_what_is_unknown_is_not_found(backend: Backend, ask: Callable[[Any], object]) -> None:
    with pytest.raises(NotFound):
        ask(backend.store)


# -- studies -----------------------------------------------------------------------------------------------


def a_rich_reversal(slo: SloBudget) -> Study:
    """The rich study, as if it took an earlier promotion back."""
    study = a_rich_study(slo)
    assert study.incumbent is not None
    reverses = Reversal("study-0", study.incumbent, a_configuration(instance_count=3))
    return replace(study, plan=replace(study.plan, reverses=reverses))


@pytest.mark.parametrize("made", [a_rich_study, a_rich_reversal])
def test_a_study_comes_back_equal_in_every_part(backend: Backend, made: Callable[[SloBudget], Study]) -> None:
    study = made(registered(backend))

    backend.store.create_study(study)

    assert backend.store.study(study.id) == study
    assert backend.store.initial(study.id) == study
    assert digest(backend.store.study(study.id)) == digest(study)


def parts(value: object) -> Iterator[tuple[str, bool]]:
    """Yield the name of every field below `value`, and whether it holds anything there."""
    if is_dataclass(value):
        for field in fields(value):
            held = getattr(value, field.name)
            yield f"{type(value).__name__}.{field.name}", held not in (None, (), {}, "")
            yield from parts(held)
    elif isinstance(value, tuple):
        for item in value:
            yield from parts(item)


def test_the_study_of_the_test_above_leaves_no_part_empty() -> None:
    study = a_rich_study(a_budget(reason="why"))
    seen = [*parts(study), *parts(ended(study)), *parts(a_rich_reversal(study.plan.slo))]
    filled = {name for name, held in seen if held}

    assert {name for name, _ in seen} - filled == set()


def test_a_stored_study_does_not_change_with_the_mappings_it_was_made_of(backend: Backend) -> None:
    weights = {"canary": 500}
    budget = registered(backend)
    study = a_study(plan=a_plan(slo=budget), pending=Pending(SetWeights(weights), START))
    backend.store.create_study(study)

    weights["canary"] = 0

    stored = backend.store.study(study.id)
    assert stored.pending == Pending(SetWeights({"canary": 500}), START)


def test_a_replica_that_is_given_again_what_was_promoted_is_in_the_audit(backend: Backend) -> None:
    study = created(backend)
    backend.store.kept_up(study.id, "stable-1", Said("worker-1 (upkeep)", "it started anew", at(90)))
    newest = backend.store.audit(1, subject=study.id)[0]
    assert (newest.action, newest.actor, newest.at) == ("replica_promoted", "worker-1 (upkeep)", at(90))
    assert newest.details == {"replica": "stable-1", "again": True}
    assert backend.store.first_broken_audit() is None


def test_a_second_unfinished_study_of_a_target_is_refused(backend: Backend) -> None:
    study = created(backend)

    with pytest.raises(Conflict, match="vision"):
        backend.store.create_study(replace(study, id="study-2"))

    assert backend.store.unfinished() == (("study-1", "vision"),)
    assert [record.action for record in audited(backend)].count("study_started") == 1


def test_a_target_may_be_studied_again_once_its_study_has_ended(backend: Backend) -> None:
    study = created(backend)
    append(backend.store, study, ended(study), granted(backend))

    backend.store.create_study(replace(study, id="study-2", created_at=at(2000)))

    assert backend.store.unfinished() == (("study-2", "vision"),)


def test_two_targets_are_studied_at_the_same_time(backend: Backend) -> None:
    created(backend, "vision", id="b", created_at=at(1))
    created(backend, "speech", id="a", created_at=at(2))

    assert backend.store.unfinished() == (("b", "vision"), ("a", "speech"))


def test_a_study_id_is_used_once(backend: Backend) -> None:
    study = created(backend)
    append(backend.store, study, ended(study), granted(backend))

    with pytest.raises(Conflict, match="already recorded"):
        backend.store.create_study(study)

    assert backend.store.study(study.id).outcome is Outcome.KEPT


def test_no_study_is_called_latest(backend: Backend) -> None:
    budget = registered(backend)

    with pytest.raises(InvalidInput, match=r"study\.id"):
        backend.store.create_study(a_study(id="latest", plan=a_plan(slo=budget)))


@pytest.mark.parametrize("slo_version", [1, 2])
def test_a_study_needs_a_target_and_a_budget_that_are_known(backend: Backend, slo_version: int) -> None:
    if slo_version == 2:
        registered(backend)

    with pytest.raises(NotFound, match=f"vision version {slo_version}"):
        backend.store.create_study(a_study(plan=a_plan(slo=a_budget(version=slo_version))))

    assert backend.store.studies() == ()


def test_latest_is_the_newest_study_whatever_the_order_of_their_names(backend: Backend) -> None:
    created(backend, "vision", id="z", created_at=at(1))
    created(backend, "speech", id="a", created_at=at(2))
    created(backend, "search", id="m", created_at=at(2))

    assert backend.store.study("latest").id == "m"


def test_studies_are_listed_newest_first(backend: Backend) -> None:
    first = created(backend, "vision", id="z", created_at=at(1))
    created(backend, "speech", id="a", created_at=at(2))
    measured = replace(first, phase=Phase.SEARCH, trials=(judged(a_trial(0)), a_trial(1)))
    append(backend.store, first, measured, granted(backend))
    append(backend.store, measured, ended(measured), granted(backend))

    newest = StudySummary("a", "speech", "created", None, "", at(2), None, 0)
    oldest = StudySummary("z", "vision", "ended", "kept", "nothing better", at(1), at(1000), 2)
    assert backend.store.studies() == (newest, oldest)
    assert backend.store.studies(limit=1) == (newest,)
    assert backend.store.studies(target="vision") == (oldest,)


# -- the journal -------------------------------------------------------------------------------------------


def test_an_entry_and_the_study_it_leads_to_are_recorded_together(backend: Backend) -> None:
    study = created(backend)
    after = decided(study)
    entry = an_entry(1, after)

    backend.store.append(study, after, entry, granted(backend))

    (kept,) = backend.store.journal(study.id)
    assert kept == replace(
        entry, observed={"at": at(1).isoformat(), "rate": AWKWARD, "names": ["a", "b"], "top": "inf"}
    )
    assert backend.store.study(study.id) == after
    assert backend.store.initial(study.id) == study
    assert backend.store.next_sequence(study.id) == 2


def test_a_rich_step_comes_back_equal(backend: Backend) -> None:
    study = a_rich_study(registered(backend))
    backend.store.create_study(study)
    newer = a_trial(1, steps=(a_step(), a_step(1, use=None)), closed_harm_requests=3.0)
    after = replace(study, trials=(study.trials[0], newer), pending=Pending(Restore("canary"), at(130)))

    assert append(backend.store, study, after, granted(backend)) == after


def test_an_entry_without_an_action_has_none(backend: Backend) -> None:
    study = created(backend)

    append(backend.store, study, replace(study, phase=Phase.BASELINE), granted(backend))

    assert [entry.action for entry in backend.store.journal(study.id)] == [None]


def test_the_journal_is_read_from_any_entry_on(backend: Backend) -> None:
    study = created(backend)
    grant = granted(backend)
    for _ in range(12):
        append(backend.store, study, study, grant)

    def numbers(after: int) -> list[int]:
        return [entry.sequence for entry in backend.store.journal(study.id, after)]

    assert [numbers(0), numbers(9), numbers(12)] == [list(range(1, 13)), [10, 11, 12], []]


@pytest.mark.parametrize("sequence", [0, 1, 3, -1])
def test_an_entry_that_is_not_the_next_one_is_refused_and_nothing_is_written(
    backend: Backend, sequence: int
) -> None:
    study = created(backend)
    grant = granted(backend)
    once = append(backend.store, study, decided(study), grant)
    before = audited(backend)

    with pytest.raises(Conflict, match="does not follow"):
        backend.store.append(once, ended(once), an_entry(sequence, ended(once)), grant)

    assert backend.store.study(study.id) == once
    assert [entry.sequence for entry in backend.store.journal(study.id)] == [1]
    assert audited(backend) == before


def test_repeating_an_append_whose_confirmation_was_lost_writes_nothing_twice(backend: Backend) -> None:
    study = created(backend)
    grant = granted(backend)
    after, entry = decided(study), an_entry(1, decided(study))
    backend.store.append(study, after, entry, grant)
    before = audited(backend)

    with pytest.raises(Conflict):
        backend.store.append(study, after, entry, grant)

    assert len(backend.store.journal(study.id)) == 1
    assert audited(backend) == before


def test_appending_to_an_unknown_study_is_refused(backend: Backend) -> None:
    registered(backend)

    with pytest.raises(NotFound):
        backend.store.append(a_study(), a_study(), an_entry(1, a_study()), granted(backend))


def test_text_that_no_database_holds_is_kept_as_far_as_possible(backend: Backend) -> None:
    study = created(backend)
    foreign = "answered \x00 and \ud800, then é"
    after = replace(study, reason=foreign)
    entry = an_entry(1, after, reason=foreign, observed={"fault": foreign})

    backend.store.append(study, after, entry, granted(backend))

    assert backend.store.study(study.id).reason == foreign
    (kept,) = backend.store.journal(study.id)
    assert (kept.reason, kept.observed) == ("answered ? and ?, then é", {"fault": foreign})


# -- what workers share out --------------------------------------------------------------------------------


def test_errands_are_the_unfinished_studies_in_the_order_they_came(backend: Backend) -> None:
    first = created(backend, "vision", id="b", created_at=at(60))
    created(backend, "speech", id="a", created_at=at(0))
    backend.store.set_wish("a", Wish.PAUSE, "bob", "", START)
    backend.store.save_target(a_target(name="vision", site="north"), a_budget(), "operator", "", START)

    assert backend.store.errands() == (
        Errand("b", "vision", "north", Phase.CREATED, Wish.RUN),
        Errand("a", "speech", "default", Phase.CREATED, Wish.PAUSE),
    )

    append(backend.store, first, ended(first), granted(backend))
    assert [each.study_id for each in backend.store.errands()] == ["a"]


# -- looks -------------------------------------------------------------------------------------------------


def test_a_look_that_moves_the_open_window_alone_is_kept_to_the_last_digit(backend: Backend) -> None:
    budget = registered(backend)
    study = a_rich_study(budget)
    bare = replace(study, trials=())
    backend.store.create_study(bare)
    grant = granted(backend)
    append(backend.store, bare, study, grant)
    newest = study.trials[-1]
    assert newest.window is not None
    looked = replace(
        study,
        trials=(*study.trials[:-1], replace(newest, window=replace(newest.window, harm_requests=AWKWARD))),
    )

    append(backend.store, study, looked, grant)
    assert backend.store.study(study.id) == looked
    assert backend.catalogue.standing(study.id).harm_requests == pytest.approx(looked.harm_requests)
    assert backend.catalogue.evidence(study.id, newest.number).trial == looked.trials[-1]
    closed = replace(looked, trials=(*looked.trials[:-1], replace(newest, window=None)))
    append(backend.store, looked, closed, grant)

    assert backend.store.study(study.id) == closed
    assert backend.store.study("latest") == closed
    assert backend.store.initial(study.id) == bare


def test_of_entries_written_at_once_those_that_are_refused_hold_up_no_other(backend: Backend) -> None:
    names = [f"target-{number}" for number in range(12)]
    studies = [created(backend, name, id=f"study of {name}") for name in names]
    grants = {name: granted(backend, name) for name in names}
    stale = replace(grants["target-3"], token=grants["target-3"].token - 1)

    def write(number: int) -> str:
        study, grant = studies[number], stale if number == 3 else grants[names[number]]
        try:
            for sequence in range(1, 6):
                after = decided(study, sequence)
                backend.store.append(study, after, an_entry(9 if number == 5 else sequence, after), grant)
        except Conflict as error:
            return error.subject
        return "written"

    with ThreadPoolExecutor(12) as pool:
        said = list(pool.map(write, range(12)))

    refused = {3: "lease of target target-3", 5: "study study of target-5"}
    assert said == [refused.get(number, "written") for number in range(12)]
    lengths = [len(backend.store.journal(study.id)) for study in studies]
    assert lengths == [0 if number in refused else 5 for number in range(12)]
    assert backend.store.first_broken_audit() is None

"""What every store guards, in memory and in PostgreSQL alike: who may write, what is wished, what is audited."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from autotuner.domain.configuration import Configuration
from autotuner.domain.study import Load, Outcome, Pending, Phase, Propose, Restore, SetWeights, Study, Wish
from autotuner.errors import Conflict, InvalidInput, Overtaken
from autotuner.ports import AuditRecord, Grant, JournalEntry, RequestKey, StartedBefore
from tests.builders import a_budget, a_plan, a_study, a_target, at
from tests.contract.conftest import Backend
from tests.contract.stored import LOOSER, audited, created, granted, registered
from tests.studies import (
    TTL,
    a_rich_study,
    a_trial,
    append,
    decided,
    ended,
    judged,
)

# -- fencing -----------------------------------------------------------------------------------------------


def refused(backend: Backend, study: Study, grant: Grant) -> bool:
    """Say whether a write under `grant` is refused, having checked that nothing was written then."""
    try:
        append(backend.store, study, replace(study, reason="written"), grant)
    except Conflict:
        assert backend.store.study(study.id) == study
        assert backend.store.journal(study.id) == ()
        return True
    return False


def test_a_holder_whose_lease_was_taken_over_can_write_no_more(backend: Backend) -> None:
    study = created(backend)
    stale = granted(backend)
    backend.pass_time(TTL + timedelta(seconds=1))

    assert backend.new_process().acquire("vision", "worker-2", TTL) is not None

    assert refused(backend, study, stale)


def test_the_remains_of_a_restarted_worker_can_write_no_more(backend: Backend) -> None:
    study = created(backend)
    stale, fresh = granted(backend), granted(backend)

    assert refused(backend, study, stale)
    assert not refused(backend, study, fresh)


def test_nobody_writes_under_a_lease_that_was_given_back(backend: Backend) -> None:
    study = created(backend)
    leases = backend.new_process()
    grant = leases.acquire("vision", "worker-1", TTL)
    assert grant is not None

    leases.release(grant)

    assert refused(backend, study, grant)


def test_an_expired_lease_that_nobody_took_still_lets_its_holder_write(backend: Backend) -> None:
    study = created(backend)
    grant = granted(backend)

    backend.pass_time(TTL + timedelta(seconds=1))

    assert not refused(backend, study, grant)


def test_a_lease_on_another_target_or_of_nobody_lets_nobody_write(backend: Backend) -> None:
    study = created(backend)
    registered(backend, "speech")
    other = granted(backend, "speech")

    assert refused(backend, study, other)
    assert refused(backend, study, replace(other, target="vision"))
    granted(backend)
    assert refused(backend, study, Grant("vision", "worker-2", 1, at(1000)))


# -- wishes ------------------------------------------------------------------------------------------------


def test_a_study_runs_until_somebody_wishes_otherwise(backend: Backend) -> None:
    study = created(backend)

    assert backend.store.wish(study.id) is Wish.RUN
    for wish in Wish:
        backend.store.set_wish(study.id, wish, "bob", "because", at(5))
        assert backend.store.wish(study.id) is wish


def test_a_wish_outlives_the_steps_of_the_study(backend: Backend) -> None:
    study = created(backend)
    backend.store.set_wish(study.id, Wish.PAUSE, "bob", "lunch", at(5))

    append(backend.store, study, decided(study), granted(backend))

    assert backend.store.wish(study.id) is Wish.PAUSE


def test_nothing_is_wished_of_a_study_that_has_ended(backend: Backend) -> None:
    study = created(backend)
    append(backend.store, study, ended(study), granted(backend))

    with pytest.raises(Conflict, match="ended"):
        backend.store.set_wish(study.id, Wish.CANCEL, "bob", "", at(5))

    assert backend.store.wish(study.id) is Wish.RUN


def about_to_end(backend: Backend, **changes: Any) -> tuple[Study, Grant]:
    """A study that has only to end with its promotion."""
    ready = {"phase": Phase.RESTORATION, "intended": Outcome.PROMOTED, "pending": None, "proposed_to": None}
    before = created(backend)
    grant = granted(backend)
    return append(backend.store, before, a_rich_study(**{**ready, **changes}), grant), grant


def test_no_study_ends_over_a_cancellation_that_its_last_tick_did_not_know_of(backend: Backend) -> None:
    study, grant = about_to_end(backend)
    backend.store.set_wish(study.id, Wish.CANCEL, "bob", "incident", at(5))

    with pytest.raises(Overtaken, match="cancelled meanwhile"):
        append(backend.store, study, ended(study, Outcome.PROMOTED), grant)

    assert backend.store.study(study.id) == study
    after = append(backend.store, study, ended(study), grant, observed={"wish": "cancel"})
    assert after.phase is Phase.ENDED


def test_a_cancellation_that_comes_too_late_is_refused_and_not_recorded(backend: Backend) -> None:
    study, _ = about_to_end(backend, canary_since=None)

    with pytest.raises(Conflict, match="its promotion stands"):
        backend.store.set_wish(study.id, Wish.CANCEL, "bob", "incident", at(5))

    assert backend.store.wish(study.id) is Wish.RUN
    backend.store.set_wish(study.id, Wish.PAUSE, "bob", "incident", at(5))


# -- the audit ---------------------------------------------------------------------------------------------


def told(backend: Backend, before: Study, after: Study, **changes: Any) -> list[tuple[str, str]]:
    """Append a step and return what the audit says of it: actions and reasons, oldest first."""
    known = len(audited(backend))
    append(backend.store, before, after, granted(backend), **changes)
    return [(record.action, record.reason) for record in audited(backend)[known:]]


def test_the_audit_tells_who_did_what_why_and_when_newest_first(backend: Backend) -> None:
    created(backend)
    backend.store.set_wish("study-1", Wish.CANCEL, "bob", "lunch", at(5))

    records = backend.store.audit()

    assert [record.action for record in records] == [
        "wish_set",
        "study_started",
        "budget_set",
        "target_saved",
    ]
    assert records[0].details == {"wish": "cancel"}
    assert (records[0].actor, records[0].subject, records[0].reason, records[0].at) == (
        "bob",
        "study-1",
        "lunch",
        at(5),
    )
    numbers = [record.number for record in records]
    assert numbers == sorted(numbers, reverse=True)


def test_the_audit_is_read_for_one_subject_and_up_to_a_limit(backend: Backend) -> None:
    created(backend)

    assert [record.action for record in backend.store.audit(subject="study-1")] == ["study_started"]
    assert [record.action for record in backend.store.audit(1, subject="vision")] == ["budget_set"]


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        (Load("canary", Configuration(0, (), 2, 32)), "load_decided"),
        (Restore("canary"), "restore_decided"),
        (SetWeights({"canary": 500}), "weights_decided"),
    ],
)
def test_every_action_on_production_is_audited_when_it_is_decided(
    backend: Backend, action: Load | Restore | SetWeights, expected: str
) -> None:
    study = created(backend)
    after = replace(study, pending=Pending(action, at(1)))

    assert told(backend, study, after, reason="it is time") == [(expected, "it is time")]
    assert backend.store.audit(1)[0].details["type"] == type(action).__name__


def test_what_touches_no_production_is_not_audited(backend: Backend) -> None:
    study = created(backend)
    asked = replace(study, pending=Pending(Propose(1), at(1)))
    pending = decided(asked)

    assert told(backend, study, asked) == []
    assert [action for action, _ in told(backend, asked, pending)] == ["load_decided"]
    assert told(backend, pending, replace(pending, dispersion=2.0)) == []


def test_a_judged_trial_is_audited_once_with_its_own_reason(backend: Backend) -> None:
    study = created(backend)
    measuring = append(backend.store, study, replace(study, trials=(a_trial(0),)), granted(backend))
    over = replace(measuring, trials=(judged(a_trial(0)),))

    assert told(backend, measuring, over) == [("trial_judged", "trial 0 is over")]
    assert backend.store.audit(1)[0].details["verdict"] == "accept"
    assert told(backend, over, replace(over, dispersion=2.0)) == []


def test_the_way_of_a_winner_is_audited(backend: Backend) -> None:
    study = created(backend)
    chosen = replace(study, trials=(judged(a_trial(0)),), winner=0, phase=Phase.CONFIRMATION)
    study = append(backend.store, study, replace(study, trials=chosen.trials), granted(backend))
    rejected = replace(chosen, winner=None, rejected_winners=(0,), phase=Phase.SEARCH)
    promoted = replace(chosen, phase=Phase.PROMOTION, promoted=("stable-0",))
    restored = replace(chosen, phase=Phase.RESTORATION)

    steps = [
        (study, chosen),
        (chosen, rejected),
        (rejected, chosen),
        (chosen, promoted),
        (promoted, restored),
    ]
    actions = [[action for action, _ in told(backend, before, after)] for before, after in steps]

    assert actions == [
        ["winner_chosen", "phase_entered"],
        ["winner_rejected", "phase_entered"],
        ["winner_chosen", "phase_entered"],
        ["phase_entered", "replica_promoted"],
        ["phase_entered", "replica_restored"],
    ]


def test_the_end_of_a_study_is_audited_with_its_outcome(backend: Backend) -> None:
    study = created(backend)

    steps = told(backend, study, ended(study, Outcome.ABORTED), reason="cancelled")

    assert steps == [("phase_entered", "cancelled"), ("study_ended", "nothing better")]
    assert backend.store.audit(1)[0].details["outcome"] == "aborted"


def test_the_audit_forms_an_unbroken_chain(backend: Backend) -> None:
    study = created(backend)
    append(backend.store, study, decided(study), granted(backend), reason="with a \x00 in it")
    backend.store.set_wish(
        study.id,
        Wish.PAUSE,
        "bob",
        "é\ud800",
        at(
            5,
        ).astimezone(),
    )

    assert len(audited(backend)) == 5
    assert backend.store.first_broken_audit() is None


def test_equal_entries_are_equal_whatever_store_kept_them(memory: Backend, postgres: Backend) -> None:
    def history(backend: Backend) -> tuple[list[JournalEntry], list[AuditRecord], Study]:
        study = created(backend)
        grant = granted(backend)
        once = append(backend.store, study, decided(study), grant)
        append(backend.store, once, ended(once), grant)
        backend.store.save_target(a_target(), a_budget(**LOOSER), "bob", "agreed", at(60))
        return list(backend.store.journal(study.id)), audited(backend), backend.store.study(study.id)

    assert history(memory) == history(postgres)


# -- request keys ------------------------------------------------------------------------------------------

KEY = RequestKey("anna", "night-2026-01-05", "digest of the request")


def test_a_request_key_leads_to_the_study_it_started(backend: Backend) -> None:
    budget = registered(backend)

    backend.store.create_study(a_study(plan=a_plan(slo=budget)), KEY)

    assert backend.store.started_before("anna", KEY.key) == StartedBefore(KEY.digest, "study-1")
    assert backend.store.started_before("bob", KEY.key) is None
    assert backend.store.started_before("anna", "another") is None


def test_a_request_key_starts_one_study(backend: Backend) -> None:
    study = a_study(plan=a_plan(slo=registered(backend)))
    backend.store.create_study(study, KEY)
    append(backend.store, study, ended(study), granted(backend))

    with pytest.raises(Conflict, match="it started study study-1"):
        backend.store.create_study(replace(study, id="study-2"), KEY)
    with pytest.raises(InvalidInput, match="Idempotency-Key"):
        backend.store.create_study(replace(study, id="study-2"), replace(KEY, digest="another request"))

    assert [each.id for each in backend.store.studies()] == ["study-1"]


def test_a_request_that_started_nothing_leaves_its_key_unused(backend: Backend) -> None:
    study = created(backend)

    with pytest.raises(Conflict, match="vision"):
        backend.store.create_study(replace(study, id="study-2"), KEY)

    assert backend.store.started_before("anna", KEY.key) is None

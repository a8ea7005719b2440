"""What every registry of targets promises, in memory and in PostgreSQL alike."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from autotuner.bookkeeping.rules import ANY_MARK, NEW_MARK
from autotuner.domain.access import Said
from autotuner.domain.registration import Registration, StudyDefaults, Wanted
from autotuner.domain.study import Approval, Pace
from autotuner.errors import AutotunerError, Conflict, InvalidInput, NotFound, Outdated, Refused
from tests.builders import START, a_budget, a_plan, a_study, a_target, at
from tests.contract.conftest import Backend
from tests.contract.stored import LOOSER, audited, created, granted
from tests.studies import append, ended

DEFAULTS = StudyDefaults(
    max_trials=7,
    approval=Approval.MANUAL,
    pace=Pace(warm_up=timedelta(seconds=7.5)),
    four_eyes=True,
)


def said(seconds: float = 0.0, actor: str = "anna", reason: str = "") -> Said:
    return Said(actor, reason, at(seconds))


def registered(backend: Backend) -> Registration:
    wanted = Wanted(a_target(), a_budget(), DEFAULTS)
    return backend.registry.register(wanted, NEW_MARK, said(reason="first"))


def test_a_registration_comes_back_as_it_was_made(backend: Backend) -> None:
    made = registered(backend)

    assert backend.registry.registration("vision") == made
    assert (made.target, made.defaults) == (a_target(), DEFAULTS)
    assert made.slo == a_budget(version=1, actor="anna", reason="first", created_at=START)
    assert (made.created_at, made.changed_at, made.changed_by) == (START, START, "anna")
    assert made.retired_at is None
    assert backend.store.target("vision") == (made.target, made.slo)


def test_what_the_command_registers_has_the_products_defaults(backend: Backend) -> None:
    backend.store.save_target(a_target(), a_budget(), "operator", "", START)

    assert backend.registry.registration("vision").defaults == StudyDefaults()


def test_a_change_keeps_what_it_does_not_name_and_tells_who_and_when(backend: Backend) -> None:
    made = registered(backend)

    changed = backend.registry.register(Wanted(a_target(note="moved")), made.mark, said(60, "bob"))

    assert (changed.slo, changed.defaults) == (made.slo, made.defaults)
    assert (changed.created_at, changed.changed_at, changed.changed_by) == (START, at(60), "bob")
    assert changed.mark != made.mark
    assert backend.registry.registration("vision") == changed
    assert [record.action for record in audited(backend)] == ["target_saved", "budget_set", "target_saved"]


def test_changed_defaults_are_a_change(backend: Backend) -> None:
    made = registered(backend)

    changed = backend.registry.register(
        Wanted(a_target(), defaults=replace(DEFAULTS, max_trials=8)), made.mark, said(60, "bob")
    )

    assert changed.mark != made.mark
    assert backend.store.audit(1)[0].details["study"]["max_trials"] == 8


def test_saving_what_is_saved_changes_and_audits_nothing(backend: Backend) -> None:
    made = registered(backend)
    before = audited(backend)

    again = backend.registry.register(Wanted(a_target(), a_budget(), DEFAULTS), made.mark, said(60, "bob"))

    assert again == made
    assert audited(backend) == before


@pytest.mark.parametrize(
    ("name", "mark", "kind"),
    [
        ("vision", NEW_MARK, Conflict),
        ("vision", "0123456789abcdef", Outdated),
        ("speech", "0123456789abcdef", NotFound),
    ],
    ids=["not new", "changed since", "not there"],
)
def test_who_knows_an_older_target_changes_nothing(
    backend: Backend, name: str, mark: str, kind: type[AutotunerError]
) -> None:
    made = registered(backend)
    before = audited(backend)

    with pytest.raises(kind) as refused:
        backend.registry.register(Wanted(a_target(name=name), a_budget()), mark, said(60))

    assert type(refused.value) is kind
    assert backend.registry.registration("vision") == made
    assert audited(backend) == before


def test_a_new_target_needs_a_budget(backend: Backend) -> None:
    with pytest.raises(InvalidInput, match="slo"):
        backend.registry.register(Wanted(a_target()), ANY_MARK, said())

    with pytest.raises(NotFound):
        backend.registry.registration("vision")


# -- budgets -----------------------------------------------------------------------------------------------


def test_a_new_version_is_made_of_the_one_that_was_read(backend: Backend) -> None:
    made = registered(backend)

    tighter = backend.registry.set_budget("vision", a_budget(p99_ceiling_seconds=0.05), 1, said(60, "bob"))

    assert (tighter.version, tighter.actor, tighter.created_at) == (2, "bob", at(60))
    assert backend.store.budgets("vision") == (made.slo, tighter)
    now = backend.registry.registration("vision")
    assert (now.slo, now.mark) == (tighter, made.mark)


def test_who_read_an_older_version_sets_none(backend: Backend) -> None:
    registered(backend)
    tighter = backend.registry.set_budget("vision", a_budget(p99_ceiling_seconds=0.05), 1, said(60))

    with pytest.raises(Outdated, match="expected version 1, found version 2"):
        backend.registry.set_budget("vision", a_budget(p99_ceiling_seconds=0.04), 1, said(120))

    assert backend.registry.registration("vision").slo == tighter


def test_the_same_promise_makes_no_version(backend: Backend) -> None:
    made = registered(backend)
    before = audited(backend)

    assert backend.registry.set_budget("vision", a_budget(), 1, said(60)) == made.slo
    assert backend.store.budgets("vision") == (made.slo,)
    assert audited(backend) == before


def test_loosening_needs_a_reason_and_is_marked(backend: Backend) -> None:
    registered(backend)

    with pytest.raises(InvalidInput) as refused:
        backend.registry.set_budget("vision", a_budget(**LOOSER), 1, said(60))
    backend.registry.set_budget("vision", a_budget(**LOOSER), 1, said(60, reason="agreed"))

    assert refused.value.field == "reason"
    assert [record.action for record in audited(backend)][-1] == "budget_loosened"


def test_the_budget_of_nobody_cannot_be_set(backend: Backend) -> None:
    with pytest.raises(NotFound):
        backend.registry.set_budget("nobody", a_budget(), 1, said())


# -- retiring ----------------------------------------------------------------------------------------------


def test_no_study_of_a_retired_target_starts(backend: Backend) -> None:
    made = registered(backend)

    retired = backend.registry.retire("vision", made.mark, said(60, "bob", "replaced"))

    assert (retired.retired_at, retired.changed_by) == (at(60), "bob")
    assert backend.registry.registration("vision") == retired
    assert (backend.store.audit(1)[0].action, backend.store.audit(1)[0].reason) == (
        "target_retired",
        "replaced",
    )
    with pytest.raises(Refused, match="retired"):
        backend.store.create_study(a_study(plan=a_plan(slo=made.slo)))
    assert backend.store.studies() == ()


def test_a_target_is_retired_once(backend: Backend) -> None:
    made = registered(backend)
    retired = backend.registry.retire("vision", made.mark, said(60))
    before = audited(backend)

    assert backend.registry.retire("vision", ANY_MARK, said(120)) == retired
    assert audited(backend) == before


def test_a_target_under_study_is_not_retired(backend: Backend) -> None:
    study = created(backend)

    with pytest.raises(Conflict, match="study-1 has not ended"):
        backend.registry.retire("vision", ANY_MARK, said(60))

    append(backend.store, study, ended(study), granted(backend))
    assert backend.registry.retire("vision", ANY_MARK, said(60)).retired_at == at(60)


def test_who_knows_an_older_target_does_not_retire_it(backend: Backend) -> None:
    registered(backend)

    with pytest.raises(Outdated):
        backend.registry.retire("vision", "0123456789abcdef", said(60))
    with pytest.raises(NotFound):
        backend.registry.retire("nobody", ANY_MARK, said(60))

    assert backend.registry.registration("vision").retired_at is None


def test_a_retired_target_is_not_changed_but_registered_anew(backend: Backend) -> None:
    made = registered(backend)
    retired = backend.registry.retire("vision", made.mark, said(60))

    with pytest.raises(Refused, match="retired"):
        backend.registry.register(Wanted(a_target(note="changed")), retired.mark, said(120))
    revived = backend.registry.register(Wanted(a_target(), a_budget(), DEFAULTS), NEW_MARK, said(120, "carl"))

    assert (revived.retired_at, revived.mark, revived.slo) == (None, made.mark, made.slo)
    assert (revived.created_at, revived.changed_at, revived.changed_by) == (START, at(120), "carl")
    assert backend.store.audit(1)[0].details["revived"] is True
    backend.store.create_study(a_study(plan=a_plan(slo=revived.slo)))

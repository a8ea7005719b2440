"""What every kind of lease promises, in memory and in PostgreSQL alike."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from autotuner.errors import Conflict, NotFound
from autotuner.ports import Grant, Leases
from tests.builders import START, a_budget, a_plan, a_study, a_target
from tests.contract.conftest import Backend
from tests.studies import TTL, an_entry, decided


@pytest.fixture(autouse=True)
def target(backend: Backend) -> None:
    for name in ("vision", "speech"):
        backend.store.save_target(a_target(name=name), a_budget(), "operator", "", START)


def taken(leases: Leases, holder: str = "worker-1", target: str = "vision") -> Grant:
    grant = leases.acquire(target, holder, TTL)
    assert grant is not None
    return grant


def test_a_free_lease_is_taken(backend: Backend) -> None:
    grant = taken(backend.new_process())

    assert (grant.target, grant.holder, grant.token) == ("vision", "worker-1", 1)
    assert grant.expires_at.tzinfo is not None


def test_a_lease_that_somebody_else_holds_is_not_taken(backend: Backend) -> None:
    taken(backend.new_process())

    assert backend.new_process().acquire("vision", "worker-2", TTL) is None


def test_targets_have_leases_of_their_own(backend: Backend) -> None:
    taken(backend.new_process())

    assert taken(backend.new_process(), "worker-2", "speech").token == 1


def test_renewing_keeps_the_token_and_lasts_longer(backend: Backend) -> None:
    leases = backend.new_process()
    first = taken(leases)
    backend.pass_time(TTL / 2)

    renewed = taken(leases)
    backend.pass_time(TTL * 0.9)

    assert renewed.token == first.token
    assert backend.new_process().acquire("vision", "worker-2", TTL) is None


def test_an_expired_lease_is_taken_with_a_higher_token(backend: Backend) -> None:
    first = taken(backend.new_process())
    backend.pass_time(TTL + timedelta(seconds=1))

    assert taken(backend.new_process(), "worker-2").token > first.token


def test_whoever_lost_a_lease_does_not_get_it_back_while_it_is_held(backend: Backend) -> None:
    leases = backend.new_process()
    taken(leases)
    backend.pass_time(TTL + timedelta(seconds=1))
    taken(backend.new_process(), "worker-2")

    assert leases.acquire("vision", "worker-1", TTL) is None


def test_a_restarted_process_takes_its_lease_over_at_once_with_a_higher_token(backend: Backend) -> None:
    first = taken(backend.new_process())

    assert taken(backend.new_process()).token > first.token


def test_a_lease_given_back_is_free_at_once_and_its_token_still_grows(backend: Backend) -> None:
    leases = backend.new_process()
    first = taken(leases)

    leases.release(first)

    second = taken(backend.new_process(), "worker-2")
    assert second.token > first.token


def test_taking_again_what_one_gave_back_is_a_new_grant(backend: Backend) -> None:
    leases = backend.new_process()
    first = taken(leases)
    leases.release(first)

    assert taken(leases).token > first.token


def test_giving_back_what_is_no_longer_held_changes_nothing(backend: Backend) -> None:
    leases = backend.new_process()
    stale = taken(leases)
    backend.pass_time(TTL + timedelta(seconds=1))
    taken(backend.new_process(), "worker-2")

    leases.release(stale)
    leases.release(stale)

    assert backend.new_process().acquire("vision", "worker-3", TTL) is None


def test_there_is_no_lease_on_an_unknown_target(backend: Backend) -> None:
    with pytest.raises(NotFound):
        backend.new_process().acquire("nobody", "worker-1", TTL)


def test_of_many_that_ask_at_once_exactly_one_gets_the_lease(backend: Backend) -> None:
    def ask(number: int) -> Grant | None:
        return backend.new_process().acquire("vision", f"worker-{number}", TTL)

    with ThreadPoolExecutor(8) as pool:
        for _ in range(5):
            grants = [grant for grant in pool.map(ask, range(8)) if grant is not None]
            assert len(grants) == 1
            backend.pass_time(TTL + timedelta(seconds=1))


def test_of_many_that_write_at_once_exactly_one_writes_each_entry(backend: Backend) -> None:
    budget = backend.store.target("vision")[1]
    study = a_study(plan=a_plan(slo=budget))
    backend.store.create_study(study)
    grant = taken(backend.new_process())

    def write(number: int) -> bool:
        after = decided(study, number)
        try:
            backend.store.append(study, after, an_entry(1 + number // 4, after), grant)
        except Conflict:
            return False
        return True

    with ThreadPoolExecutor(4) as pool:
        wrote = list(pool.map(write, range(12)))

    sequences = [entry.sequence for entry in backend.store.journal(study.id)]
    assert sequences == list(range(1, sum(wrote) + 1))
    assert sequences
    assert backend.store.first_broken_audit() is None


# -- many at once ------------------------------------------------------------------------------------------


def test_many_leases_are_renewed_in_one_go_and_keep_their_tokens(backend: Backend) -> None:
    leases = backend.new_process()
    grants = [taken(leases), taken(leases, target="speech")]
    backend.pass_time(TTL * 0.9)

    assert leases.renew(grants, TTL) == {"vision", "speech"}

    backend.pass_time(TTL * 0.9)
    assert backend.new_process().acquire("vision", "worker-2", TTL) is None
    assert [taken(leases).token, taken(leases, target="speech").token] == [each.token for each in grants]


def test_a_lease_that_went_to_somebody_else_is_not_renewed(backend: Backend) -> None:
    leases = backend.new_process()
    grants = [taken(leases), taken(leases, target="speech")]
    backend.pass_time(TTL + timedelta(seconds=1))
    taken(backend.new_process(), "worker-2", "speech")

    assert leases.renew(grants, TTL) == {"vision"}
    assert leases.renew([], TTL) == frozenset()


def test_another_process_of_the_same_name_renews_nothing(backend: Backend) -> None:
    grant = taken(backend.new_process())

    assert backend.new_process().renew([grant], TTL) == frozenset()


# -- who is at work ----------------------------------------------------------------------------------------


def test_a_worker_sees_who_else_is_alive_and_who_drives_what(backend: Backend) -> None:
    first, second = backend.new_process(), backend.new_process()
    taken(first)

    assert first.muster("worker-1", TTL).workers == 1
    assert second.muster("worker-2", TTL).workers == 2
    assert second.muster("worker-2", TTL).holders == {"vision": "worker-1"}


def test_a_worker_that_falls_silent_is_counted_no_more_and_its_targets_are_free(backend: Backend) -> None:
    first, second = backend.new_process(), backend.new_process()
    taken(first)
    first.muster("worker-1", TTL)
    backend.pass_time(TTL + timedelta(seconds=1))

    found = second.muster("worker-2", TTL)

    assert (found.workers, dict(found.holders)) == (1, {})


def test_a_worker_that_says_it_leaves_is_gone_at_once(backend: Backend) -> None:
    first, second = backend.new_process(), backend.new_process()
    first.muster("worker-1", TTL)
    second.muster("worker-2", TTL)

    first.dismiss("worker-1")

    assert second.muster("worker-2", TTL).workers == 1

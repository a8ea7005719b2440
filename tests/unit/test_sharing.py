from __future__ import annotations

from dataclasses import replace

import pytest

from autotuner.domain.sharing import Errand, admitted, share
from autotuner.domain.study import Phase, Wish


def an_errand(number: int, **changes: object) -> Errand:
    """An unfinished study of a target of its own, not begun."""
    made = Errand(f"study-{number}", f"target-{number}", "here", Phase.CREATED, Wish.RUN)
    return replace(made, **changes)  # type: ignore[arg-type]


def ids(errands: tuple[Errand, ...]) -> list[str]:
    return [each.study_id for each in errands]


# -- places ------------------------------------------------------------------------------------------------


def test_studies_beyond_the_places_of_a_site_wait_in_the_order_they_came() -> None:
    waiting = [an_errand(number) for number in range(4)]

    assert ids(admitted(waiting, 2)) == ["study-0", "study-1"]


def test_what_has_begun_goes_on_whatever_the_limit_and_takes_its_place() -> None:
    begun = [an_errand(number, phase=Phase.SEARCH) for number in range(3)]

    assert ids(admitted([*begun, an_errand(3)], 2)) == ["study-0", "study-1", "study-2"]


def test_every_site_has_places_of_its_own() -> None:
    errands = [an_errand(0), an_errand(1), an_errand(2, site="there")]

    assert ids(admitted(errands, 1)) == ["study-0", "study-2"]


def test_a_study_that_waits_for_approval_holds_no_place() -> None:
    assert len(admitted([an_errand(0, phase=Phase.APPROVAL), an_errand(1)], 1)) == 2


def test_a_study_that_is_to_be_cancelled_needs_no_place() -> None:
    errands = [an_errand(0), an_errand(1, wish=Wish.CANCEL), an_errand(2)]

    assert ids(admitted(errands, 1)) == ["study-0", "study-1"]


# -- shares ------------------------------------------------------------------------------------------------


def test_a_worker_alone_takes_everything_up_to_its_capacity() -> None:
    runnable = [an_errand(number) for number in range(5)]

    assert len(share(runnable, {}, "me", 1, 1000).taken) == 5
    assert ids(share(runnable, {}, "me", 1, 3).taken) == ["study-0", "study-1", "study-2"]


def test_what_others_drive_is_not_taken() -> None:
    runnable = [an_errand(number) for number in range(4)]
    found = share(runnable, {"target-0": "other", "target-1": "me"}, "me", 2, 1000)

    assert (ids(found.kept), ids(found.taken), found.surplus) == (["study-1"], ["study-2"], 0)


def test_a_worker_that_is_joined_by_another_has_too_many() -> None:
    runnable = [an_errand(number) for number in range(5)]
    holders = {each.target: "me" for each in runnable}

    assert share(runnable, holders, "me", 2, 1000).surplus == 2


@pytest.mark.parametrize("workers", [1, 2, 3, 5, 7])
@pytest.mark.parametrize("studies", [0, 1, 4, 5, 23])
def test_shares_settle_with_everything_taken_and_nobody_with_more_than_one_too_many(
    workers: int, studies: int
) -> None:
    runnable = [an_errand(number) for number in range(studies)]
    holders = {each.target: "worker-0" for each in runnable}
    for _ in range(4):
        for name in [f"worker-{number}" for number in range(workers)]:
            found = share(runnable, holders, name, workers, 1000)
            for each in found.kept[len(found.kept) - found.surplus :]:
                del holders[each.target]
            holders |= {each.target: name for each in found.taken}

    counts = [list(holders.values()).count(f"worker-{number}") for number in range(workers)]
    assert sum(counts) == studies
    assert max(counts) <= -(-studies // workers)

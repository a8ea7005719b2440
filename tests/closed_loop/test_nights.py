"""Whatever is killed, whenever: every night ran once, no study ran twice at once, no trial is lost."""

from __future__ import annotations

import pytest

from tests.closed_loop.nights import Nights

NIGHTS = 4
"""The last one is that in which the clock is set forward."""


@pytest.mark.parametrize("seed", range(3))
def test_every_night_runs_once_whatever_is_killed(seed: int) -> None:
    nights = Nights(seed)
    nights.run(NIGHTS)

    nights.check(NIGHTS)
    assert nights.kills["worker"] > 0


def test_schedulers_that_die_at_every_other_write_lose_no_night() -> None:
    nights = Nights(seed=7, targets=2, workers=1, chance=0.5)
    for worker in nights._workers:
        worker.store._chance = worker.leases._chance = 0.0  # type: ignore[attr-defined]
    nights.run(3)

    nights.check(3)
    assert nights.kills["scheduler"] > 0
    assert nights.kills["worker"] == 0

"""Which unfinished studies a worker carries: a fair share of those that may run now.

Workers know nothing of one another but how many there are and who drives what, and all compute the same from it. A
place on a site is a canary that may be under load there: studies beyond the limit wait in the order they came.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autotuner.domain.study import Phase, Wish

UNPLACED = (Phase.CREATED, Phase.APPROVAL, Phase.ENDED)
"""Phases in which no canary is under load: nothing has begun, or a person is waited for."""


@dataclass(frozen=True)
class Errand:
    """An unfinished study as workers share them out. site: the cluster or site whose canaries are limited together.

    restores: it takes a promotion back and puts nothing new under load.
    """

    study_id: str
    target: str
    site: str
    phase: Phase
    wish: Wish
    restores: bool = False


@dataclass(frozen=True)
class Share:
    """What a worker should carry: what it carries already, what it takes on, and how many it has too many of."""

    kept: tuple[Errand, ...]
    taken: tuple[Errand, ...]
    surplus: int


def admitted(errands: Sequence[Errand], canaries_per_site: int) -> tuple[Errand, ...]:
    """Return the studies that may run now, oldest first: those that have begun, and as many more as have a place.

    errands: every unfinished study, oldest first. What is to be cancelled or restores needs no place.
    """
    used = Counter(each.site for each in errands if each.phase not in UNPLACED)
    found = []
    for each in errands:
        if each.phase is not Phase.CREATED or each.wish is Wish.CANCEL or each.restores:
            found.append(each)
        elif used[each.site] < canaries_per_site:
            used[each.site] += 1
            found.append(each)
    return tuple(found)


def share(
    runnable: Sequence[Errand], holders: Mapping[str, str], holder: str, workers: int, capacity: int
) -> Share:
    """Return what the worker `holder` should carry of `runnable` (oldest first).

    holders: who drives each target that is driven. workers: how many are alive, from 1. capacity: the most studies that
    one worker carries. Every share is rounded up, so that nothing is left over while there is capacity.
    """
    fair = min(capacity, math.ceil(len(runnable) / max(1, workers)))
    mine = tuple(each for each in runnable if holders.get(each.target) == holder)
    free = [each for each in runnable if each.target not in holders]
    return Share(mine, tuple(free[: max(0, fair - len(mine))]), max(0, len(mine) - fair))

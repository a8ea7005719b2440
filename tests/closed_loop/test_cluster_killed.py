"""A worker that is killed between any two of its writes, on a cluster: whoever comes next leaves nothing behind."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import pytest

from autotuner.domain.study import Outcome, Study, Wish
from autotuner.errors import Conflict
from autotuner.operations import ask
from autotuner.ports import Grant, JournalEntry
from tests.closed_loop.loop import QuickStore
from tests.cluster.loop import ClusterLoop, a_cluster_loop, check_ending, forked, renewed
from tests.cluster.server import Answer, Request


class Killed(BaseException):
    """The process ends here, as by `kill -9`."""


@dataclass
class Fuse:
    """Counts the writes of a worker and kills it before one. kills: asked with a name for each write."""

    kills: Callable[[str], bool] = lambda write: False
    writes: list[str] = field(default_factory=list)

    def burn(self, write: str) -> None:
        """Do nothing, or raise Killed."""
        if self.kills(write):
            raise Killed(write)
        self.writes.append(write)

    def request(self, request: Request) -> Answer | None:
        """A request on its way to the API server."""
        if request.verb not in ("get", "list") and not request.place.plural.endswith("reviews"):
            self.burn(f"{request.verb} {request.place.plural}")
        return None

    def load(self, server: str) -> None:
        """A configuration on its way to a server."""
        self.burn(f"load {server}")


class FusedStore(QuickStore):
    """A store that a worker may not live to write to."""

    def __init__(self) -> None:
        super().__init__()
        self.fuse = Fuse()

    def append(self, before: Study, after: Study, entry: JournalEntry, grant: Grant) -> None:
        """Record a decision or an outcome."""
        self.fuse.burn(f"record {entry.kind}")
        super().append(before, after, entry, grant)


def a_loop_with_a_fuse() -> tuple[ClusterLoop, Fuse]:
    store = FusedStore()
    loop = a_cluster_loop(store=store)
    loop.server.between.append(store.fuse.request)
    loop.plant.on_load = store.fuse.load
    return loop, store.fuse


def fuse_of(loop: ClusterLoop) -> Fuse:
    assert isinstance(loop.store, FusedStore)
    return loop.store.fuse


def writes_of_each_tick() -> list[int]:
    """How many writes each tick of the undisturbed study makes: the same study makes the same ones again."""
    loop, fuse = a_loop_with_a_fuse()
    counted, ended = [], False
    while not ended:
        fuse.writes.clear()
        ended = loop.tick().ended
        counted.append(len(fuse.writes))
    return counted


def killed_before(loop: ClusterLoop, number: int) -> ClusterLoop:
    """The world after a worker was killed before this write of its next tick, and another one has come."""
    dead = forked(loop)
    fuse = fuse_of(dead)
    fuse.writes.clear()
    fuse.kills = lambda write: len(fuse.writes) == number
    with pytest.raises(Killed):
        dead.tick()
    fuse.kills = lambda write: False
    renewed(dead)
    return dead


def test_a_worker_killed_between_any_two_writes_and_a_study_cancelled_then_leave_nothing() -> None:
    loop, _ = a_loop_with_a_fuse()
    tried = 0
    for writes in writes_of_each_tick():
        for number in range(1, writes):
            other = killed_before(loop, number)
            with suppress(Conflict):  # its promotion stands already
                ask(other.store, other.clock, other.study_id, Wish.CANCEL, "tester", "enough")
            other.run(most_ticks=60)
            promoted = check_ending(other, replayed=tried % 20 == 0).outcome is Outcome.PROMOTED
            assert not promoted or loop.study.intended is Outcome.PROMOTED
            tried += 1
        loop.tick()
    assert check_ending(loop).outcome is Outcome.PROMOTED
    assert tried > 60


def test_a_worker_killed_before_every_single_write_still_promotes_on_evidence() -> None:
    loop, fuse = a_loop_with_a_fuse()
    killed: set[tuple[int, str]] = set()

    def once(write: str) -> bool:
        place = (loop.store.next_sequence(loop.study_id), write)
        if place in killed:
            return False
        killed.add(place)
        return True

    fuse.kills = once
    for _ in range(3000):
        try:
            if loop.tick().ended:
                break
        except Killed:
            renewed(loop)
    study = check_ending(loop)
    assert study.outcome is Outcome.PROMOTED, study.reason
    writes = {write for _, write in killed}
    assert {
        "record decision",
        "record outcome",
        "patch httproutes",
        "patch services",
        "patch deployments",
        "patch configmaps",
        "delete deployments",
        "delete services",
        "delete configmaps",
    } <= writes

"""In which thread a target is read: in the tick's own where nothing can hang, beside it where something may."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from autotuner.domain.configuration import ModelConfig
from autotuner.domain.provenance import Provenance
from autotuner.ports import Serving, World
from tests.closed_loop.loop import Loop


class Watched:
    """Servers that remember which thread asked for their configuration."""

    def __init__(self, inner: Serving) -> None:
        self._inner = inner
        self.asked_in: set[str] = set()

    def model_config(self, replica: str) -> ModelConfig:
        self.asked_in.add(threading.current_thread().name)
        return self._inner.model_config(replica)

    def provenance(self, replica: str) -> Provenance:
        return self._inner.provenance(replica)

    def is_ready(self, replica: str) -> bool:
        return self._inner.is_ready(replica)


@pytest.fixture
def reads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2, thread_name_prefix="reads") as pool:
        yield pool


@pytest.mark.parametrize("at_hand", [True, False])
def test_only_what_is_at_hand_is_read_in_the_tick_s_own_thread(
    at_hand: bool, reads: ThreadPoolExecutor
) -> None:
    loop = Loop()
    watched = Watched(loop.target.world.serving)
    world: World = replace(loop.target.world, serving=watched, at_hand=at_hand)  # type: ignore[arg-type]
    outside = loop.controller._outside
    loop.controller._outside = replace(outside, worlds=lambda _target: world)
    loop.controller._pools = replace(outside.pools, reads=reads)

    loop.tick()

    assert {name.startswith("reads") for name in watched.asked_in} == {not at_hand}

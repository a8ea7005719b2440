"""Background work on the simulated clock: what waits for a load ends when the load does, and no thread is needed.

A real load blocks the thread that asked for it. Here the asking returns at once, so an executor stands in for
that thread: its future is done when the load has become effective, or has failed, or has taken too long.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

from autotuner.adapters.simulated.simulation import Loading, Simulation
from autotuner.errors import AutotunerError


class SimulatedBackground(Executor):
    """Runs work at once; loads on the simulated target that it asked for keep its future open."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run `fn` now; what it raises is in the future, at once."""
        with self._simulation.present():
            earlier = len(self._simulation.loadings)
            try:
                value = fn(*args, **kwargs)
            except AutotunerError as error:
                failed: Future[Any] = Future()
                failed.set_exception(error)
                return failed
            return _Awaiting(self._simulation, self._simulation.loadings[earlier:], value)


class _Awaiting(Future[Any]):
    """Done when every load that it awaits has ended, as seen on the simulated clock."""

    def __init__(self, simulation: Simulation, loadings: list[Loading], value: Any) -> None:
        super().__init__()
        self._simulation = simulation
        self._loadings = loadings
        self._awaited = value
        self.done()

    def done(self) -> bool:
        """Say whether the work has ended by the clock's present."""
        if super().done():
            return True
        with self._simulation.present():
            faults = [fault for loading in self._loadings if (fault := self._simulation.fault(loading))]
            under_way = not all(loading.effective for loading in self._loadings)
        if faults:
            self.set_exception(faults[0])
        elif not under_way:
            self.set_result(self._awaited)
        return super().done()

    def result(self, timeout: float | None = None) -> Any:  # noqa: ARG002 - the clock does not move while one waits
        """Return what the work returned. Raises its error, or TimeoutError while it is under way."""
        self.done()
        return super().result(timeout=0)

"""A deployment that is looked at and does not exist: its counts go on with the clock."""

from __future__ import annotations

from datetime import timedelta

from autotuner.diagnosing import deployment_of
from autotuner.domain.findings.reading import Device, Facts, Look, Quantiles, ReplicaLook, Work
from autotuner.domain.target import Target
from autotuner.errors import AutotunerError
from autotuner.ports import Clock
from tests.builders import START
from tests.diagnoses import CONFIG, some_work

EACH_SECOND = {1: (20, 10.0), 2: (10, 11.0), 4: (4, 13.0)}
"""Executions and milliseconds by batch size in a second: 56 requests."""


class StandInObserver:
    """`ports.Observer` of any target.

    batches: whether times by batch size are told; error: raised instead; loaded: versions of the model.
    """

    def __init__(
        self,
        target: Target,
        clock: Clock,
        batches: bool = False,
        error: AutotunerError | None = None,
        loaded: tuple[str, ...] = ("1",),
    ) -> None:
        self._deployment = deployment_of(target)
        self._clock = clock
        self._batches = batches
        self._error = error
        self._loaded = loaded

    def facts(self) -> Facts:
        """The usual configuration on every server."""
        if self._error is not None:
            raise self._error
        model = self._deployment.model
        versions = {place.name: "2.51.0" for place in self._deployment.servers}
        loaded = dict.fromkeys(versions, self._loaded)
        configs = {model: {**CONFIG, "name": model}}
        return Facts(model, configs, versions, 1, True, model_versions=loaded)

    def look(self) -> Look:
        """Counts since the tests' first instant."""
        seconds = round((self._clock.now() - START) / timedelta(seconds=1), 3)
        work = some_work({size: (round(count * seconds), ms) for size, (count, ms) in EACH_SECOND.items()})
        if not self._batches:
            work = Work(**{**vars(work), "batches": ()})
        quantiles = {"request": Quantiles(0.015, 0.03, 0.04)}
        one = ReplicaLook({self._deployment.model: work}, True, Device(0.3), 0.0, quantiles)
        return Look(self._clock.now(), {place.name: one for place in self._deployment.servers})

    def last_look(self) -> Look:
        """The same."""
        return self.look()

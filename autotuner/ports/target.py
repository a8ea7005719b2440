"""The doors to a target: its servers, its route, who counts, and who proposes a configuration; and the clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol

from autotuner.domain.configuration import ModelConfig
from autotuner.domain.findings.reading import Facts, Look
from autotuner.domain.measurement import Sample
from autotuner.domain.provenance import Provenance
from autotuner.domain.slow_requests import Question, SlowRequests
from autotuner.domain.study import Proposal, SearchOver, Study


class Clock(Protocol):
    """The only source of the time."""

    def now(self) -> datetime:
        """Return the present instant, aware, in UTC."""


class Serving(Protocol):
    """Model control of the Triton servers of one target, by replica name."""

    def model_config(self, replica: str) -> ModelConfig:
        """Return the complete configuration the replica serves now. Raises Unavailable, Refused."""

    def is_ready(self, replica: str) -> bool:
        """Say whether the model is ready on the replica; False when the server does not answer."""

    def provenance(self, replica: str) -> Provenance:
        """Return what the replica runs, as far as it is told here. Raises Unavailable, Refused."""

    def load(self, replica: str, config: ModelConfig, limit: timedelta) -> None:
        """Load the model with the complete configuration `config`; returns when it is ready.

        Raises Refused with the server's words when the server will not load it (the old version serves on),
        Unavailable when the server does not answer or has not finished within `limit`.
        """


class Route(Protocol):
    """Weights at the gateway."""

    def weights(self) -> Mapping[str, int]:
        """Return the weight of each replica as the gateway holds it now. Raises Unavailable."""

    def set_weights(self, weights: Mapping[str, int]) -> None:
        """Set all weights at once; idempotent. Raises Unavailable, Refused."""


class MetricsSource(Protocol):
    """Raw counters of every replica, at the gateway and at the servers."""

    def sample(self) -> Sample:
        """Read everything once. What cannot be read is absent and explained in `Sample.faults`; never raises."""


class Traces(Protocol):
    """The spans of requests, wherever they are kept; they explain and never decide."""

    def slow_requests(self, question: Question) -> SlowRequests:
        """Return where slow requests spent their time, within a deadline.

        What cannot be read is said in `SlowRequests.fault`; never raises.
        """


class ServerApi(Protocol):
    """What one Triton tells of itself, whatever the protocol; read only. All raise Unavailable, Refused."""

    def metadata(self) -> Mapping[str, Any]:
        """Return the server's name, version and extensions."""

    def model_config(self, model: str) -> ModelConfig:
        """Return a model's complete configuration. Raises NotFound."""

    def statistics(self, model: str) -> Mapping[str, Any]:
        """Return a model's inference statistics, or those of every model for an empty name. Raises NotFound."""


class Observer(Protocol):
    """One model on a deployment, looked at and never touched."""

    def facts(self) -> Facts:
        """Read what does not change while it is looked at. Raises Unavailable, Refused, NotFound, InvalidInput."""

    def look(self) -> Look:
        """Read all counters once. Raises Unavailable when no server could be read."""

    def last_look(self) -> Look:
        """Read all counters once, those included that not every look reads. Raises as `look` does."""


class Canary(Protocol):
    """The canary of a target that has none standing: made for a study, and gone after it."""

    def put_up(self) -> None:
        """Make the canary and its place in the route, with no traffic; idempotent, and does not wait for it.

        Raises Refused with what is missing or in the way, Unavailable.
        """

    def take_down(self, *, give_back: bool = False) -> None:
        """Remove all that `put_up` made and give the route back as it was; idempotent. Raises Unavailable, Refused.

        give_back: whether what production's pods start with is put back too, where a promotion had begun to change it.
        """

    def objection(self) -> str:
        """Return why production is not what the study began with; empty while it is. Raises Unavailable."""

    def keeper(self) -> str:
        """Return who owns what production starts with, and would undo a change of ours; empty when nobody does.

        Raises Unavailable, Refused.
        """


class Restarts(Protocol):
    """Since when the servers of a target run, where that is known."""

    def started(self) -> Mapping[str, datetime]:
        """Return when each stable replica that is ready began; the others are left out. Raises Unavailable, Refused."""


@dataclass(frozen=True)
class World:
    """The doors to one target.

    canary: None where a canary stands already. restarts: None where nobody knows them. at_hand: all that is read is in
    this process's own memory, so nothing waits for it. traces: None where nobody has the spans of its requests.
    """

    serving: Serving
    route: Route
    metrics: MetricsSource
    canary: Canary | None = None
    restarts: Restarts | None = None
    at_hand: bool = False
    traces: Traces | None = None


class Proposer(Protocol):
    """Chooses the next configuration."""

    def propose(self, study: Study) -> Proposal | SearchOver:
        """Return the next configuration to try, or why nothing is worth a trial.

        A pure function of the study's records: the same study gives the same proposal. Never repeats a
        configuration already tried, never proposes what the search space forbids.
        """

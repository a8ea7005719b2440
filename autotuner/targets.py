"""Use cases of targets: register, change, retire, promise, and try whether everything a target names can be reached."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial

from autotuner.domain.access import Said
from autotuner.domain.registration import Registration, Wanted
from autotuner.domain.slo import SloBudget
from autotuner.domain.target import Target
from autotuner.errors import AutotunerError, Unavailable
from autotuner.operations import check_model
from autotuner.ports import Clock, Registry, World
from autotuner.telemetry.traces import operation

WHATEVER_IT_IS = None
"""A mark: the change is of the target as it is now, whoever changed it before."""

MUST_BE_NEW = ""
"""A mark: there is no such target yet, or it is retired."""


@dataclass(frozen=True)
class Asked:
    """Who asks for a change, why, and of what: the mark of the target as they read it."""

    actor: str
    reason: str = ""
    mark: str | None = WHATEVER_IT_IS


@operation
def register(registry: Registry, clock: Clock, wanted: Wanted, asked: Asked) -> Registration:
    """Create, change or revive a target and return it; raises as `ports.Registry.register` does."""
    return registry.register(wanted, asked.mark, Said(asked.actor, asked.reason, clock.now()))


@operation
def retire(registry: Registry, clock: Clock, name: str, asked: Asked) -> Registration:
    """Let no study of a target start any more; raises as `ports.Registry.retire` does."""
    return registry.retire(name, asked.mark, Said(asked.actor, asked.reason, clock.now()))


@operation
def set_budget(
    registry: Registry, clock: Clock, name: str, slo: SloBudget, version: int, asked: Asked
) -> SloBudget:
    """Make a new version of a budget from `version`; raises as `ports.Registry.set_budget` does."""
    return registry.set_budget(name, slo, version, Said(asked.actor, asked.reason, clock.now()))


@dataclass(frozen=True)
class ConnectionCheck:
    """One thing that was tried. what: `replica NAME`, `model`, `gateway` or `metrics`. detail: why it failed."""

    what: str
    passed: bool
    detail: str


@operation
def try_connections(target: Target, world: World, reads: Executor) -> tuple[ConnectionCheck, ...]:
    """Read everything that a study would read, once, and change nothing; every failure is told, none is raised."""
    running = [(what, reads.submit(_outcome, attempt)) for what, attempt in _attempts(target, world)]
    return tuple(ConnectionCheck(what, not found.result(), found.result()) for what, found in running)


def _standing(target: Target) -> tuple[str, ...]:
    """The replicas that stand between studies: on Kubernetes the canary is made for each."""
    return target.stable_names if target.workload is not None else tuple(r.name for r in target.replicas)


def _attempts(target: Target, world: World) -> Iterator[tuple[str, Callable[[], None]]]:
    for name in _standing(target):
        yield f"replica {name}", partial(_try_replica, world, name)
    first = target.stable_names[0]
    yield "model", lambda: check_model(target, world.serving.model_config(first))
    yield "gateway", lambda: _try_gateway(target, world)
    yield "metrics", lambda: _try_metrics(target, world)


def _outcome(attempt: Callable[[], None]) -> str:
    """Why an attempt failed; empty when it did not."""
    try:
        attempt()
    except AutotunerError as error:
        return str(error)
    return ""


def _try_replica(world: World, name: str) -> None:
    if not world.serving.is_ready(name):
        raise Unavailable(f"triton {name}", "the server or the model is not ready")
    world.serving.model_config(name)


def _try_gateway(target: Target, world: World) -> None:
    missing = set(target.backends(_standing(target))) - set(world.route.weights())
    if missing:
        raise Unavailable("gateway", f"it has no weights for {', '.join(sorted(missing))}")


def _try_metrics(target: Target, world: World) -> None:
    away = {replica.name for replica in target.replicas} - set(_standing(target))
    faults = {name: why for name, why in world.metrics.sample().faults.items() if name not in away}
    if faults:
        raise Unavailable("metrics", "; ".join(f"{name}: {why}" for name, why in sorted(faults.items())))

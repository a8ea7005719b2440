"""One tick of one study: observe → decide → record the intention → act → record the outcome → say why.

All deciding is in `domain.lifecycle`; here are only the effects, in one visible order. A tick never waits: a load
runs in the background and later ticks ask for it. It may be cut off anywhere or run twice (guards rule 3): what
was decided is recorded before it is done, and an action found pending is simply done again.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from datetime import datetime, timedelta

from autotuner.domain.configuration import ModelConfig, fingerprint, with_configuration
from autotuner.domain.lifecycle import absorb, next_step
from autotuner.domain.observation import ActionResult, Decision, Observation
from autotuner.domain.routing import unwatched_weights
from autotuner.domain.space import why_done
from autotuner.domain.study import (
    Action,
    Load,
    Phase,
    Propose,
    Restore,
    SetWeights,
    Study,
    StudyPlan,
)
from autotuner.domain.target import Target
from autotuner.errors import AutotunerError, Conflict, Unavailable
from autotuner.ports import Clock, Grant, JournalEntry, Leases, Proposer, Store, World
from autotuner.records import digest, to_record

log = logging.getLogger(__name__)

LEASE_TTL = timedelta(seconds=15)


@dataclass(frozen=True)
class Tick:
    """What a tick did and when to look again; `ended` says that the study is over."""

    reason: str
    look_after: timedelta
    ended: bool = False


@dataclass(frozen=True)
class Outside:
    """Everything outside that a controller acts on or asks.

    worlds and proposers give the doors of a target and the sampler of a plan; background runs what a tick must
    not wait for.
    """

    store: Store
    leases: Leases
    clock: Clock
    worlds: Callable[[Target], World]
    proposers: Callable[[StudyPlan], Proposer]
    background: Executor


@dataclass(frozen=True)
class _Held:
    """A lease and until when it surely lasts by this process's own clock: nobody else's clock is compared with it."""

    grant: Grant
    until: datetime


class Controller:
    """Carries studies forward, one tick at a time. Safe to run in many processes: a lease decides who drives."""

    def __init__(self, outside: Outside, holder: str, lease_ttl: timedelta = LEASE_TTL) -> None:
        self._outside = outside
        self._store = outside.store
        self._leases = outside.leases
        self._clock = outside.clock
        self._background = outside.background
        self._holder = holder
        self._lease_ttl = lease_ttl
        self._doors: dict[str, World] = {}
        self._loads: dict[tuple[str, int], Future[None]] = {}
        self._held: dict[str, _Held] = {}
        self._seen: dict[str, Study] = {}

    def tick(self, study_id: str, target: str) -> Tick:
        """Carry one study one step forward.

        Raises Unavailable when the database does not answer, Conflict when somebody else took the study over.
        """
        grant = self._grant(target)
        if grant is None:
            self.forget(study_id)
            return Tick("another worker drives this target", timedelta(seconds=1))
        study = self._store.study(study_id)
        self._seen[study_id] = study
        if study.phase is Phase.ENDED:
            return self._ended(study, grant)
        if study.pending is not None:
            return self._finish(study, grant)
        return self._decide(study, grant)

    def retreat(self, study_id: str) -> str:
        """Give production its traffic back without the database's consent; returns what was done.

        For a worker that can no longer record: exposing users to what nobody watches is worse than a void window.
        """
        study = self._seen.get(study_id)
        if study is None or study.incumbent is None or study.phase is Phase.ENDED:
            return "nothing to take back"
        weights, *also_safe = unwatched_weights(study)
        try:
            if dict(self._world(study).route.weights()) in (weights, *also_safe):
                return "production already has its traffic"
            self._world(study).route.set_weights(weights)
        except AutotunerError as error:
            return f"the traffic could not be given back: {error}"
        return "production has its traffic back"

    def forget(self, study_id: str) -> None:
        """Drop what is remembered of a study that somebody else drives or that has ended."""
        self._seen.pop(study_id, None)

    # -- deciding ------------------------------------------------------------------------------------------

    def _decide(self, study: Study, grant: Grant) -> Tick:
        seen = self._observe(study)
        decision = next_step(study, seen)
        if decision.study == study and decision.action is None:
            return Tick(decision.reason, decision.look_after)
        sequence = self._record(study, decision, "decision", to_record(seen), seen, grant)
        if decision.action is None:
            return self._told(decision, grant)
        return self._act(decision.study, decision.action, sequence, grant)

    def _finish(self, study: Study, grant: Grant) -> Tick:
        """Do again, or ask after, the action that is pending; its decision was the last journal entry."""
        assert study.pending is not None
        sequence = self._store.next_sequence(study.id) - 1
        return self._act(study, study.pending.action, sequence, grant)

    def _act(self, study: Study, action: Action, sequence: int, grant: Grant) -> Tick:
        self._require(grant)
        result = self._perform(study, action, sequence)
        if result is None:
            return Tick(
                "waiting for the load to finish", min(study.plan.pace.look_interval, timedelta(seconds=1))
            )
        decision = absorb(study, result)
        self._record(study, decision, "outcome", to_record(result), result, grant)
        return self._told(decision, grant)

    def _told(self, decision: Decision, grant: Grant) -> Tick:
        if decision.study.phase is Phase.ENDED:
            return self._ended(decision.study, grant)
        return Tick(decision.reason, decision.look_after)

    def _record(
        self,
        before: Study,
        decision: Decision,
        kind: str,
        observed: Mapping[str, object],
        source: Observation | ActionResult,
        grant: Grant,
    ) -> int:
        sequence = self._store.next_sequence(before.id)
        entry = JournalEntry(
            sequence=sequence,
            kind=kind,
            at=source.at,
            observed=observed,
            action=to_record(decision.action, Action) if decision.action is not None else None,
            reason=decision.reason,
            actor=self._holder,
            state=digest(decision.study),
        )
        self._store.append(before, decision.study, entry, grant)
        self._seen[before.id] = decision.study
        return sequence

    # -- observing -----------------------------------------------------------------------------------------

    def _observe(self, study: Study) -> Observation:
        world = self._world(study)
        faults: dict[str, str] = {}
        configs: dict[str, ModelConfig] = {}
        reads = {
            r.name: self._background.submit(_read_config, world, r.name) for r in study.plan.target.replicas
        }
        weights_read = self._background.submit(world.route.weights)
        sample = world.metrics.sample()
        for name, read in reads.items():
            try:
                configs[name] = read.result()
            except AutotunerError as error:
                faults[name] = str(error)
        try:
            weights: Mapping[str, int] | None = weights_read.result()
        except AutotunerError as error:
            weights, faults["gateway"] = None, str(error)
        return Observation(
            at=self._clock.now(),
            wish=self._store.wish(study.id),
            sample=sample,
            weights=dict(weights) if weights is not None else None,
            fingerprints={name: fingerprint(config) for name, config in configs.items()},
            configs=_texts(configs) if study.phase is Phase.CREATED else {},
            faults=faults,
        )

    # -- acting --------------------------------------------------------------------------------------------

    def _perform(self, study: Study, action: Action, sequence: int) -> ActionResult | None:
        """Do the action once more or for the first time; None while it is still under way."""
        if isinstance(action, Load | Restore):
            return self._load(study, action, sequence)
        try:
            if isinstance(action, SetWeights):
                self._world(study).route.set_weights(action.weights)
                return ActionResult(self._clock.now(), True)
            assert isinstance(action, Propose)
            return self._propose(study)
        except AutotunerError as error:
            return ActionResult(self._clock.now(), False, str(error), isinstance(error, Unavailable))

    def _propose(self, study: Study) -> ActionResult:
        proposal = self._outside.proposers(study.plan).propose(study)
        if proposal is not None:
            return ActionResult(self._clock.now(), True, proposal.reason, proposal=proposal)
        reason = why_done(study) or "the sampler found nothing worth another trial"
        return ActionResult(self._clock.now(), True, reason)

    def _load(self, study: Study, action: Load | Restore, sequence: int) -> ActionResult | None:
        key = (study.id, sequence)
        running = self._loads.get(key)
        if running is None:
            config = _complete(study, action)
            limit = study.plan.pace.load_limit
            running = self._background.submit(
                self._loader(study, action), self._world(study), action.replica, config, limit
            )
            self._loads[key] = running
        if not running.done():
            return None
        del self._loads[key]
        try:
            running.result()
        except AutotunerError as error:
            return ActionResult(self._clock.now(), False, str(error), isinstance(error, Unavailable))
        return ActionResult(self._clock.now(), True)

    def _loader(self, study: Study, action: Load | Restore) -> Callable[..., None]:
        """A replica on which a load was given up is loaded even if it serves the right thing: loads queue up."""
        return _load if action.replica in study.unsettled else _load_unless_served

    # -- leases --------------------------------------------------------------------------------------------

    def _grant(self, target: str) -> Grant | None:
        """Return the lease on a target, renewed when half of it has gone."""
        asked = self._clock.now()
        held = self._held.get(target)
        if held is not None and held.until - asked > self._lease_ttl / 2:
            return held.grant
        grant = self._leases.acquire(target, self._holder, self._lease_ttl)
        if grant is None:
            self._held.pop(target, None)
            return None
        self._held[target] = _Held(grant, asked + self._lease_ttl)
        return grant

    def _require(self, grant: Grant) -> None:
        """Raise Conflict unless the lease still lasts: the database fences what is written, but not what is done."""
        still = self._grant(grant.target)
        if still is None or still.token != grant.token:
            raise Conflict(f"lease of target {grant.target}", f"{grant.holder} lost it within a tick")

    def leave(self) -> None:
        """Give production its traffic, then every lease back, so that nobody is exposed to what nobody watches.

        The next worker need not wait for the leases; it finds the window void and measures again. Raises Unavailable.
        """
        for study in list(self._seen.values()):
            if self._drives(study.plan.target.name):
                done = self.retreat(study.id)
                log.info("retreated", extra={"study": study.id, "reason": done})
        for target, held in list(self._held.items()):
            self._leases.release(held.grant)
            self._held.pop(target, None)

    def _drives(self, target: str) -> bool:
        """Whether nobody else can be driving the target; without the database nobody can take it over."""
        try:
            return target in self._held and self._grant(target) is not None
        except Unavailable:
            return True

    def lost(self, target: str) -> None:
        """Drop the lease on a target that turned out to be somebody else's."""
        self._held.pop(target, None)

    def _ended(self, study: Study, grant: Grant) -> Tick:
        self._leases.release(grant)
        self._held.pop(grant.target, None)
        self._doors.pop(study.id, None)
        self.forget(study.id)
        return Tick(study.reason, timedelta(0), ended=True)

    def _world(self, study: Study) -> World:
        if study.id not in self._doors:
            self._doors[study.id] = self._outside.worlds(study.plan.target)
        return self._doors[study.id]


def _read_config(world: World, replica: str) -> ModelConfig:
    if not world.serving.is_ready(replica):
        raise Unavailable(f"triton {replica}", "the server or the model is not ready")
    return world.serving.model_config(replica)


def _texts(configs: Mapping[str, ModelConfig]) -> dict[str, str]:
    return {name: json.dumps(config, sort_keys=True) for name, config in configs.items()}


def _complete(study: Study, action: Load | Restore) -> ModelConfig:
    assert study.incumbent is not None
    config: ModelConfig = json.loads(study.incumbent.configs[action.replica])
    return config if isinstance(action, Restore) else with_configuration(config, action.configuration)


def _load_unless_served(world: World, replica: str, config: ModelConfig, limit: timedelta) -> None:
    """Load unless the replica serves it already: a load that a dead worker began may have ended meanwhile."""
    try:
        if fingerprint(_read_config(world, replica)) == fingerprint(config):
            return
    except Unavailable:
        log.debug("load_precheck_failed", extra={"replica": replica})
    _load(world, replica, config, limit)


def _load(world: World, replica: str, config: ModelConfig, limit: timedelta) -> None:
    world.serving.load(replica, config, limit)

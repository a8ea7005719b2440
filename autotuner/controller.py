"""One tick of one study: observe → decide → record the intention → act → record the outcome → say why.

All deciding is in `domain.lifecycle`; here are only the effects, in one visible order. A tick never waits: a load
runs in the background and later ticks ask for it. It may be cut off anywhere or run twice (guards rule 3): what
was decided is recorded before it is done, and an action found pending is simply done again.

A study is read from the store when its lease is taken, and then remembered as it was last written: nobody else can
have written it, for a write with an older token is refused. Ticks of different studies may run at the same time; one
study has one tick at a time.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import TypeVar

from autotuner.domain.calendar import Standing
from autotuner.domain.configuration import ModelConfig, fingerprint, with_configuration
from autotuner.domain.explaining import due
from autotuner.domain.lifecycle import absorb, next_step
from autotuner.domain.observation import (
    CONFIGURATION,
    WORKLOAD,
    ActionResult,
    Decision,
    Observation,
    Told,
)
from autotuner.domain.provenance import Provenance
from autotuner.domain.rollout import brings_something
from autotuner.domain.routing import unwatched_weights
from autotuner.domain.slow_requests import SlowRequests
from autotuner.domain.study import (
    Action,
    Load,
    Phase,
    Proposal,
    Propose,
    PutUp,
    Restore,
    SearchOver,
    SetWeights,
    Study,
    StudyPlan,
    TakeDown,
    TrialState,
    Wish,
)
from autotuner.domain.target import Target
from autotuner.errors import AutotunerError, Overtaken, Refused, Unavailable
from autotuner.ports import Canary, Clock, Grant, JournalEntry, Leases, Proposer, Store, World
from autotuner.records import digest_after, observed_record, to_record
from autotuner.telemetry.logs import bound
from autotuner.telemetry.studies import Watched, tick_span, trial_under_way
from autotuner.tenure import LEASE_TTL, Tenure

log = logging.getLogger(__name__)

T = TypeVar("T")

ORDERS_AGAIN = timedelta(seconds=1)
"""When to look again for what an operator has asked meanwhile: whoever ticks reads that as often."""

UNREAD = -1
"""The token of what must be read again; no lease has it."""


@dataclass(frozen=True)
class Tick:
    """What a tick did and when to look again; `ended` says that the study is over."""

    reason: str
    look_after: timedelta
    ended: bool = False


@dataclass(frozen=True)
class Orders:
    """What an operator last asked of a study, and what keeps production as it is."""

    wish: Wish
    standing: Standing


@dataclass(frozen=True)
class Pools:
    """Where work beside the ticks runs. Each kind has its own, so that servers that hang hold up nothing else.

    reads: of servers and gateways; a tick waits for them. loads: of models, minutes each. proposals: of samplers, which
    compute for seconds. traces: questions about slow requests, which nothing waits for.
    """

    reads: Executor
    loads: Executor
    proposals: Executor
    traces: Executor

    @classmethod
    def all_in(cls, executor: Executor) -> Pools:
        """Return pools that are all the same one."""
        return cls(executor, executor, executor, executor)

    def shutdown(self) -> None:
        """Begin nothing more; what is under way ends by itself."""
        for pool in (self.reads, self.loads, self.proposals, self.traces):
            pool.shutdown(wait=False, cancel_futures=True)


@dataclass(frozen=True)
class Outside:
    """Everything outside that a controller acts on or asks.

    worlds and proposers give the doors of a target and the sampler of a plan; pools run what a tick must not do itself;
    watched is told of every step that was recorded.
    """

    store: Store
    leases: Leases
    clock: Clock
    worlds: Callable[[Target], World]
    proposers: Callable[[StudyPlan], Proposer]
    pools: Pools
    watched: Watched = field(default_factory=Watched)


@dataclass(frozen=True)
class _Known:
    """A study as it was last read or written, the number of its newest journal entry, and under which lease."""

    study: Study
    sequence: int
    token: int


class Controller:
    """Carries studies forward, one tick at a time. Safe to run in many processes: a lease decides who drives."""

    def __init__(self, outside: Outside, holder: str, lease_ttl: timedelta = LEASE_TTL) -> None:
        self._outside = outside
        self._store = outside.store
        self._clock = outside.clock
        self._pools = outside.pools
        self._holder = holder
        self._tenure = Tenure(outside.leases, outside.clock, holder, lease_ttl)
        self._doors: dict[str, World] = {}
        self._loads: dict[tuple[str, int], Future[None]] = {}
        self._proposals: dict[tuple[str, int], Future[Proposal | SearchOver]] = {}
        self._asked_of: dict[str, tuple[tuple[int, int], Future[SlowRequests]]] = {}
        self._seen: dict[str, _Known] = {}
        self._prints: dict[str, dict[str, tuple[ModelConfig, str]]] = {}

    @property
    def holder(self) -> str:
        """The name under which this process drives."""
        return self._holder

    def tick(self, study_id: str, target: str, orders: Orders | None = None) -> Tick:
        """Carry one study one step forward.

        orders: what an operator asks of it, where the caller has just read that; None to ask the store.
        Raises Unavailable when the database does not answer, Conflict when somebody else took the study over.
        """
        grant = self._tenure.grant(target)
        if grant is None:
            self.forget(study_id)
            return Tick("another worker drives this target", timedelta(seconds=1))
        study = self._known(study_id, grant).study
        if study.phase is Phase.ENDED:
            return self._ended(study)
        trial = trial_under_way(study)
        with bound(**({"trial": trial.number} if trial else {})), tick_span(study) as span:
            tick = self._finish(study, grant) if study.pending else self._decide(study, orders, grant)
            span.note(reason=tick.reason)
            return tick

    def _known(self, study_id: str, grant: Grant) -> _Known:
        """Return the study as it stands, read again under every new lease and after every write that went wrong."""
        known = self._seen.get(study_id)
        if known is None or known.token != grant.token:
            sequence = self._store.next_sequence(study_id) - 1
            known = _Known(self._store.study(study_id), sequence, grant.token)
            self._seen[study_id] = known
        return known

    def retreat(self, study_id: str) -> str:
        """Give production its traffic back without the database's consent; returns what was done.

        For a worker that can no longer record: exposing users to what nobody watches is worse than a void window.
        """
        known = self._seen.get(study_id)
        study = known.study if known is not None else None
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
        self._doors.pop(study_id, None)
        self._prints.pop(study_id, None)
        self._asked_of.pop(study_id, None)
        self._outside.watched.gone(study_id)

    # -- deciding ------------------------------------------------------------------------------------------

    def _decide(self, study: Study, orders: Orders | None, grant: Grant) -> Tick:
        seen = self._observe(study, orders or self._asked(study))
        decision = next_step(study, seen)
        if decision.study == study and decision.action is None:
            return Tick(decision.reason, decision.look_after)
        try:
            sequence = self._record(study, decision, "decision", observed_record(seen), seen, grant)
        except Overtaken as wish:
            return Tick(str(wish), ORDERS_AGAIN)
        if decision.action is None:
            return self._told(decision)
        return self._act(decision.study, decision.action, sequence, grant)

    def _finish(self, study: Study, grant: Grant) -> Tick:
        """Do again, or ask after, the action that is pending; its decision was the last journal entry."""
        assert study.pending is not None
        return self._act(study, study.pending.action, self._seen[study.id].sequence, grant)

    def _act(self, study: Study, action: Action, sequence: int, grant: Grant) -> Tick:
        self._tenure.require(grant)
        result = self._perform(study, action, sequence)
        if result is None:
            what = "proposal" if isinstance(action, Propose) else "load"
            again = min(study.plan.pace.look_interval, timedelta(seconds=1))
            return Tick(f"waiting for the {what} to finish", again)
        decision = absorb(study, result)
        self._record(study, decision, "outcome", to_record(result), result, grant)
        return self._told(decision)

    def _told(self, decision: Decision) -> Tick:
        if decision.study.phase is Phase.ENDED:
            return self._ended(decision.study)
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
        sequence = self._seen[before.id].sequence + 1
        entry = JournalEntry(
            sequence=sequence,
            kind=kind,
            at=source.at,
            observed=observed,
            action=to_record(decision.action, Action) if decision.action is not None else None,
            reason=decision.reason,
            actor=self._holder,
            state=digest_after(before, decision.study),
        )
        try:
            self._store.append(before, decision.study, entry, grant)
        except BaseException:
            # Whether it was written is not known: the next tick reads again. Until then this is what is taken back.
            self._seen[before.id] = _Known(before, sequence - 1, UNREAD)
            raise
        self._seen[before.id] = _Known(decision.study, sequence, grant.token)
        self._outside.watched.stepped(before, decision.study)
        return sequence

    # -- observing -----------------------------------------------------------------------------------------

    def _asked(self, study: Study) -> Orders:
        return Orders(self._store.wish(study.id), self._store.standing(self._clock.now()))

    def _observe(self, study: Study, orders: Orders) -> Observation:
        world = self._world(study)
        faults: dict[str, str] = {}
        configs: dict[str, ModelConfig] = {}
        reads = {r.name: self._begun(world, _read_config, world, r.name) for r in study.plan.target.replicas}
        weights_read = self._begun(world, world.route.weights)
        sample = world.metrics.sample()
        for name, read in reads.items():
            try:
                configs[name] = read()
            except AutotunerError as error:
                faults[name] = str(error)
        try:
            weights: Mapping[str, int] | None = weights_read()
        except AutotunerError as error:
            weights, faults["gateway"] = None, str(error)
        if world.canary is not None and study.canary_since is not None:
            faults |= _objection(world.canary)
            if study.phase is Phase.PROMOTION:
                faults |= _keeper(world.canary)
        at = self._clock.now()
        return Observation(
            at=at,
            wish=orders.wish,
            clearance=orders.standing.clearance(study.plan.target.name, at),
            sample=sample,
            weights=dict(weights) if weights is not None else None,
            fingerprints={name: self._print(study.id, name, config) for name, config in configs.items()},
            configs=_texts(configs) if study.phase is Phase.CREATED else {},
            faults=faults,
            provenances=_provenances(world, configs) if study.phase is Phase.CREATED else None,
            told=self._told_by_traces(study, world, at),
        )

    def _told_by_traces(self, study: Study, world: World, at: datetime) -> Told | None:
        """What traces tell of the oldest step that waits for it: asked beside the ticks, taken when it is there."""
        asked = due(study, at) if world.traces is not None else None
        if asked is None or world.traces is None:
            return None
        place = asked.trial, asked.step
        if world.at_hand:
            return Told(*place, world.traces.slow_requests(asked.question))
        about, answer = self._asked_of.get(study.id, (None, None))
        if about != place or answer is None:
            answer = self._pools.traces.submit(world.traces.slow_requests, asked.question)
            self._asked_of[study.id] = place, answer
        if not answer.done():
            return None
        del self._asked_of[study.id]
        return Told(*place, answer.result())

    def _begun(self, world: World, read: Callable[..., T], *arguments: object) -> Callable[[], T]:
        """Begin a read beside this thread and return what gives its result; one at hand is read when that is asked."""
        if world.at_hand:
            return partial(read, *arguments)
        return self._pools.reads.submit(read, *arguments).result

    def _print(self, study_id: str, replica: str, config: ModelConfig) -> str:
        """Return the fingerprint of what a replica serves; it rarely differs from what it served at the last look."""
        prints = self._prints.setdefault(study_id, {})
        known = prints.get(replica)
        if known is None or known[0] != config:
            known = prints[replica] = (config, fingerprint(config))
        return known[1]

    # -- acting --------------------------------------------------------------------------------------------

    def _perform(self, study: Study, action: Action, sequence: int) -> ActionResult | None:
        """Do the action once more or for the first time; None while it is still under way."""
        if isinstance(action, Load | Restore):
            return self._load(study, action, sequence)
        try:
            if isinstance(action, SetWeights):
                self._world(study).route.set_weights(action.weights)
                return ActionResult(self._clock.now(), True)
            if isinstance(action, PutUp | TakeDown):
                self._set_canary(study, up=isinstance(action, PutUp))
                return ActionResult(self._clock.now(), True)
            assert isinstance(action, Propose)
            return self._propose(study, sequence)
        except AutotunerError as error:
            return ActionResult(self._clock.now(), False, str(error), isinstance(error, Unavailable))

    def _set_canary(self, study: Study, *, up: bool) -> None:
        canary = self._world(study).canary
        if canary is None:
            raise Refused("this target has a canary of its own: none is put up or taken down")
        if up:
            canary.put_up()
        else:
            canary.take_down(give_back=not brings_something(study))

    def _propose(self, study: Study, sequence: int) -> ActionResult | None:
        """Ask the sampler, or for its answer; None while it computes. The same records give the same proposal."""
        key = (study.id, sequence)
        computing = self._proposals.get(key)
        if computing is None:
            propose = self._outside.proposers(study.plan).propose
            computing = self._proposals[key] = self._pools.proposals.submit(propose, study)
        if not computing.done():
            return None
        del self._proposals[key]
        answer = computing.result()
        proposal = answer if isinstance(answer, Proposal) else None
        return ActionResult(self._clock.now(), True, answer.reason, proposal=proposal)

    def _load(self, study: Study, action: Load | Restore, sequence: int) -> ActionResult | None:
        key = (study.id, sequence)
        running = self._loads.get(key)
        if running is None:
            config = _complete(study, action)
            limit = study.plan.pace.load_limit
            running = self._pools.loads.submit(
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

    def renew(self) -> None:
        """Renew the leases that need it, all in one go, so that no tick has to. Raises Unavailable."""
        self._tenure.renew()

    def hand_over(self, study_id: str) -> bool:
        """Give a study to whoever wants it, if nothing is under way that the next one would have to begin again."""
        known = self._seen.get(study_id)
        if known is None or known.token == UNREAD or not at_rest(known.study):
            return False
        self._tenure.release(known.study.plan.target.name)
        self.forget(study_id)
        return True

    def leave(self) -> None:
        """Give production its traffic, then every lease back, so that nobody is exposed to what nobody watches.

        The next worker need not wait for the leases; it finds the window void and measures again. Raises Unavailable.
        """
        for study in [known.study for known in list(self._seen.values())]:
            if self._tenure.drives(study.plan.target.name):
                done = self.retreat(study.id)
                log.info("retreated", extra={"study": study.id, "reason": done})
        self._tenure.release_all()

    @property
    def leases_held(self) -> int:
        """How many targets this process drives, as far as it knows."""
        return self._tenure.count

    def lost(self, target: str) -> None:
        """Drop the lease on a target that turned out to be somebody else's."""
        self._tenure.lost(target)

    def _ended(self, study: Study) -> Tick:
        self._tenure.release(study.plan.target.name)
        self.forget(study.id)
        return Tick(study.reason, timedelta(0), ended=True)

    def _world(self, study: Study) -> World:
        if study.id not in self._doors:
            self._doors[study.id] = self._outside.worlds(study.plan.target)
        return self._doors[study.id]


def at_rest(study: Study) -> bool:
    """Say whether nothing is under way: no action is pending and no trial is being carried through."""
    return study.pending is None and (study.trial is None or study.trial.state is TrialState.JUDGED)


def _read_config(world: World, replica: str) -> ModelConfig:
    if not world.serving.is_ready(replica):
        raise Unavailable(f"triton {replica}", "the server or the model is not ready")
    return world.serving.model_config(replica)


def _provenances(world: World, replicas: Iterable[str]) -> dict[str, Provenance]:
    """What each replica runs; one that does not tell is left out, and is no fault."""
    found = {}
    for name in replicas:
        try:
            found[name] = world.serving.provenance(name)
        except AutotunerError as error:
            log.debug("provenance_unread", extra={"replica": name, "reason": str(error)})
    return found


def _keeper(canary: Canary) -> dict[str, str]:
    """Who owns what production starts with, as a fault; nothing when nobody does.

    What cannot be read is nothing too: whoever writes there looks again, and refuses.
    """
    try:
        keeper = canary.keeper()
    except AutotunerError as error:
        log.debug("owner_unread", extra={"reason": str(error)})
        return {}
    return {CONFIGURATION: keeper} if keeper else {}


def _objection(canary: Canary) -> dict[str, str]:
    """Why production is not what the study began with, as a fault; nothing while it is, or cannot be read."""
    try:
        objection = canary.objection()
    except Unavailable as error:
        log.debug("workload_unread", extra={"reason": str(error)})
        return {}
    except AutotunerError as error:
        objection = str(error)
    return {WORKLOAD: objection} if objection else {}


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

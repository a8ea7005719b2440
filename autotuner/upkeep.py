"""Promotions that live in servers' memory are put on again after a pod has started anew, until they are taken back.

Not a study: nothing is measured, and what was judged once is only repeated. It is recorded before it is done, and never
done while a study of the target is under way, somebody else drives it, or production may not be changed.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from autotuner.catalogue import Catalogue, every
from autotuner.domain.access import Said
from autotuner.domain.configuration import ModelConfig
from autotuner.domain.study import Study
from autotuner.domain.target import Target
from autotuner.domain.upkeep import in_memory, to_put_on
from autotuner.errors import AutotunerError, Unavailable
from autotuner.ports import Clock, Leases, Store, World

log = logging.getLogger(__name__)

SLACK = timedelta(seconds=15)
"""How much longer than a load may take a target is kept from everybody else."""


@dataclass
class Upkeep:
    """Looks after all promotions of this kind. holder: under which name; ticks of the same process have another one."""

    store: Store
    catalogue: Catalogue
    leases: Leases
    clock: Clock
    worlds: Callable[[Target], World]
    holder: str
    _busy: threading.Lock = field(default_factory=threading.Lock)

    def look(self) -> tuple[str, ...]:
        """Look once; return a sentence for each replica that was given its configuration again."""
        if not self._busy.acquire(blocking=False):
            return ()
        try:
            return tuple(sentence for each in self._standing() for sentence in self._kept(*each))
        except Unavailable as error:
            log.warning("upkeep_put_off", extra={"reason": str(error)})
            return ()
        finally:
            self._busy.release()

    def _standing(self) -> Iterator[tuple[Target, Study]]:
        """The promotion that stands of each target whose pods start without it, where no study is under way."""
        busy = {name for _, name in self.store.unfinished()}
        for each in every(lambda window: self.catalogue.targets(window, retired=False)):
            target = each.target
            promotion = self._newest(target) if in_memory(target) and target.name not in busy else None
            if promotion is not None and promotion.plan.target.workload == target.workload:
                yield target, promotion

    def _newest(self, target: Target) -> Study | None:
        lines = every(lambda window: self.catalogue.ledger(target.name, window))
        standing = (line.study_id for line in lines if line.rolled_back_by is None)
        return next((self.store.study(study_id) for study_id in standing), None)

    def _kept(self, target: Target, promotion: Study) -> list[str]:
        name, now, done = target.name, self.clock.now(), list[str]()
        try:
            if self.store.standing(now).clearance(name, now).promotion:
                return []
            world = self.worlds(target)
            for replica in to_put_on(promotion, *_as_it_is(world, target), now):
                if self._put_on(target, promotion, world, replica):
                    done.append(f"{replica} of {name} started anew and was given what was promoted")
        except Unavailable as error:
            log.warning("upkeep_put_off", extra={"target": name, "reason": str(error)})
        except AutotunerError as error:
            log.warning("upkeep_failed", extra={"target": name, "reason": str(error)})
        for sentence in done:
            log.info("promotion_kept_up", extra={"target": name, "reason": sentence})
        return done

    def _put_on(self, target: Target, promotion: Study, world: World, replica: str) -> bool:
        """Give one replica its configuration again; False while somebody else drives the target, or has driven it."""
        limit = promotion.plan.pace.load_limit
        grant = self.leases.acquire(target.name, self.holder, limit + SLACK)
        if grant is None:
            return False
        try:
            now = self.clock.now()
            config = to_put_on(promotion, *_as_it_is(world, target), now).get(replica)
            if config is None or promotion.id not in {study.id for _, study in self._standing()}:
                return False
            why = f"{replica} started anew, and the promotion lives in its memory alone"
            self.store.kept_up(promotion.id, replica, Said(self.holder, why, now))
            world.serving.load(replica, config, limit)
        finally:
            self.leases.release(grant)
        return True


def _as_it_is(world: World, target: Target) -> tuple[dict[str, ModelConfig], Mapping[str, datetime]]:
    started: Mapping[str, datetime] = world.restarts.started() if world.restarts is not None else {}
    served = {name: world.serving.model_config(name) for name in target.stable_names if name in started}
    return served, started

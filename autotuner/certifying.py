"""Holds production of scheduled targets against their certificates, one target at a time, and says what it found.

Production is read and never touched. What is found lives in the leading scheduler's memory: it makes metrics, alerts
and the reason of the next night, and decides nothing else. After a restart the day begins anew, what production runs
is known at the first look.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import islice

from autotuner.domain.calendar import Schedule
from autotuner.domain.certificate import contradicted, unlike
from autotuner.domain.configuration import fingerprint
from autotuner.domain.coverage import UNCERTIFIED, Coverage, Covered, Day, best_of, covered, load_between
from autotuner.domain.measurement import Sample
from autotuner.domain.provenance import UNKNOWN, Provenance
from autotuner.domain.study import Phase
from autotuner.domain.target import Target
from autotuner.errors import AutotunerError
from autotuner.ports import World
from autotuner.promotions import Desk, Proof, proofs_of

log = logging.getLogger(__name__)

EVERY = timedelta(minutes=5)
"""How often a target is looked at; its load is the mean of what came in between."""

MOST_PROOFS = 3
"""So many certificates of a target are held against production, the newest ones."""


@dataclass(frozen=True)
class Production:
    """What stable replicas serve and run now, by name, as far as they told. sample: the counters of that moment."""

    fingerprints: Mapping[str, str]
    provenances: Mapping[str, Provenance]
    sample: Sample | None
    fault: str = ""


@dataclass
class _Target:
    """What is remembered of one target."""

    target: Target
    day: Day
    due_at: datetime
    world: World | None = None
    sample: Sample | None = None
    found: Covered = UNCERTIFIED


@dataclass
class CertificateWatch:
    """Looks at targets that have a schedule. shown: told what was found; kept: told which targets there are."""

    desk: Desk
    shown: Callable[[str, Covered, Day], None] = lambda *_: None
    kept: Callable[[frozenset[str]], None] = lambda _: None
    _known: dict[str, _Target] = field(default_factory=dict)

    def begin(self) -> None:
        """Forget everything: another one has looked meanwhile, or will."""
        self._known.clear()
        self.kept(frozenset())

    def why_another(self, target: str) -> str:
        """Return why the next night is to certify a target's production anew; empty when nothing is known of it."""
        known = self._known.get(target)
        return known.found.reason if known is not None and known.found.wants_another else ""

    def look(self, schedules: Iterable[Schedule]) -> None:
        """Look at the one target that has waited longest, if one is due. Raises Unavailable without the database."""
        now = self.desk.clock.now()
        names = frozenset(schedule.target for schedule in schedules)
        for gone in self._known.keys() - names:
            del self._known[gone]
        self.kept(names)
        new = next((name for name in sorted(names) if name not in self._known), None)
        due = min(self._known, key=lambda name: self._known[name].due_at, default=None)
        if new is not None:
            self._look_at(new, now)
        elif due is not None and self._known[due].due_at <= now:
            self._look_at(due, now)

    def _look_at(self, name: str, now: datetime) -> None:
        target = self.desk.registry.registration(name).target
        known = self._known.get(name)
        if known is None or known.target != target:
            known = self._known[name] = _Target(target, Day(now), now)
        known.due_at = now + EVERY
        busy = {each.target for each in self.desk.store.errands() if each.phase is not Phase.APPROVAL}
        if name in busy:
            # A study moves traffic and loads configurations: nothing here is production's own.
            known.sample = None
            return
        serves = self._production(known)
        self._take(known, serves.sample, now)
        before = known.found.state
        known.found = self._held(name, known, serves, now)
        if known.found.state is not before:
            log.info(
                "certificate_state",
                extra={"target": name, "state": known.found.state.value, "reason": known.found.reason},
            )
        self.shown(name, known.found, known.day)

    def _production(self, known: _Target) -> Production:
        """Read what the stable replicas serve; those after one that does not answer are not waited for."""
        found: dict[str, str] = {}
        runs: dict[str, Provenance] = {}
        fault = ""
        try:
            if known.world is None:
                known.world = self.desk.worlds(known.target)
            for name in known.target.stable_names:
                found[name] = fingerprint(known.world.serving.model_config(name))
                runs[name] = known.world.serving.provenance(name)
        except AutotunerError as error:
            fault = str(error)
        sample = known.world.metrics.sample() if known.world else None
        for name, counted in (sample.servers if sample else {}).items():
            if name in found:
                runs[name] = replace(runs.get(name, UNKNOWN), model_versions=counted.model_versions)
        return Production(found, runs, sample, fault)

    def _take(self, known: _Target, sample: Sample | None, now: datetime) -> None:
        """Take in the load since the last look."""
        first, known.sample = known.sample, sample
        load = load_between(known.target, first, sample) if first and sample else None
        if load is not None:
            known.day = known.day.with_load(now, load)

    def _held(self, name: str, known: _Target, serves: Production, now: datetime) -> Covered:
        proofs = list(islice(proofs_of(self.desk, name), MOST_PROOFS))
        if proofs and not serves.fingerprints:
            return Covered(Coverage.UNREAD, serves.fault, proofs[0].certificate.study_id)
        return best_of(_held_against(proof, serves, known.day, now) for proof in proofs)


def _held_against(proof: Proof, serves: Production, day: Day, now: datetime) -> Covered:
    given = proof.certificate
    why = proof.lapsed or unlike(given, serves.fingerprints) or contradicted(given, serves.provenances)
    return covered(given.study_id, given.band, why, day, now, unread=serves.fault)

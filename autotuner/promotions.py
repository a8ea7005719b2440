"""Use cases of promotions that were made: take one back, say what it rests on, and what all of them were worth."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from autotuner.catalogue import Catalogue, LedgerLine, Span, StudyFilter, Window, every
from autotuner.domain.certificate import Certificate, Found, certificate, contradicted, lapsed, shows
from autotuner.domain.configuration import fingerprint
from autotuner.domain.observation import Observation
from autotuner.domain.provenance import Provenance
from autotuner.domain.reversal import foreign_to, reversal_of
from autotuner.domain.study import Outcome, Phase, Study, Wish
from autotuner.domain.target import Target
from autotuner.errors import AutotunerError, Conflict, InvalidInput, NotFound, Refused
from autotuner.operations import ask
from autotuner.ports import Clock, Registry, Store, World
from autotuner.telemetry.traces import course_of_study, operation, span

MOST_KEPT = 5
"""So many of the newest studies that kept an incumbent are looked at."""

UNDER_WAY = (Phase.PROMOTION, Phase.WATCH)
"""Phases in which a study has put its winner into production and has not ended."""


MOST_UNREAD = 5
"""So many studies are asked at most what production ran."""


@dataclass(frozen=True)
class Desk:
    """What these use cases need."""

    store: Store
    registry: Registry
    catalogue: Catalogue
    clock: Clock
    worlds: Callable[[Target], World]


@dataclass(frozen=True)
class Rollback:
    """The study that takes a promotion back. begun: whether this request began it."""

    study_id: str
    begun: bool


@dataclass(frozen=True)
class Proof:
    """A certificate, and why it no longer holds as far as the records tell; empty while it does."""

    certificate: Certificate
    lapsed: str


@operation
def roll_back(desk: Desk, study_id: str, actor: str, reason: str) -> Rollback:
    """Have a promotion taken back: production is to be as it was before it, one replica at a time.

    While the promoting study has not ended, it is cancelled, and restores. After that a study of its own begins, which
    tries nothing; asking again gives the same one. Raises InvalidInput without a reason; Refused when nothing was
    promoted, production is no longer on it, or a newer promotion stands; Conflict while another study of the target has
    not ended.
    """
    if not reason.strip():
        raise InvalidInput("reason", reason, "a sentence that says why production goes back")
    promotion = desk.store.study(study_id)
    if promotion.phase in UNDER_WAY:
        begun = desk.store.wish(promotion.id) is not Wish.CANCEL
        if begun:
            ask(desk.store, desk.clock, promotion.id, Wish.CANCEL, actor, reason)
        return Rollback(promotion.id, begun)
    target = desk.registry.registration(promotion.plan.target.name).target
    wanted = reversal_of(promotion, target, desk.clock.now(), actor, reason)
    known, number = _attempts(desk.store, promotion.id)
    if known is not None:
        return Rollback(known.id, begun=False)
    _require_newest(desk.catalogue, promotion)
    _require_promoted(desk, wanted)
    return _begun(desk, replace(wanted, id=attempt_id(promotion.id, number)))


def attempt_id(promotion_id: str, number: int) -> str:
    """Return the id of an attempt to take a promotion back; equal requests name the same study."""
    return f"{promotion_id}-rollback-{number}"


def _attempts(store: Store, promotion_id: str) -> tuple[Study | None, int]:
    """Return the attempt that is under way or has succeeded, if there is one, and the number of the next."""
    number = 1
    while True:
        try:
            found = store.study(attempt_id(promotion_id, number))
        except NotFound:
            return None, number
        if found.phase is not Phase.ENDED or found.outcome is Outcome.ROLLED_BACK:
            return found, number
        number += 1


def _begun(desk: Desk, study: Study) -> Rollback:
    try:
        with span("start_rollback", study=study.id) as open_span:
            open_span.leads_to(course_of_study(study.id))
            desk.store.create_study(study)
    except Conflict:
        try:
            return Rollback(desk.store.study(study.id).id, begun=False)
        except NotFound:
            pass
        raise
    return Rollback(study.id, begun=True)


def _require_newest(catalogue: Catalogue, promotion: Study) -> None:
    newer = followed_by(catalogue, promotion)
    if newer is not None:
        raise Refused(
            f"study {newer} has promoted another configuration since: roll that one back first, or leave it"
        )


def followed_by(catalogue: Catalogue, promotion: Study, since: datetime | None = None) -> str | None:
    """Return the newest study that promoted something after `promotion` and was not rolled back; None without one.

    since: from when on, where it stands in no ledger: an incumbent was kept, or a winner went through Git.
    """
    for line in _newest_first(catalogue, promotion.plan.target.name):
        if line.study_id == promotion.id or (since is not None and line.promoted_at <= since):
            return None
        if line.rolled_back_by is None:
            return line.study_id
    return None


def _shown_by(desk: Desk, proposed: Study) -> Study | None:
    """The first later study of the target that began with what was proposed; None when there is none yet."""
    if proposed.proposed_to is None:
        return None
    since = Span(since=proposed.created_at)
    wanted = StudyFilter(target=proposed.plan.target.name, created=since)
    lines = every(lambda window: desk.catalogue.studies(wanted, window))
    found = [line.id for line in lines if line.id != proposed.id]
    studies = (desk.store.study(each) for each in reversed(found))
    return next((study for study in studies if shows(study, proposed)), None)


def _newest_first(catalogue: Catalogue, target: str) -> Iterator[LedgerLine]:
    return every(lambda window: catalogue.ledger(target, window))


def _require_promoted(desk: Desk, wanted: Study) -> None:
    """Raise Refused when a stable replica that answers serves something else. The study's own tick looks again."""
    reverses = wanted.plan.reverses
    assert reverses is not None
    world = desk.worlds(wanted.plan.target)
    served: dict[str, str] = {}
    faults: dict[str, str] = {}
    for name in wanted.plan.target.stable_names:
        try:
            served[name] = fingerprint(world.serving.model_config(name))
        except AutotunerError as error:
            faults[name] = str(error)
    seen = Observation(desk.clock.now(), fingerprints=served, faults=faults)
    foreign = foreign_to(replace(wanted, incumbent=reverses.before), seen)
    if foreign:
        raise Refused(f"not rolled back: {foreign}")


@operation
def proof_of(desk: Desk, study_id: str) -> Proof:
    """Return the certificate that a study gave, and whether it still holds. Raises NotFound, Refused.

    Also of what was proposed to whoever owns production, once a later study has found it there.
    """
    promotion = desk.store.study(study_id)
    given = certificate(promotion, _shown_by(desk, promotion))
    now = desk.registry.registration(given.target)
    back, _ = _attempts(desk.store, promotion.id)
    done = back.id if back is not None and back.outcome is Outcome.ROLLED_BACK else None
    if promotion.outcome is Outcome.KEPT:
        done = _reversal_since(desk.catalogue, given)
    since = given.given_at if promotion.outcome is Outcome.KEPT else None
    followed = followed_by(desk.catalogue, promotion, since)
    return Proof(given, lapsed(given, now.slo, now.target, done, followed, _found_since(desk, given)))


def certified(desk: Desk, target: str, looked_at: Mapping[str, Provenance]) -> Proof | None:
    """Return the newest certificate against what replicas run now; None where none stands.

    looked_at: what was just read, by replica.
    """
    proof = next(proofs_of(desk, target), None)
    if proof is None or proof.lapsed:
        return proof
    return replace(proof, lapsed=contradicted(proof.certificate, looked_at))


def _found_since(desk: Desk, given: Certificate) -> Found | None:
    """Return what the newest study that has read production since found there; None without one.

    A study that was refused before it could read anything says nothing; after so many of them nobody is asked further.
    """
    later = StudyFilter(given.target, created=Span(since=given.given_at))
    for summary in desk.catalogue.studies(later, Window(MOST_UNREAD)).items:
        study = desk.store.study(summary.id)
        if study.incumbent is not None and study.plan.reverses is None:
            return Found(study.id, study.incumbent.provenance)
    return None


def _reversal_since(catalogue: Catalogue, given: Certificate) -> str | None:
    """Return the newest study that took a promotion back after a certificate was given; None without one."""
    later = StudyFilter(given.target, outcome=Outcome.ROLLED_BACK, created=Span(since=given.given_at))
    return next((each.id for each in catalogue.studies(later, Window(1)).items), None)


def proofs_of(desk: Desk, target: str) -> Iterator[Proof]:
    """Yield what was certified of a target, newest first: by promotions that stand, and where an incumbent was kept."""
    lines = _newest_first(desk.catalogue, target)
    promoted = ((line.promoted_at, line.study_id) for line in lines if line.rolled_back_by is None)
    wanted = StudyFilter(target, outcome=Outcome.KEPT)
    newest = desk.catalogue.studies(wanted, Window(MOST_KEPT)).items
    kept = ((each.ended_at, each.id) for each in newest if each.ended_at is not None)
    for _, study_id in heapq.merge(promoted, kept, key=lambda each: each[0], reverse=True):
        try:
            yield proof_of(desk, study_id)
        except Refused:
            continue  # kept and accepted at no level, or proposed and not found in production: nothing is certified

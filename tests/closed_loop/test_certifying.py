"""Production is held against its certificates by whoever leads, and the next night certifies what none covers."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from autotuner.adapters.memory_store import MemoryLeadership, MemoryNights, MemoryOutbox, MemoryRegistry
from autotuner.certifying import EVERY, CertificateWatch
from autotuner.courier import Courier
from autotuner.domain.access import Said
from autotuner.domain.calendar import Schedule
from autotuner.domain.coverage import Coverage, Covered, Day
from autotuner.domain.study import Outcome, TrialKind
from autotuner.errors import Refused
from autotuner.nightly import NightWatch
from autotuner.promotions import proof_of, proofs_of
from autotuner.scheduler import Scheduler, firings
from tests.builders import a_configuration
from tests.closed_loop.endings import a_loop
from tests.closed_loop.loop import Loop
from tests.closed_loop.test_rollback import asked_back, desk, promoted
from tests.studies import a_step

RATE, HIGHEST = 20.0, 50.0
"""Requests per second of all of production, two replicas; and the upper end of a band that covers them."""

UNTIL_DUE = timedelta(minutes=16)


def certified(lowest: float = 1.0, highest: float = HIGHEST) -> Loop:
    """A loop whose study has promoted `BETTER` for a band of load."""
    loop = promoted()
    row = loop.store.memory.studies[loop.study_id]
    (winner,) = row.study.trials
    steps = tuple(
        a_step(n, rate_per_second=rate, model_versions=("1",)) for n, rate in enumerate((lowest, highest))
    )
    winner = replace(winner, kind=TrialKind.CONFIRMATION, steps=steps)
    row.study = replace(row.study, trials=(winner,), reference_rate_per_second=300.0)
    loop.target.faults.traffic(RATE)
    return loop


class Scene:
    """A scheduler that leads, over one loop's target and records."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.found: list[tuple[Covered, Day]] = []
        self.name = loop.plan.target.name
        self.nights = MemoryNights(loop.store)
        self.certificates = CertificateWatch(
            desk(loop), lambda _, found, day: self.found.append((found, day))
        )
        registry = MemoryRegistry(loop.store.memory)
        watch = NightWatch(
            loop.store,
            self.nights,
            registry,
            loop.clock,
            firings,
            why_another=self.certificates.why_another,
        )
        courier = Courier(MemoryOutbox(loop.store.memory), (), loop.clock)
        lead = MemoryLeadership(loop.store.memory)
        self.scheduler = Scheduler(lead, watch, courier, loop.clock, certificates=self.certificates)
        now = loop.clock.now()
        due = now + UNTIL_DUE
        self.nights.set_schedule(
            Schedule(self.name, f"{due.minute} {due.hour} * * *"), Said("anna", "agreed", now)
        )

    def look(self, times: int = 1) -> Covered:
        """Let the next looks come; returns what the last one found."""
        for _ in range(times):
            self.scheduler.turn()
            self.loop.clock.advance(EVERY + timedelta(seconds=1))
        return self.found[-1][0]


def test_what_was_promoted_covers_production_until_it_carries_more() -> None:
    scene = Scene(certified())
    assert scene.look(3).state is Coverage.COVERS
    carried = scene.found[-1][1].busiest_per_second
    assert carried is not None
    assert carried == pytest.approx(RATE / 2, rel=0.2)

    scene = Scene(certified(highest=carried * 0.9))
    found = scene.look(2)
    assert found.state is Coverage.OUTSIDE
    assert found.reason.startswith("a replica carried ")
    assert scene.certificates.why_another(scene.name) == found.reason


def test_another_configuration_in_production_is_not_covered() -> None:
    scene = Scene(certified())
    scene.loop.target.faults.foreign_configuration("stable-1", a_configuration(instance_count=3))
    found = scene.look()
    assert (found.state, found.reason) == (
        Coverage.CHANGED,
        "stable-1 serves another configuration than was certified",
    )


def test_another_version_of_the_model_is_not_covered_and_the_next_night_says_so() -> None:
    scene = Scene(certified())
    first = scene.look()
    assert (first.state, first.reason) == (Coverage.UNREAD, "its load is not known yet")
    assert scene.look().state is Coverage.COVERS

    scene.loop.target.faults.another_version("stable-0", "2")
    found = scene.look()
    assert found.state is Coverage.CHANGED
    assert "stable-0 runs version 2 of the model instead of 1" in found.reason
    assert scene.certificates.why_another(scene.name) == found.reason


def test_one_server_that_does_not_answer_is_enough_to_prove_nothing() -> None:
    scene = Scene(certified())
    assert scene.look(2).state is Coverage.COVERS
    scene.loop.target.faults.crash("stable-1")
    found = scene.look()
    assert (found.state, found.wants_another) == (Coverage.UNREAD, False)
    assert "stable-1" in found.reason


def test_a_server_that_does_not_answer_proves_nothing() -> None:
    scene = Scene(certified())
    for name in scene.loop.plan.target.stable_names:
        scene.loop.target.faults.crash(name)
    found = scene.look()
    assert (found.state, found.wants_another) == (Coverage.UNREAD, False)
    assert "stable-0" in found.reason
    assert scene.certificates.why_another(scene.name) == ""


def test_nothing_is_taken_for_productions_own_while_a_study_moves_its_traffic() -> None:
    loop = a_loop()
    scene = Scene(loop)
    scene.scheduler.turn()
    assert scene.found == []


def test_the_next_night_certifies_anew_and_says_why() -> None:
    scene = Scene(certified(highest=5.0))
    assert scene.look(3).state is Coverage.OUTSIDE
    scene.loop.clock.advance(timedelta(minutes=2))
    scene.scheduler.turn()

    (study_id,) = [study_id for study_id, _ in scene.loop.store.unfinished()]
    study = scene.loop.store.study(study_id)
    assert study.actor == "scheduler"
    assert study.reason.startswith("certifies anew: a replica carried ")
    assert study.reason in {line.reason.partition("; ")[2] for line in scene.loop.store.audit()}


def test_a_night_whose_certificate_covers_has_no_other_reason() -> None:
    scene = Scene(certified())
    scene.look(3)
    scene.loop.clock.advance(timedelta(minutes=2))
    scene.scheduler.turn()
    (study_id,) = [study_id for study_id, _ in scene.loop.store.unfinished()]
    assert scene.loop.store.study(study_id).reason == ""


def test_a_study_that_keeps_the_incumbent_certifies_it_as_it_was_measured() -> None:
    loop = a_loop(a_configuration())
    study = loop.run()
    assert study.outcome is Outcome.KEPT, study.reason
    proof = proof_of(desk(loop), study.id)
    (measured,) = [trial for trial in study.trials if trial.kind is TrialKind.BASELINE]
    rates = [step.rate_per_second for step in measured.accepted]
    assert (proof.certificate.band.lowest_per_second, proof.certificate.band.highest_per_second) == (
        min(rates),
        max(rates),
    )
    assert proof.lapsed == ""
    assert Scene(loop).look(2).state in (Coverage.COVERS, Coverage.OUTSIDE)


def test_production_that_went_back_is_held_against_what_was_certified_before() -> None:
    loop = certified()
    first = loop.study_id
    asked_back(loop)
    loop.run()
    assert list(proofs_of(desk(loop), loop.plan.target.name)) == []
    with pytest.raises(Refused, match="neither promoted a winner nor kept an incumbent"):
        proof_of(desk(loop), loop.study_id)
    assert "was rolled back" in proof_of(desk(loop), first).lapsed
    assert Scene(loop).look().state is Coverage.NONE


def test_whoever_does_not_lead_shows_nothing() -> None:
    scene = Scene(certified())
    kept: list[frozenset[str]] = []
    scene.certificates.kept = kept.append
    scene.look()
    assert kept[-1] == {scene.name}
    scene.scheduler.leave()
    assert kept[-1] == frozenset()
    assert scene.certificates.why_another(scene.name) == ""

"""Winners that go through Git: proposed to whoever owns production, and certified once it shows them."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from autotuner.adapters.memory_store import MemoryCatalogue, MemoryRegistry
from autotuner.domain.configuration import configured_fingerprint, fingerprint, with_configuration
from autotuner.domain.notices import NoticeKind, notices_of
from autotuner.domain.pbtxt import config_pbtxt
from autotuner.domain.study import Load, Outcome, Phase, TrialKind
from autotuner.errors import Refused
from autotuner.operations import replay, start_study
from autotuner.promotions import Desk, proof_of
from tests.closed_loop.loop import a_brisk_plan, proposers
from tests.closed_loop.pooled import a_pooled_target
from tests.closed_loop.test_pooled import PooledLoop, as_found

OWNER = "ConfigMap vision-config is owned by Argo CD (argocd.argoproj.io/instance=vision)"


def desk(loop: PooledLoop) -> Desk:
    memory = loop.store.memory
    return Desk(
        loop.store, MemoryRegistry(memory), MemoryCatalogue(memory), loop.clock, lambda _: loop.world()
    )


@pytest.fixture(scope="module")
def proposed() -> PooledLoop:
    loop = PooledLoop(a_brisk_plan(target=a_pooled_target()), seed=2)
    loop.pooled.kept_by = OWNER
    loop.run()
    return loop


def test_where_git_owns_the_configuration_production_is_never_touched(proposed: PooledLoop) -> None:
    study = proposed.study
    assert (study.outcome, study.proposed_to) == (Outcome.KEPT, OWNER)
    assert study.reason == f"the winner is proposed, not promoted: {OWNER}"
    assert study.winner is not None
    assert as_found(proposed)
    assert {trial.kind for trial in study.trials}.isdisjoint({TrialKind.STAGE, TrialKind.WATCH})
    loads = [entry.action for entry in proposed.store.journal(study.id) if entry.action]
    assert {each["replica"] for each in loads if each["type"] == Load.__name__} == {"canary"}


def test_a_proposal_is_decided_again_from_its_records(proposed: PooledLoop) -> None:
    assert replay(proposed.store, proposed.study_id, proposers).differences == ()


def test_whoever_owns_it_is_told_what_the_file_is_to_be(proposed: PooledLoop) -> None:
    study = proposed.study
    assert study.incumbent is not None
    assert study.winner is not None
    before = proposed.store.initial(study.id)
    (notice,) = [each for each in notices_of(before, study, proposed.clock.now()) if each.kind == "proposed"]
    assert notice.kind is NoticeKind.PROPOSED
    text = study.incumbent.configs["stable-0"]
    winner = study.trials[study.winner].configuration
    assert notice.details["owner"] == OWNER
    assert notice.details["config_map"] == {
        "namespace": "prod",
        "name": "vision-config",
        "key": "config.pbtxt",
    }
    assert notice.details["config_pbtxt"] == config_pbtxt(with_configuration(json.loads(text), winner))
    assert notice.details["fingerprint"] == configured_fingerprint(text, winner)
    assert notice.details["patch"].startswith("--- a/config.pbtxt\n+++ b/config.pbtxt\n")
    told = [each.notice.kind for each in proposed.store.memory.messages.values()]
    assert told == [NoticeKind.PROPOSED]


def test_its_certificate_waits_until_a_later_study_finds_it_in_production(proposed: PooledLoop) -> None:
    study = proposed.study
    with pytest.raises(Refused, match="no later study has found it in production yet"):
        proof_of(desk(proposed), study.id)

    assert study.winner is not None
    winner = study.trials[study.winner].configuration
    for name in study.plan.target.stable_names:
        proposed.target.faults.foreign_configuration(name, winner)
    proposed.clock.advance(timedelta(minutes=1))
    first = study.id
    later = start_study(proposed.store, proposed.clock, proposed.plan, "tester")
    proposed.study_id = later.id
    proposed.run(until=lambda each: each.phase is Phase.BASELINE)

    proof = proof_of(desk(proposed), first)
    assert proof.lapsed == ""
    assert proof.certificate.study_id == first
    assert proof.certificate.given_at == later.created_at
    served = proposed.target.serving.model_config("stable-0")
    assert proof.certificate.fingerprint == fingerprint(served)

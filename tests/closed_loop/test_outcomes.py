"""How whole studies end on simulated targets, and that they can be decided again from their records."""

from __future__ import annotations

import dataclasses

import pytest

from autotuner.adapters.simulated import already_best, flat, no_help, small_vision, thin_traffic
from autotuner.domain.configuration import read_configuration
from autotuner.domain.judgement import Verdict
from autotuner.domain.study import Outcome, Study, TrialKind
from autotuner.operations import replay
from tests.closed_loop.loop import Loop, QuickStore, a_brisk_plan, a_short_plan, proposers


def served(loop: Loop, replica: str) -> object:
    return read_configuration(loop.target.serving.model_config(replica))


def ended_as_found(loop: Loop) -> bool:
    study = loop.study
    assert study.incumbent is not None
    names = [replica.name for replica in study.plan.target.replicas]
    return all(served(loop, name) == study.incumbent.configuration for name in names) and dict(
        loop.target.route.weights()
    ) == dict(study.incumbent.weights)


def replays_without_difference(loop: Loop) -> bool:
    again = replay(loop.store, loop.study_id, proposers)
    assert again.differences == ()
    return again.decisions > 10 and again.proposals >= 0


@pytest.fixture(scope="module")
def promoted() -> Loop:
    loop = Loop(profile=small_vision(), seed=2)
    loop.run()
    return loop


def test_a_better_configuration_is_promoted_everywhere(promoted: Loop) -> None:
    study = promoted.study
    assert study.outcome is Outcome.PROMOTED
    assert study.winner is not None
    winner = study.trials[study.winner].configuration
    assert [served(promoted, name) for name in ("stable-0", "stable-1", "canary")] == [winner] * 3
    assert study.incumbent is not None
    assert dict(promoted.target.route.weights()) == dict(study.incumbent.weights)


def test_a_promotion_rests_on_strict_evidence_on_fresh_data(promoted: Loop) -> None:
    study = promoted.study
    kinds = [trial.kind for trial in study.trials]
    confirmed = [t for t in study.trials if t.kind is TrialKind.CONFIRMATION][-1]
    control = [t for t in study.trials if t.kind is TrialKind.CONTROL][-1]
    stages = [t for t in study.trials if t.kind is TrialKind.STAGE]
    assert kinds.index(TrialKind.CONFIRMATION) < kinds.index(TrialKind.STAGE)
    assert confirmed.verdict is Verdict.ACCEPT
    assert control.verdict is Verdict.REJECT
    assert [t.replicas for t in stages] == [("stable-0",), ("stable-1",)]
    assert all(t.verdict is Verdict.ACCEPT for t in stages)
    assert study.trials[-1].kind is TrialKind.WATCH


def test_every_decision_of_a_study_is_decided_again_from_its_records(promoted: Loop) -> None:
    again = replay(promoted.store, promoted.study_id, proposers)
    assert again.differences == ()
    assert again.decisions > 100
    actions = [entry.action for entry in promoted.store.journal(promoted.study_id) if entry.action]
    asked = len([action for action in actions if action["type"] == "Propose"])
    assert again.proposals == asked >= 1


def test_a_forged_record_is_found_by_replay(promoted: Loop) -> None:
    class Forged:
        def __getattr__(self, name: str) -> object:
            return getattr(promoted.store, name)

        def journal(self, study_id: str, after: int = 0) -> list[object]:
            entries: list[object] = list(promoted.store.journal(study_id, after))
            entries[40] = dataclasses.replace(entries[40], reason="because I say so")  # type: ignore[type-var]
            return entries

    differences = replay(Forged(), promoted.study_id, proposers).differences  # type: ignore[arg-type]
    assert [d.field for d in differences] == ["reason"]


def test_the_harm_stays_within_the_budget(promoted: Loop) -> None:
    assert promoted.study.harm_requests <= promoted.plan.slo.harm_budget_requests


def test_no_configuration_can_help_ends_with_the_incumbent_and_the_reason() -> None:
    loop = Loop(profile=no_help(), seed=1)
    study = loop.run()
    assert study.outcome is Outcome.KEPT
    assert "no configuration can help" in study.reason
    assert ended_as_found(loop)
    assert replays_without_difference(loop)


def test_too_little_traffic_is_inconclusive_and_changes_nothing() -> None:
    loop = Loop(profile=thin_traffic(), seed=1)
    study = loop.run()
    assert study.outcome is Outcome.INCONCLUSIVE
    assert ended_as_found(loop)


@pytest.mark.parametrize("seed", range(3))
def test_noise_is_never_promoted(seed: int) -> None:
    loop = Loop(plan=a_brisk_plan(max_trials=3), profile=flat(), seed=seed, store=QuickStore())
    study = loop.run()
    assert study.outcome in (Outcome.KEPT, Outcome.INCONCLUSIVE)
    assert ended_as_found(loop)


def test_an_incumbent_that_is_already_best_is_kept() -> None:
    loop = Loop(plan=a_brisk_plan(max_trials=3), profile=already_best(), seed=3, store=QuickStore())
    study = loop.run()
    assert study.outcome is Outcome.KEPT
    assert ended_as_found(loop)


def test_the_canary_never_carries_more_than_the_budget_allows(promoted: Loop) -> None:
    share = promoted.plan.slo.max_canary_share
    total = promoted.plan.target.gateway.total_weight
    actions = [e.action for e in promoted.store.journal(promoted.study_id) if e.action]
    weights = [a["weights"] for a in actions if a["type"] == "SetWeights"]
    assert weights
    assert all(w["canary"] <= share * total for w in weights)
    assert all(sum(w.values()) == total for w in weights)


def _summary(study: Study) -> list[tuple[object, ...]]:
    return [(t.kind, t.configuration, t.verdict, len(t.steps)) for t in study.trials]


def test_the_same_seed_gives_the_same_study() -> None:
    plan = a_short_plan()
    first, second = Loop(plan=plan, seed=5), Loop(plan=plan, seed=5)
    assert _summary(first.run()) == _summary(second.run())

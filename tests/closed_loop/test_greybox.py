"""The grey-box sampler in the loop: near the best within a few trials, safe, and decided again anywhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import optuna
import pytest

from autotuner.adapters.optuna_proposer import OptunaProposer, seed_of
from autotuner.adapters.optuna_proposer.axes import Axes
from autotuner.adapters.optuna_proposer.evidence import drawn, history_of, problem_of
from autotuner.adapters.optuna_proposer.greybox import GreyBoxSampler
from autotuner.adapters.simulated import already_best, small_vision
from autotuner.batching.trials import Aim
from autotuner.domain.hindsight import RATE, predictions
from autotuner.domain.judgement import Verdict
from autotuner.domain.prediction import setting_of
from autotuner.domain.selection import baseline, capacity_per_second
from autotuner.domain.space import admissible, examine
from autotuner.domain.study import (
    GREYBOX,
    METHOD,
    Arrived,
    Outcome,
    Proposal,
    SearchOver,
    Step,
    Study,
    TrialKind,
)
from autotuner.domain.target import Objective
from autotuner.errors import InvalidInput, Refused
from autotuner.operations import replay
from autotuner.records import from_record, to_record
from tests.builders import changed
from tests.closed_loop.loop import Loop, QuickStore, a_brisk_plan, proposers
from tests.searches import a_search

TRIALS = 3
"""Candidates that must do."""


@dataclass
class Watched:
    """The shipped proposer, and all it was asked and answered."""

    asked: list[tuple[Study, Proposal | SearchOver]] = field(default_factory=list)

    def propose(self, study: Study) -> Proposal | SearchOver:
        answer = proposers(study.plan).propose(study)
        self.asked.append((study, answer))
        return answer


@pytest.fixture(scope="module")
def watched() -> Watched:
    return Watched()


@pytest.fixture(scope="module")
def tuned(watched: Watched) -> Loop:
    loop = Loop(plan=a_brisk_plan(max_trials=TRIALS), profile=small_vision(), seed=4, proposer=watched)
    loop.run()
    return loop


@pytest.fixture(scope="module")
def asked(tuned: Loop, watched: Watched) -> Study:
    """The study as it stood when its second candidate was asked for."""
    return watched.asked[1][0]


def test_greybox_is_the_default() -> None:
    assert a_brisk_plan().sampler == GREYBOX


def test_a_better_configuration_is_promoted_within_a_few_trials(tuned: Loop) -> None:
    study, start = tuned.study, baseline(tuned.study)
    assert study.outcome is Outcome.PROMOTED
    assert study.winner is not None
    assert start is not None
    won, before = (capacity_per_second(study, trial) for trial in (study.trials[study.winner], start))
    assert won is not None
    assert before is not None
    assert won >= 1.2 * before


def test_no_candidate_trespasses_at_production_s_load(tuned: Loop) -> None:
    candidates = [trial for trial in tuned.study.trials if trial.kind is TrialKind.CANDIDATE]
    assert candidates
    assert [trial.verdict for trial in candidates] == [Verdict.ACCEPT] * len(candidates)


def test_every_proposal_is_admissible_and_says_what_it_predicts(tuned: Loop, watched: Watched) -> None:
    proposals = [(study, answer) for study, answer in watched.asked if isinstance(answer, Proposal)]
    assert proposals
    for study, proposal in proposals:
        assert proposal.configuration in admissible(study)
        assert proposal.sampler == GREYBOX
        assert {"p99_ms", "p99_low_ms", "p99_high_ms", "violation_probability", RATE} <= set(
            proposal.predicted
        )
        assert "candidates remain" in proposal.reason


def test_each_prediction_stands_beside_what_was_observed(tuned: Loop) -> None:
    found = predictions(tuned.study)
    assert len(found) == len([t for t in tuned.study.trials if t.kind is TrialKind.CANDIDATE])
    for each in found:
        assert each.low_seconds < each.p99_seconds < each.high_seconds
        assert each.observed_seconds is not None


def test_every_proposal_is_computed_again_from_the_records(tuned: Loop) -> None:
    again = replay(tuned.store, tuned.study_id, proposers)
    assert again.differences == ()
    assert again.proposals >= 1


class Unasked:
    """A proposer that must not be asked."""

    def propose(self, study: Study) -> Proposal | SearchOver:
        raise AssertionError(f"asked for a proposal of {study.id}")


def test_proposals_of_another_version_of_the_method_are_taken_as_recorded() -> None:
    older = Loop(plan=a_brisk_plan(max_trials=1, method=METHOD - 1), profile=small_vision(), seed=4)
    older.run()

    again = replay(older.store, older.study_id, lambda _: Unasked())

    assert again.differences == ()
    assert (again.proposals, again.taken) == (0, 1)


PROGRAM = """
import json, sys
from autotuner.adapters.optuna_proposer import OptunaProposer
from autotuner.domain.study import Study
from autotuner.records import from_record, to_record
studies = json.load(open(sys.argv[1]))
print(json.dumps([to_record(OptunaProposer().propose(from_record(Study, each))) for each in studies]))
"""


@pytest.mark.parametrize("threads", ["1", "2"])
def test_other_processes_with_other_threads_propose_the_same(
    tuned: Loop, watched: Watched, tmp_path: Path, threads: str
) -> None:
    path = tmp_path / "studies.json"
    path.write_text(json.dumps([to_record(study) for study, _ in watched.asked]))
    names = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
    environment = {**os.environ, **dict.fromkeys(names, threads), "PYTHONHASHSEED": threads}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(path)],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )

    assert json.loads(done.stdout) == json.loads(
        json.dumps([to_record(answer) for _, answer in watched.asked])
    )


def test_why_the_search_ended_is_on_record() -> None:
    loop = Loop(plan=a_brisk_plan(max_trials=9), profile=already_best(), seed=3, store=QuickStore())
    study = loop.run(most_ticks=9000)
    answer = OptunaProposer().propose(study)

    assert study.outcome is Outcome.KEPT
    assert isinstance(answer, SearchOver)
    assert "trials of the plan" not in answer.reason
    assert study.reason.startswith(answer.reason)


# ---- the records in the model's words


def test_steps_keep_batches_and_arrivals(tuned: Loop) -> None:
    for trial in tuned.study.trials:
        for step in trial.steps:
            sent = sum(look.sent for look in step.arrived)
            seconds = sum(look.seconds for look in step.arrived)
            assert seconds == pytest.approx((step.ended_at - step.started_at).total_seconds())
            assert sent / len(trial.replicas) == pytest.approx(step.rate_per_second * seconds)
            assert bool(step.batches) == (len(trial.replicas) == 1)
            assert _inferences(step) == pytest.approx(sent, rel=0.15, abs=120) or not step.batches


def _inferences(step: Step) -> int:
    return sum(batch.size * batch.executions for batch in step.batches)


def test_only_what_may_be_tried_or_was_is_a_candidate_of_the_problem(asked: Study) -> None:
    examination = examine(asked)
    tried = {trial.configuration for trial in asked.trials}
    allowed = {setting_of(c) for c in {*examination.admissible, *tried}}

    problem = problem_of(asked, examination, 1)

    assert set(problem.candidates) == allowed
    assert len(problem.candidates) == len(set(problem.candidates))


def test_the_rates_begin_at_production_s_level(asked: Study) -> None:
    problem = problem_of(asked, examine(asked), 1)
    reference = asked.reference_rate_per_second
    assert reference is not None

    assert problem.rates[0] == pytest.approx(reference / 2)
    assert list(problem.rates) == sorted(problem.rates)
    assert problem.aim is Aim.CAPACITY
    assert len(problem.arrivals) == sum(look.sent for look in asked.trials[0].steps[-1].arrived)


def test_efficiency_is_asked_for_by_the_target_or_where_capacity_cannot_grow(asked: Study) -> None:
    lean = changed(
        asked, plan=changed(asked.plan, target=changed(asked.plan.target, objective=Objective.EFFICIENCY))
    )
    full = changed(
        asked, trials=(asked.trials[0], changed(asked.trials[1], limited_by="traffic"), *asked.trials[2:])
    )
    wished, left = (problem_of(study, examine(study), 1) for study in (lean, full))

    assert (wished.aim, left.aim) == (Aim.EFFICIENCY, Aim.EFFICIENCY)
    assert wished.rates == left.rates == problem_of(asked, examine(asked), 1).rates


def test_the_history_has_every_level_and_the_risk_that_was_accepted(asked: Study) -> None:
    first, second = history_of(asked)
    incumbent, candidate = (trial for trial in asked.trials if trial.kind is not TrialKind.PRODUCTION)

    assert first.risk == 0.0
    assert candidate.proposal is not None
    assert second.risk == candidate.proposal.predicted["violation_probability"]
    assert [level.accepted for level in first.levels] == [
        s.verdict is Verdict.ACCEPT for s in incumbent.steps
    ]
    for level, step in zip(second.levels, candidate.steps, strict=True):
        assert len(level.arrivals) == sum(look.sent for look in step.arrived)
        assert [(b.size, b.executions) for b in level.batches] == [
            (b.size, b.executions) for b in step.batches
        ]


def test_windows_that_were_void_say_nothing(asked: Study) -> None:
    trial = asked.trials[1]
    void = changed(trial.steps[0], judgement=changed(trial.steps[0].judgement, verdict=Verdict.VOID))
    spoilt = changed(asked, trials=(asked.trials[0], changed(trial, steps=(void, *trial.steps))))

    assert len(history_of(spoilt)[0].levels) == len(trial.steps)


def test_where_the_device_s_time_is_unknown_only_one_instance_tells_it(asked: Study) -> None:
    trial = asked.trials[1]
    blind = tuple(changed(step, use=changed(step.use, device_utilisation=None)) for step in trial.steps)
    several = changed(trial, configuration=changed(trial.configuration, instance_count=2), steps=blind)
    one, two = (
        history_of(changed(asked, trials=(asked.trials[0], each)))[0].levels[0]
        for each in (changed(trial, steps=blind), several)
    )

    assert one.busy_seconds_per_inference == trial.steps[0].use.compute_seconds_per_inference  # type: ignore[union-attr]
    assert two.busy_seconds_per_inference is None


def test_arrivals_lie_within_their_looks() -> None:
    looks = [Arrived(2.0, 30), Arrived(1.0, 0), Arrived(1.0, 50)]
    times = drawn(looks, np.random.default_rng(1))

    assert len(times) == 80
    assert np.all(np.diff(times) >= 0)
    assert np.histogram(times, bins=[0.0, 2.0, 3.0, 4.0])[0].tolist() == [30, 0, 50]
    assert len(drawn([], np.random.default_rng(1))) == 0


def test_the_records_survive_being_stored(asked: Study) -> None:
    stored: Study = from_record(Study, json.loads(json.dumps(to_record(asked))))

    assert stored == asked
    assert OptunaProposer().propose(stored) == OptunaProposer().propose(asked)


# ---- as one of Optuna's samplers


def test_without_measured_batches_the_search_ends_and_says_so() -> None:
    answer = OptunaProposer(GREYBOX).propose(a_search(sampler=GREYBOX))

    assert answer == SearchOver("no trial has measured batches yet: nothing can be predicted")


def test_the_sampler_refuses_where_nothing_is_advised_and_knows_no_other_parameter() -> None:
    study = a_search(sampler=GREYBOX)
    sampler = GreyBoxSampler(study, examine(study), seed_of(study))
    rebuilt = optuna.create_study(sampler=sampler)

    axes = Axes.of(examine(study).space).distributions()
    with pytest.raises(Refused, match="nothing can be predicted"):
        rebuilt.ask(axes)
    with pytest.raises(InvalidInput, match="delay, preferred, instances"):
        sampler.sample_independent(rebuilt, optuna.trial.create_trial(value=0.0), "other", axes["delay"])

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from autotuner.adapters.optuna_proposer import OptunaProposer, seed_of, value, violation
from autotuner.batching import advisor
from autotuner.batching.trials import Advice
from autotuner.domain.configuration import Configuration
from autotuner.domain.judgement import Verdict
from autotuner.domain.prediction import setting_of
from autotuner.domain.space import Exclusion, admissible, examine
from autotuner.domain.study import GREYBOX, Level, Proposal, SearchOver, Study
from autotuner.domain.target import Objective
from autotuner.errors import InvalidInput
from autotuner.records import from_record, to_record
from tests.builders import a_configuration, changed
from tests.searches import a_search, a_step, a_trial, a_use, measured, with_trial

SAMPLERS = ["tpe", "random"]
TRIALS = 30
EVERY_SAMPLER = [GREYBOX, "tpe", "random"]
WITH_TORCH = importlib.util.find_spec("torch") is not None


def _grown(sampler: str, trials: int, study: Study | None = None) -> Study:
    study, proposer = study or a_search(max_trials=trials), OptunaProposer(sampler)
    for _ in range(trials):
        proposal = proposer.propose(study)
        assert isinstance(proposal, Proposal)
        study = with_trial(study, proposal.configuration)
    return study


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_whole_search_never_repeats_and_never_leaves_the_admissible(sampler: str) -> None:
    study, proposer = a_search(max_trials=TRIALS), OptunaProposer(sampler)
    for _ in range(TRIALS):
        allowed = admissible(study)
        proposal = proposer.propose(study)
        assert isinstance(proposal, Proposal)
        assert proposal.configuration in allowed
        study = with_trial(study, proposal.configuration)

    assert len({trial.configuration for trial in study.trials}) == TRIALS + 1
    assert proposer.propose(study) == SearchOver(f"all {TRIALS} trials of the plan are done")


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_small_space_is_tried_to_the_last_candidate(sampler: str) -> None:
    study = _small_space(max_trials=50)
    study = _grown(sampler, len(admissible(study)), study)

    assert admissible(study) == ()
    over = OptunaProposer(sampler).propose(study)
    assert isinstance(over, SearchOver)
    assert over.reason.startswith("no candidate is left")


def _filtered(sampler: str) -> Study:
    """A study of whose candidates most are excluded: by memory, by the ceiling, and because they were tried."""
    study = a_search(sampler=sampler, max_trials=TRIALS)
    use = a_use(
        compute_seconds=0.048,
        compute_seconds_per_inference=0.02,
        memory_used_bytes=4e9,
        memory_total_bytes=16e9,
    )
    first = changed(study.trials[0], steps=(a_step(use=use),))
    return with_trial(changed(study, trials=(first,)), a_configuration(preferred_batch_size=()))


@pytest.mark.parametrize("sampler", EVERY_SAMPLER)
def test_the_same_filter_stands_in_front_of_every_sampler(sampler: str) -> None:
    study = _filtered(sampler)
    examination, proposer = examine(study), OptunaProposer(sampler)
    assert {Exclusion.TRIED, Exclusion.CEILING, Exclusion.MEMORY} <= set(examination.exclusions.counts)
    while isinstance(proposal := proposer.propose(study), Proposal):
        assert proposal.configuration in examine(study).admissible
        study = with_trial(study, proposal.configuration)
    assert proposal.reason


@pytest.mark.parametrize(
    "wanted", [a_configuration(instance_count=4), a_configuration(preferred_batch_size=())]
)
def test_advice_that_the_filter_forbids_is_not_followed(
    wanted: Configuration, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = _filtered(GREYBOX)
    assert wanted not in admissible(study)
    monkeypatch.setattr(advisor, "advise", lambda problem, history: Advice(setting_of(wanted), "try this"))

    assert OptunaProposer(GREYBOX).propose(study) == SearchOver("try this")


def test_advice_that_the_filter_allows_is_followed_with_its_reason_and_figures(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    study = _filtered(GREYBOX)
    wanted, figures = a_configuration(instance_count=2), {"p99_ms": 50.0}
    monkeypatch.setattr(
        advisor, "advise", lambda problem, history: Advice(setting_of(wanted), "try this", figures)
    )
    proposal = OptunaProposer(GREYBOX).propose(study)

    assert isinstance(proposal, Proposal)
    assert (proposal.configuration, proposal.sampler) == (wanted, GREYBOX)
    assert proposal.reason.startswith("try this; ")
    assert dict(proposal.predicted) == {"p99_ms": 50.0, "rate_per_second": 250.0}


def test_suggestions_that_are_all_taken_give_way_to_the_nearest_candidate() -> None:
    study, reasons = _small_space(max_trials=50), []
    while isinstance(proposal := OptunaProposer("tpe").propose(study), Proposal):
        reasons.append(proposal.reason)
        study = with_trial(study, proposal.configuration)

    assert any("nearest to what tpe suggested 8 times in vain" in reason for reason in reasons)


def _small_space(max_trials: int) -> Study:
    limits = {
        "max_instance_count": 2,
        "max_queue_delay_microseconds": 1_000,
        "preferred_batch_sizes": ((), (4, 8)),
    }
    return a_search(limits=limits, max_trials=max_trials)


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("trials", [0, 3, 12])
def test_the_same_records_give_the_same_proposal(sampler: str, trials: int) -> None:
    study = _grown(sampler, trials, a_search(max_trials=20))
    stored: Study = from_record(Study, json.loads(json.dumps(to_record(study))))

    first = OptunaProposer(sampler).propose(study)
    assert first == OptunaProposer(sampler).propose(study)
    assert first == OptunaProposer(sampler).propose(stored)


def test_another_process_with_other_hashes_gives_the_same_proposal(tmp_path: Path) -> None:
    study = _grown("tpe", 6, a_search(max_trials=20))
    path = tmp_path / "study.json"
    path.write_text(json.dumps(to_record(study)))
    program = (
        "import json, sys\n"
        "from autotuner.adapters.optuna_proposer import OptunaProposer\n"
        "from autotuner.domain.study import Study\n"
        "from autotuner.records import from_record\n"
        "study = from_record(Study, json.load(open(sys.argv[1])))\n"
        "print(OptunaProposer('tpe').propose(study))\n"
    )

    def ask(hash_seed: str) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        answer = subprocess.run(
            [sys.executable, "-c", program, str(path)],
            env=environment,
            check=True,
            capture_output=True,
            text=True,
        )
        assert answer.stderr == ""
        return answer.stdout.strip()

    assert ask("1") == ask("2") == str(OptunaProposer("tpe").propose(study))


def test_the_seed_depends_on_study_plan_seed_and_number_of_trials() -> None:
    study = a_search()
    others = [
        changed(study, id="study-2"),
        changed(study, plan=changed(study.plan, seed=1)),
        with_trial(study, a_configuration(instance_count=2)),
    ]

    assert seed_of(study) == seed_of(a_search()) == 574_756_239
    assert len({seed_of(study), *map(seed_of, others)}) == 4


def test_other_seeds_search_elsewhere() -> None:
    paths = {
        tuple(trial.configuration for trial in _grown("tpe", 8, a_search(max_trials=8, seed=seed)).trials)
        for seed in range(3)
    }

    assert len(paths) == 3


def test_the_search_starts_with_what_identifies_most() -> None:
    study = _grown("tpe", 3)

    assert [trial.configuration for trial in study.trials[1:]] == [
        a_configuration(preferred_batch_size=()),
        a_configuration(preferred_batch_size=(), instance_count=2),
        a_configuration(preferred_batch_size=(), instance_count=3),
    ]


def test_two_more_instances_are_not_started_with_when_one_more_trespassed() -> None:
    bare, more = (
        a_configuration(preferred_batch_size=()),
        a_configuration(preferred_batch_size=(), instance_count=2),
    )
    rejected = a_trial(2, more, steps=(a_step(verdict=Verdict.REJECT, bad=50),), verdict=Verdict.REJECT)
    proposal = OptunaProposer("tpe").propose(a_search(a_trial(1, bare), rejected))

    assert isinstance(proposal, Proposal)
    assert proposal.sampler == "tpe"


def test_starts_that_are_not_admissible_are_left_out() -> None:
    study = a_search(limits={"max_instance_count": 1})
    first = OptunaProposer("tpe").propose(study)
    assert isinstance(first, Proposal)
    second = OptunaProposer("tpe").propose(with_trial(study, first.configuration))

    assert first.sampler == "start-up"
    assert isinstance(second, Proposal)
    assert second.sampler == "tpe"


def test_a_proposal_says_why_and_what_is_left() -> None:
    study = a_search()
    start = OptunaProposer("tpe").propose(study)
    assert isinstance(start, Proposal)
    assert "without preferred sizes" in start.reason
    assert "287 of 288 candidates remain (1 already tried; the server reports no memory" in start.reason

    sampled = OptunaProposer("tpe").propose(_grown("tpe", 3, a_search(max_trials=9)))
    assert isinstance(sampled, Proposal)
    assert "284 of 288 candidates remain" in sampled.reason


def test_tpe_goes_where_trials_were_feasible() -> None:
    # Every delay above 10 ms trespasses on the imaginary device: 2 of the 8 delays.
    def late(sampler: str) -> float:
        tried = [
            trial.configuration for seed in range(3) for trial in _infeasible_start(sampler, seed).trials[11:]
        ]
        return sum(c.max_queue_delay_microseconds > 10_000 for c in tried) / len(tried)

    assert late("tpe") < 0.10
    assert late("random") > 0.15


def _infeasible_start(sampler: str, seed: int) -> Study:
    """Ten trials on record of which eight trespassed, then twelve more."""
    study = a_search(max_trials=22, seed=seed)
    for count in (1, 2, 3, 4):
        for delay in (20_000, 50_000):
            late = a_configuration(
                preferred_batch_size=(), instance_count=count, max_queue_delay_microseconds=delay
            )
            study = with_trial(study, late)
    for count in (1, 2):
        study = with_trial(study, a_configuration(preferred_batch_size=(), instance_count=count))
    return _grown(sampler, 12, study)


def test_the_value_is_capacity_and_efficiency_only_breaks_ties() -> None:
    study = a_search()
    levels = (Level(0, 0.4), Level(1, 0.6))
    both = tuple(a_step(level, use=a_use(compute_seconds_per_inference=0.004)) for level in levels)
    leaner = tuple(a_step(level, use=a_use(compute_seconds_per_inference=0.002)) for level in levels)
    one = leaner[:1]

    values = [value(study, a_trial(1, levels=levels, steps=steps)) for steps in (both, leaner, one)]

    assert values[0] == pytest.approx(300.0)
    assert 300.0 < values[1] <= 300.0 * 1.015
    assert values[2] < 204.0


def test_a_trial_that_was_never_accepted_has_a_censored_value_below_every_accepted_one() -> None:
    study = a_search()
    rejected = a_trial(1, steps=(a_step(verdict=Verdict.REJECT, bad=50),), verdict=Verdict.REJECT)

    assert 0.0 < value(study, rejected) < value(study, a_trial(2))


def test_where_efficiency_leads_the_value_is_compute_per_inference() -> None:
    study = a_search(objective=Objective.EFFICIENCY)
    unknown = a_trial(1, steps=(a_step(use=None),))

    assert value(study, a_trial(1)) == pytest.approx(-0.004)
    assert value(study, unknown) == pytest.approx(-0.004)


def test_the_constraint_is_the_bad_share_over_the_allowed_one_at_the_lowest_level() -> None:
    top = a_step(Level(1, 0.6), Verdict.REJECT, bad=300)

    assert violation(a_trial(1, steps=(a_step(bad=2), top))) == pytest.approx(-1.388, abs=0.01)
    assert violation(a_trial(1, steps=(a_step(verdict=Verdict.REJECT, bad=50),))) == pytest.approx(
        1.618, abs=0.01
    )


def test_the_constraint_has_the_sign_of_the_verdict_however_few_requests_were_seen() -> None:
    few = a_step(verdict=Verdict.INCONCLUSIVE, bad=0, total=1000)
    lucky = a_step(bad=11)

    assert (violation(a_trial(1, steps=(few,))) or 0.0) > 0.0
    assert (violation(a_trial(1, steps=(lucky,))) or 0.0) < 0.0


def test_a_trial_stopped_while_warming_up_counts_as_a_violation() -> None:
    stopped = a_trial(
        1, steps=(a_step(Level(-1, 0.1), Verdict.REJECT, bad=20, total=40),), verdict=Verdict.REJECT
    )

    assert (violation(stopped) or 0.0) > 1.0


def test_what_the_environment_spoilt_teaches_nothing() -> None:
    assert violation(a_trial(1, steps=(a_step(verdict=Verdict.VOID, bad=500),), verdict=Verdict.VOID)) is None


def test_a_configuration_rejected_before_anything_was_counted_is_a_violation() -> None:
    assert violation(a_trial(1, steps=(), verdict=Verdict.REJECT)) == 1.0


def test_the_plan_s_sampler_is_used_unless_another_is_given() -> None:
    study = _grown("tpe", 4, a_search(max_trials=9, sampler="random"))
    by_plan, given = OptunaProposer().propose(study), OptunaProposer("tpe").propose(study)

    assert isinstance(by_plan, Proposal)
    assert by_plan.sampler == "random"
    assert isinstance(given, Proposal)
    assert given.sampler == "tpe"


def test_an_unknown_sampler_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidInput, match="greybox, tpe, gp, random"):
        OptunaProposer("cmaes")
    with pytest.raises(InvalidInput, match="greybox, tpe, gp, random"):
        OptunaProposer().propose(a_search(sampler="cmaes"))


@pytest.mark.skipif(WITH_TORCH, reason="torch is installed")
def test_gp_without_torch_names_the_extra_to_install() -> None:
    with pytest.raises(InvalidInput, match=r"autotuner\[gp\]"):
        OptunaProposer("gp")


@pytest.mark.skipif(not WITH_TORCH, reason="the extra gp is not installed")
def test_gp_repeats_itself_and_keeps_to_the_admissible() -> None:
    study = _grown("gp", 6, a_search(max_trials=9))
    proposal = OptunaProposer("gp").propose(study)

    assert isinstance(proposal, Proposal)
    assert proposal.sampler == "gp"
    assert proposal.configuration in admissible(study)
    assert proposal == OptunaProposer("gp").propose(study)
    assert len({trial.configuration for trial in study.trials}) == 7


def test_nothing_is_proposed_when_all_trials_are_done() -> None:
    over = OptunaProposer("tpe").propose(_grown("tpe", 2, a_search(max_trials=2)))
    assert over == SearchOver("all 2 trials of the plan are done")


def test_an_ask_at_fifty_trials_is_quick() -> None:
    study = a_search(max_trials=99)
    configurations = [c for c in admissible(study) if c.max_queue_delay_microseconds > 500][::4][:50]
    trials = [measured(study, number, c) for number, c in enumerate(configurations, start=1)]
    study, proposer = changed(study, trials=(*study.trials, *trials)), OptunaProposer("tpe")
    proposer.propose(study)
    spent = []
    for _ in range(5):
        began = time.process_time()
        assert isinstance(proposer.propose(study), Proposal)
        spent.append(time.process_time() - began)

    assert min(spent) < 0.1

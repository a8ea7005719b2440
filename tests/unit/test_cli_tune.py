"""`tune` and `target apply`: a study from its file to its end, and what Ctrl-C leaves behind."""

from __future__ import annotations

import math
import threading
from pathlib import Path

import pytest

from autotuner.adapters.simulated import thin_traffic
from autotuner.domain.configuration import read_configuration
from autotuner.domain.dispersion import REHEARSAL_LIMIT
from autotuner.domain.study import Phase, Wish
from autotuner.errors import Unavailable
from autotuner.report.tables import dispersion_sentence
from tests.closed_loop.loop import QuickStore
from tests.command_line import TARGET, Terminal, a_target_file

SLO = TARGET["slo"]
HALF = {"stable-0": 500, "stable-1": 500, "canary": 0}


def serves(terminal: Terminal, replica: str) -> tuple[int, ...]:
    """The preferred sizes that a simulated server has now."""
    return read_configuration(terminal.target.world.serving.model_config(replica)).preferred_batch_size


def test_a_study_is_carried_to_its_promotion_and_told_on_the_way(tmp_path: Path) -> None:
    terminal = Terminal()

    ran = terminal.run("tune", a_target_file(tmp_path), "--json")

    assert (ran.code, ran.answer["outcome"]) == (0, "promoted")
    assert ran.answer["winner"]["configuration"]["preferred_batch_size"] == []
    assert ran.answer["slow_requests_caused"] < ran.answer["harm_budget"]
    assert {serves(terminal, name) for name in ("stable-0", "stable-1", "canary")} == {()}
    for part in ("measuring the incumbent", "#2 candidate", "confirming the winner", "watching production"):
        assert part in ran.err


def test_a_study_that_finds_nothing_better_keeps_the_incumbent_and_ends_well(tmp_path: Path) -> None:
    slo, study = SLO | {"max_canary_share": 0.75}, TARGET["study"] | {"max_trials": 1, "ramp_steps": 3}

    ran = Terminal().run("tune", a_target_file(tmp_path, slo=slo, study=study))

    assert ran.code == 0
    assert ran.out.startswith("KEPT: all 1 trials are done; no candidate was better")


def test_a_search_with_nothing_to_try_says_why_and_its_replay_agrees(tmp_path: Path) -> None:
    limits = {"instance_count": 1, "max_queue_delay_microseconds": 0, "preferred_batch_sizes": [[4, 8]]}
    terminal = Terminal()

    ran = terminal.run("tune", a_target_file(tmp_path, limits=limits))

    assert (ran.code, ran.out[:45]) == (0, "KEPT: no candidate is left: 1 already tried; ")
    assert terminal.run("replay", "--latest", "--json").answer["differences"] == 0


def test_a_study_without_evidence_ends_with_3(tmp_path: Path) -> None:
    pace = TARGET["study"]["pace"] | {"step_limit": "12s", "step_minimum": "1s"}

    ran = Terminal(profile=thin_traffic()).run("tune", a_target_file(tmp_path, study={"pace": pace}))

    assert ran.code == 3
    assert ran.out.startswith("INCONCLUSIVE: production could not be measured: INCONCLUSIVE: ")


def test_a_detached_study_is_only_started(tmp_path: Path) -> None:
    terminal = Terminal()

    ran = terminal.run("tune", a_target_file(tmp_path), "--detach", "--json")

    assert (ran.code, ran.answer["phase"], ran.answer["outcome"]) == (0, "created", None)
    assert terminal.store.study("latest").phase is Phase.CREATED


def test_a_rehearsal_limits_the_dispersion_factor_and_says_what_that_is_worth(tmp_path: Path) -> None:
    terminal = Terminal()

    ran = terminal.run("tune", a_target_file(tmp_path), "--rehearsal")

    study = terminal.store.study("latest")
    assert (ran.code, study.plan.max_dispersion) == (0, REHEARSAL_LIMIT)
    assert dispersion_sentence(study) in ran.out
    terminal.run("tune", a_target_file(tmp_path), "--detach")
    assert math.isinf(terminal.store.study("latest").plan.max_dispersion)


def test_a_target_with_an_unfinished_study_takes_no_second(tmp_path: Path) -> None:
    terminal = Terminal()
    terminal.run("tune", a_target_file(tmp_path), "--detach")

    assert terminal.run("tune", a_target_file(tmp_path)).code == 6


class Interrupting:
    """Sets the event, as a signal does, once a candidate carries traffic, and again `more` times after that."""

    def __init__(self, more: int = 0) -> None:
        self.left = 1 + more
        self.terminal: Terminal | None = None

    def __call__(self, event: threading.Event) -> None:
        assert self.terminal is not None
        exposed = self.terminal.target.world.route.weights()["canary"] > 0
        if self.left and exposed and len(self.terminal.store.study("latest").trials) >= 3:
            self.left -= 1
            event.set()


def interrupted(more: int) -> Terminal:
    watching = Interrupting(more)
    terminal = Terminal(watching=watching)
    watching.terminal = terminal
    return terminal


def test_ctrl_c_cancels_the_study_and_waits_until_the_incumbent_is_restored(tmp_path: Path) -> None:
    terminal = interrupted(0)

    ran = terminal.run("tune", a_target_file(tmp_path), "--json")

    assert ran.code == 130
    assert (ran.answer["phase"], ran.answer["outcome"]) == ("ended", "aborted")
    assert serves(terminal, "canary") == (4, 8)
    assert terminal.target.world.route.weights() == HALF
    assert terminal.store.unfinished() == ()


def test_a_second_ctrl_c_gives_production_its_traffic_back_at_once(tmp_path: Path) -> None:
    terminal = interrupted(1)

    ran = terminal.run("tune", a_target_file(tmp_path), "--json")

    assert ran.code == 130
    assert ran.answer["phase"] != "ended"
    assert terminal.target.world.route.weights() == HALF
    assert "autotuner worker --until-idle" in ran.err
    assert terminal.store.wish(ran.answer["study"]) is Wish.CANCEL


def test_what_a_hurried_tune_left_is_restored_by_the_next_worker(tmp_path: Path) -> None:
    terminal = interrupted(1)
    terminal.run("tune", a_target_file(tmp_path))

    terminal.run("worker", "--until-idle")

    assert terminal.store.study("latest").phase is Phase.ENDED
    assert serves(terminal, "canary") == (4, 8)


class Shaky(QuickStore):
    """A store that does not answer every fortieth time it is asked for a study."""

    asked = 0

    def study(self, study_id: str) -> object:  # type: ignore[override]
        """Return a study, or be unavailable."""
        self.asked += 1
        if self.asked % 40 == 0:
            raise Unavailable("postgres", "the server is starting up")
        return super().study(study_id)


def test_a_database_that_comes_and_goes_does_not_end_a_study(tmp_path: Path) -> None:
    shaky = Shaky()

    ran = Terminal(store=shaky).run("tune", a_target_file(tmp_path))

    assert ran.code == 0
    assert ran.out.startswith("PROMOTED: ")
    assert shaky.asked > 200


# -- registration --------------------------------------------------------------------------------------------


def test_a_target_is_registered_with_its_budget(tmp_path: Path) -> None:
    terminal = Terminal()

    ran = terminal.run("target", "apply", a_target_file(tmp_path), "--json")

    assert (ran.code, ran.answer["target"], ran.answer["slo"]["version"]) == (0, "vision", 1)
    assert ran.answer["slo"]["p99_ms"] == pytest.approx(100)
    assert terminal.store.target("vision")[1].actor == "tester"


def test_a_looser_budget_needs_a_reason_and_becomes_a_new_version(tmp_path: Path) -> None:
    terminal = Terminal()
    terminal.run("target", "apply", a_target_file(tmp_path))
    looser = a_target_file(tmp_path, slo=SLO | {"p99_ms": 120})

    refused = terminal.run("target", "apply", looser)
    applied = terminal.run("target", "apply", looser, "--reason", "agreed with the product team", "--json")

    assert refused.code == 2
    assert "reason" in refused.err
    assert (applied.code, applied.answer["slo"]["version"]) == (0, 2)
    assert terminal.store.target("vision")[1].reason == "agreed with the product team"


def test_a_preferred_size_that_no_batch_can_have_is_refused_by_its_place(tmp_path: Path) -> None:
    limits = TARGET["limits"] | {"preferred_batch_sizes": [[], [4, 64]]}
    terminal = Terminal()

    for words in (["target", "apply"], ["tune"]):
        ran = terminal.run(*words, a_target_file(tmp_path, limits=limits))

        assert ran.code == 2
        assert "limits.preferred_batch_sizes.1: [4, 64] is not allowed" in ran.err
        assert "max_batch_size, 32" in ran.err
    assert not terminal.store.memory.targets


def test_a_target_whose_servers_do_not_answer_can_be_registered(tmp_path: Path) -> None:
    terminal = Terminal()
    terminal.target.faults.crash("stable-0")

    ran = terminal.run("target", "apply", a_target_file(tmp_path))

    assert ran.code == 0
    assert "not checked against the model as it is served" in ran.err


def test_every_problem_of_a_file_is_told_in_one_answer(tmp_path: Path) -> None:
    ran = Terminal().run("tune", a_target_file(tmp_path, slo={"p99_ms": -1, "error_ratio": "5%"}), "--json")

    assert ran.code == 2
    assert ran.answer["exit_code"] == 2
    assert "slo.p99_ms: -1 is not allowed" in ran.answer["error"]
    assert "5 % is 0.05" in ran.err

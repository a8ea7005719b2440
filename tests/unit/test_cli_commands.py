"""Commands that look at a study, against one that has ended: each answers people, and machines in one object."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from autotuner.adapters.memory_store import MemoryStore
from autotuner.domain.study import Phase
from autotuner.ports import JournalEntry
from tests.builders import at
from tests.command_line import Terminal, a_target_file
from tests.studies import a_rich_study, a_trial, judged


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Terminal:
    """A terminal in whose store a short study has been promoted."""
    made = Terminal(store=MemoryStore())
    ran = made.run("tune", a_target_file(tmp_path_factory.mktemp("target")))
    assert ran.code == 0, ran.err
    return made


@pytest.fixture
def study_id(terminal: Terminal) -> str:
    """The id of the study that has ended."""
    return terminal.store.study("latest").id  # type: ignore[no-any-return]


# -- history and show ----------------------------------------------------------------------------------------


def test_history_lists_the_study_with_its_outcome(terminal: Terminal, study_id: str) -> None:
    ran = terminal.run("history")

    assert ran.code == 0
    assert ran.out.startswith(f"{study_id}  2026-01-05 02:00  ")
    assert "promoted: " in ran.out


def test_history_answers_in_one_object(terminal: Terminal, study_id: str) -> None:
    answer = terminal.run("history", "vision", "--json").answer

    assert [study["id"] for study in answer["studies"]] == [study_id]
    assert answer["studies"][0]["outcome"] == "promoted"


def test_the_history_of_an_unknown_target_is_not_found(terminal: Terminal) -> None:
    assert terminal.run("history", "nobody").code == 9


def test_an_empty_history_says_so() -> None:
    assert Terminal().run("history").out == "no study is recorded\n"


def test_show_tells_promise_outcome_worth_and_every_trial(terminal: Terminal, study_id: str) -> None:
    out = terminal.run("show", "latest").out

    assert out.startswith(f"study {study_id}: promoted\n")
    for part in ("p99 ≤ 100 ms", "harm: ", "dispersion used", "incumbent: ", "winner: ", "capacity: "):
        assert part in out
    assert "  production before: " in out
    trials = terminal.store.study(study_id).trials
    assert all(f"  #{trial.number} " in out for trial in trials)


def test_show_answers_with_all_evidence_of_every_trial(terminal: Terminal, study_id: str) -> None:
    answer = terminal.run("show", study_id, "--json").answer
    study = terminal.store.study(study_id)

    assert (answer["study"], answer["outcome"], answer["phase"]) == (study_id, "promoted", "ended")
    assert answer["capacity_ratio"] > 1.1
    assert set(answer["production_findings"][0]) == {"kind", "confidence", "evidence", "remedy"}
    assert [trial["number"] for trial in answer["trials"]] == [trial.number for trial in study.trials]
    assert [len(trial["steps"]) for trial in answer["trials"]] == [len(trial.steps) for trial in study.trials]


def test_show_of_a_trial_tells_what_each_verdict_rests_on(terminal: Terminal) -> None:
    out = terminal.run("show", "latest/2").out

    for part in (
        "proposed by ",
        "level 0, ",
        "counts: ",
        "control: ",
        "dispersion ",
        "e-value for ACCEPT ",
        "(needs 10)",
        "p50 / p95 / p99: ",
        "queue ",
        "realised batch ",
        "memory ",
        "harm: ",
        "ACCEPT: ",
    ):
        assert part in out


def test_a_trial_of_the_confirmation_shows_the_stricter_level(terminal: Terminal) -> None:
    assert "(needs 100)" in terminal.run("show", "latest/4").out
    assert terminal.run("show", "latest/4", "--json").answer["steps"][0]["accept_alpha"] == 0.01


def test_the_figures_of_a_step_are_the_recorded_ones(terminal: Terminal, study_id: str) -> None:
    shown = terminal.run("show", f"{study_id}/2", "--json").answer["steps"][-1]
    step = terminal.store.study(study_id).trials[2].steps[-1]

    assert shown["counts"]["total"] == step.candidate.total
    assert shown["control"]["total"] == step.control.total
    assert shown["log_e_accept"] == step.judgement.log_e_accept
    assert shown["p99_ms"] == pytest.approx(step.latency.p99_seconds * 1e3)
    assert shown["reason"] == step.judgement.reason


def test_a_study_that_is_under_way_is_shown_as_it_stands() -> None:
    terminal = Terminal()
    study = replace(a_rich_study(), id="rich", trials=(judged(a_trial(0)), a_trial(1)))
    terminal.store.save_target(study.plan.target, study.plan.slo, "me", "", at(0))
    terminal.store.create_study(study)

    for words in (["show", "rich"], ["show", "rich/1"], ["history"]):
        assert terminal.run(*words).code == 0
    assert terminal.run("show", "rich", "--json").answer["outcome"] is None


@pytest.mark.parametrize(
    ("name", "code"),
    [("nope", 9), ("latest/99", 9), ("nope/1", 9), ("latest/x", 2), ("latest/", 2), ("latest/-1", 2)],
)
def test_what_cannot_be_shown_is_told_apart(terminal: Terminal, name: str, code: int) -> None:
    ran = terminal.run("show", name)

    assert (ran.code, ran.out) == (code, "")
    assert ran.err.startswith("error: ")
    assert len(ran.err.splitlines()) == 1


# -- replay --------------------------------------------------------------------------------------------------


def test_a_replay_of_true_records_finds_no_difference(terminal: Terminal, study_id: str) -> None:
    ran = terminal.run("replay", "--latest", "--json")

    assert ran.code == 0
    assert ran.answer | {"decisions": 0, "outcomes": 0} == {
        "study": study_id,
        "decisions": 0,
        "outcomes": 0,
        "proposals": 2,
        "proposals_taken_as_recorded": 0,
        "differences": 0,
        "details": [],
    }
    assert ran.answer["decisions"] > 50
    assert terminal.run("replay", study_id).out.endswith("0 differences\n")


class Doctored(MemoryStore):
    """A store whose journal somebody has changed."""

    def journal(self, study_id: str, after: int = 0) -> list[JournalEntry]:
        """Return the journal with another reason in its tenth entry."""
        entries = list(super().journal(study_id, after))
        entries[9] = replace(entries[9], reason="because I say so")
        return entries


def test_a_replay_of_changed_records_lists_the_difference_and_ends_with_8(terminal: Terminal) -> None:
    doctored = Doctored()
    doctored.memory = terminal.store.memory
    other = Terminal(store=doctored)

    ran = other.run("replay", "--latest", "--json")
    told = other.run("replay", "--latest")

    assert (ran.code, told.code) == (8, 8)
    assert ran.answer["differences"] == 1
    assert ran.answer["details"][0]["recorded"] == "because I say so"
    assert "entry 10, reason: recorded 'because I say so'" in told.out


@pytest.mark.parametrize("words", [["replay"], ["replay", "x", "--latest"]])
def test_a_replay_is_of_one_study(terminal: Terminal, words: list[str]) -> None:
    assert terminal.run(*words).code == 2


# -- export --------------------------------------------------------------------------------------------------


def test_the_winner_is_exported_as_a_config_a_json_and_a_patch(terminal: Terminal) -> None:
    pbtxt = terminal.run("export", "latest/winner").out
    whole = json.loads(terminal.run("export", "latest/winner", "--format", "json").out)
    patch = terminal.run("export", "latest/winner", "--format", "patch").out

    assert "max_batch_size: 32" in pbtxt
    assert "preferred_batch_size" not in pbtxt
    assert whole["max_batch_size"] == 32
    assert "-  preferred_batch_size: [4, 8]\n" in patch


def test_an_export_answers_in_one_object(terminal: Terminal, study_id: str) -> None:
    answer = terminal.run("export", "latest/2", "--format", "patch", "--json").answer

    assert (answer["study"], answer["trial"], answer["format"]) == (study_id, 2, "patch")
    assert answer["content"].startswith("--- a/config.pbtxt")


@pytest.mark.parametrize(("words", "code"), [(["latest"], 2), (["latest/2", "--format", "xml"], 2)])
def test_an_export_needs_a_trial_and_a_known_format(terminal: Terminal, words: list[str], code: int) -> None:
    assert terminal.run("export", *words).code == code


# -- audit ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["--verify", "verify"])
def test_the_audit_tells_who_did_what_and_is_verified(terminal: Terminal, study_id: str, word: str) -> None:
    ran = terminal.run("audit", word, "--limit", "1000")

    assert ran.code == 0
    assert f"tester: study_started {study_id}" in ran.out
    assert ran.out.endswith("the audit is intact\n")


def test_the_audit_answers_in_one_object_newest_first(terminal: Terminal) -> None:
    answer = terminal.run("audit", "--verify", "--limit", "3", "--json").answer

    numbers = [record["number"] for record in answer["records"]]
    assert numbers == sorted(numbers, reverse=True)
    assert len(numbers) == 3
    assert answer["intact"] is True


def test_a_changed_audit_ends_with_8(terminal: Terminal) -> None:
    class Broken(MemoryStore):
        def first_broken_audit(self) -> int | None:
            return 4

    broken = Broken()
    broken.memory = terminal.store.memory

    ran = Terminal(store=broken).run("audit", "--verify")

    assert ran.code == 8
    assert ran.out.endswith("the audit was changed: record 4 does not fit\n")


# -- wishes --------------------------------------------------------------------------------------------------


@pytest.fixture
def running(tmp_path: Path) -> Terminal:
    """A terminal in whose store a study has just been started."""
    made = Terminal(store=MemoryStore())
    assert made.run("tune", a_target_file(tmp_path), "--detach").code == 0
    return made


@pytest.mark.parametrize(("name", "wish"), [("cancel", "cancel"), ("pause", "pause"), ("resume", "run")])
def test_a_wish_is_recorded_with_who_and_why(running: Terminal, name: str, wish: str) -> None:
    ran = running.run(name, "latest", "--reason", "maintenance", "--json")

    assert ran.answer == {"study": running.store.study("latest").id, "wish": wish, "phase": "created"}
    assert running.store.wish(ran.answer["study"]).value == wish
    newest = running.store.audit(1)[0]
    assert (newest.actor, newest.action, newest.reason) == ("tester", "wish_set", "maintenance")


@pytest.mark.parametrize("name", ["approve", "disapprove"])
def test_nothing_is_approved_before_a_winner_waits_for_it(running: Terminal, name: str) -> None:
    ran = running.run(name, "latest")

    assert ran.code == 7
    assert "phase created" in ran.err


@pytest.mark.parametrize(("name", "wish"), [("approve", "approve"), ("disapprove", "disapprove")])
def test_a_winner_that_waits_may_be_approved_or_not(name: str, wish: str) -> None:
    terminal = Terminal()
    study = a_rich_study(phase=Phase.APPROVAL)
    terminal.store.save_target(study.plan.target, study.plan.slo, "me", "", at(0))
    terminal.store.create_study(study)

    assert terminal.run(name, "latest").code == 0
    assert terminal.store.wish(study.id).value == wish


@pytest.mark.parametrize("name", ["cancel", "pause", "resume", "approve", "disapprove"])
def test_a_study_that_has_ended_takes_no_wishes(terminal: Terminal, name: str) -> None:
    ran = terminal.run(name, "latest")

    assert ran.code == 6
    assert "it has already ended" in ran.err


def test_a_worker_cancels_a_study_that_an_operator_cancelled(running: Terminal) -> None:
    running.run("cancel", "latest", "--reason", "enough")

    ran = running.run("worker", "--until-idle", "--json")

    assert (ran.code, ran.answer["stopped"]) == (0, False)
    study = running.store.study("latest")
    assert (study.outcome.value, study.reason) == ("aborted", "cancelled by an operator")

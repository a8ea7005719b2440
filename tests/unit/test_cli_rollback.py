"""`autotuner rollback` records who wants which promotion taken back, and a worker does it."""

from __future__ import annotations

from dataclasses import replace

from autotuner.cli.exits import Exit
from autotuner.domain.study import Outcome, Study
from tests.closed_loop.test_rollback import check_restored, promoted
from tests.command_line import Terminal


def a_terminal() -> tuple[Terminal, Study]:
    """A terminal beside a target on which a study has promoted its winner."""
    loop = promoted()
    terminal = Terminal(store=loop.store)
    terminal.clock, terminal.target = loop.clock, loop.target
    return terminal, loop.study


def test_a_promotion_is_taken_back_by_the_next_worker() -> None:
    loop = promoted()
    terminal = Terminal(store=loop.store)
    terminal.clock, terminal.target = loop.clock, loop.target

    asked = terminal.run("rollback", "latest", "--reason", "incident 4711", "--json")
    worked = terminal.run("worker", "--until-idle")

    assert (asked.code, asked.answer["begun"], worked.code) == (Exit.DONE, True, Exit.DONE)
    loop.study_id = asked.answer["study"]
    study = check_restored(loop)
    assert (study.outcome, study.actor) == (Outcome.ROLLED_BACK, "tester")
    assert "incident 4711" in study.reason
    shown = terminal.run("show", study.id)
    assert (shown.code, "rolled_back" in shown.out) == (Exit.DONE, True)
    assert terminal.run("history").out.count("rolled_back") == 1
    assert terminal.run("replay", study.id).code == Exit.DONE


def test_asking_again_names_the_study_that_does_it() -> None:
    terminal, promotion = a_terminal()
    terminal.run("rollback", promotion.id, "--reason", "incident 4711")
    again = terminal.run("rollback", promotion.id, "--reason", "incident 4711")
    assert (again.code, f"study {promotion.id}-rollback-1 was asked to before" in again.out) == (
        Exit.DONE,
        True,
    )


def test_without_a_reason_nothing_is_asked() -> None:
    terminal, promotion = a_terminal()
    assert terminal.run("rollback", promotion.id, "--reason", " ").code == Exit.INVALID_INPUT
    assert terminal.store.unfinished() == ()


def test_a_study_that_promoted_nothing_is_refused() -> None:
    terminal, promotion = a_terminal()
    row = terminal.store.memory.studies[promotion.id]
    row.study = replace(promotion, outcome=Outcome.KEPT)
    refused = terminal.run("rollback", promotion.id, "--reason", "incident 4711")
    assert (refused.code, "only a promotion can be rolled back" in refused.err) == (Exit.REFUSED, True)

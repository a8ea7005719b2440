"""The winner and the incumbent again, on fresh data at a stricter level, before production is touched.

The search looked at many configurations and kept the best, so its own figures flatter the winner; and the
incumbent's baseline may have been unlucky. Both are measured again, and only a gain that is still there counts.
"""

from __future__ import annotations

from dataclasses import replace

from autotuner.domain.judgement import Verdict
from autotuner.domain.observation import Decision, Observation
from autotuner.domain.phases import ending, entered
from autotuner.domain.ramp import ladder, production_level
from autotuner.domain.selection import TIE, baseline, choose, gain_in_efficiency
from autotuner.domain.study import Approval, Level, Outcome, Step, Study, Trial, TrialKind, TrialState
from autotuner.domain.target import Objective
from autotuner.domain.trial_states import begin

MAX_WINNERS = 3
"""After so many winners that were not confirmed the search itself is not to be believed."""


def confirm(study: Study, seen: Observation) -> Decision:
    """Return the next step of the confirmation of the study's winner."""
    assert study.winner is not None
    trial = study.trial
    if trial is not None and trial.kind is TrialKind.CONFIRMATION:
        return _after_winner(study, trial, seen)
    if trial is not None and trial.kind is TrialKind.CONTROL:
        return _after_control(study, trial, seen)
    winner = study.trials[study.winner]
    text = f"confirm {winner.configuration.describe()} on fresh data"
    return _measure(study, seen, TrialKind.CONFIRMATION, winner, _winner_levels(study, winner), text)


def _measure(
    study: Study, seen: Observation, kind: TrialKind, like: Trial, levels: tuple[Level, ...], text: str
) -> Decision:
    canary = (study.plan.target.canary.name,)
    trial = Trial(len(study.trials), kind, canary, like.configuration, levels, TrialState.PROPOSED, seen.at)
    return Decision(begin(study, trial), None, text)


def by_capacity(study: Study, winner: Trial) -> bool:
    """Say whether the winner is promoted for its capacity (else for its efficiency)."""
    before = baseline(study)
    if study.plan.target.objective is Objective.EFFICIENCY:
        return before is None or not before.accepted
    gain = study.plan.minimum_gain
    return before is None or not before.accepted or _top(winner) >= _top(before) * (1.0 + gain)


def _top(trial: Trial) -> float:
    return trial.accepted[-1].level.share if trial.accepted else 0.0


def _winner_levels(study: Study, winner: Trial) -> tuple[Level, ...]:
    """Today's load, then what the incumbent could not carry, up to what the winner carried."""
    today = production_level(study.plan)
    top = winner.accepted[-1].level
    before = baseline(study)
    floor = _top(before) if before else 0.0
    beyond = [level for level in ladder(study.plan) if floor < level.share <= top.share]
    wanted = {level.number: level for level in (*beyond, min(today, top, key=lambda level: level.share), top)}
    return tuple(wanted[number] for number in sorted(wanted))


def _after_winner(study: Study, trial: Trial, seen: Observation) -> Decision:
    assert study.winner is not None
    winner = study.trials[study.winner]
    before = baseline(study)
    gain = study.plan.minimum_gain
    needed = _top(before) * (1.0 + gain) if before and by_capacity(study, winner) else 0.0
    today = min(production_level(study.plan).share, _top(winner))
    if trial.verdict is not Verdict.ACCEPT or _top(trial) < max(needed, today):
        return _next_winner(study, f"not confirmed: {trial.reason}", seen)
    incumbent = baseline(study)
    assert incumbent is not None
    levels = _control_levels(study, trial)
    return _measure(
        study, seen, TrialKind.CONTROL, incumbent, levels, "measure the incumbent again on fresh data"
    )


def _control_levels(study: Study, confirmed: Trial) -> tuple[Level, ...]:
    """Where the incumbent is measured again: at what the winner carried, or at today's load for its efficiency.

    The incumbent must fail at the winner's highest level. A level between the two may be at the very edge of what
    the incumbent holds, where no window of reasonable length decides anything.
    """
    assert study.winner is not None
    if by_capacity(study, study.trials[study.winner]):
        return (confirmed.accepted[-1].level,)
    return (min(production_level(study.plan), confirmed.accepted[0].level, key=lambda level: level.share),)


def _after_control(study: Study, control: Trial, seen: Observation) -> Decision:
    assert study.winner is not None
    confirmed = next(t for t in reversed(study.trials) if t.kind is TrialKind.CONFIRMATION)
    if by_capacity(study, study.trials[study.winner]):
        problem = _capacity_problem(study, confirmed, control)
    else:
        problem = _efficiency_problem(study, confirmed, control)
    if problem:
        return _next_winner(study, problem, seen)
    automatic = study.plan.approval is Approval.AUTOMATIC
    event = "confirmed, approval automatic" if automatic else "confirmed"
    return Decision(entered(study, event, seen.at), None, "the winner is confirmed on fresh data")


def _capacity_problem(study: Study, confirmed: Trial, control: Trial) -> str:
    before = baseline(study)
    if not _measured_again(control, before):
        return f"not confirmed: the incumbent could not be measured again ({control.reason})"
    theirs = max(_top(control), _top(before) if before else 0.0)
    if _top(confirmed) >= theirs * (1.0 + study.plan.minimum_gain):
        return ""
    return "not confirmed: on fresh data the incumbent carried as much"


def _measured_again(control: Trial, before: Trial | None) -> bool:
    """Whether the incumbent was accepted or rejected where the winner was confirmed.

    A load that was refused, or a rejection while it warmed up although its baseline held more, says nothing of that.
    """
    if control.accepted:
        return control.limited_by in ("ceiling", "traffic")
    if control.verdict is not Verdict.REJECT or not control.steps:
        return False
    return control.steps[-1].level.number >= 0 or before is None or not before.accepted


def _efficiency_problem(study: Study, confirmed: Trial, control: Trial) -> str:
    if not control.accepted:
        return f"not confirmed: the incumbent could not be measured again ({control.reason})"
    level = control.accepted[0].level
    step: Step | None = next((s for s in confirmed.accepted if s.level == level), None)
    before = baseline(study)
    if step is None or (before and _top(confirmed) < _top(before) * (1.0 - TIE)):
        return "not confirmed: the winner carried less than the incumbent"
    better, text = gain_in_efficiency(step, control.accepted[0], study.plan.minimum_gain)
    return "" if better else f"not confirmed on fresh data: {text}"


def _next_winner(study: Study, why: str, seen: Observation) -> Decision:
    """Give the next best candidate its chance, or keep the incumbent."""
    assert study.winner is not None
    study = replace(study, rejected_winners=(*study.rejected_winners, study.winner), winner=None)
    choice = choose(study)
    if choice.trial is None or len(study.rejected_winners) >= MAX_WINNERS:
        return ending(study, Outcome.KEPT, f"{why}; {choice.reason}", seen.at)
    trial = choice.trial
    study = replace(study, winner=trial.number)
    text = f"{why}; next: {trial.configuration.describe()}"
    return _measure(study, seen, TrialKind.CONFIRMATION, trial, _winner_levels(study, trial), text)

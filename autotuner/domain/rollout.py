"""Promotion of the winner, replica by replica, the watch after it, and the way back.

Production ends on what was running before or on what was promoted on evidence (guards rule 3). Only replicas
that the study itself has touched are restored; a configuration somebody else put there is left alone (rule 5).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta

from autotuner.domain.aftermath import folded, settled
from autotuner.domain.configuration import Configuration, configured_fingerprint
from autotuner.domain.explaining import awaited
from autotuner.domain.judgement import Verdict
from autotuner.domain.observation import CONFIGURATION, ActionResult, Decision, Observation, acting
from autotuner.domain.phases import ending, entered
from autotuner.domain.ramp import canary_weights, production_share, relieved_weights
from autotuner.domain.study import (
    Incumbent,
    Level,
    Load,
    Outcome,
    Phase,
    Restore,
    SetWeights,
    Study,
    TakeDown,
    Trial,
    TrialKind,
    TrialState,
    Wish,
)
from autotuner.domain.trial_states import begin, production_fingerprint

PERSON = "a person must look"
"""How a study ends that could not put everything right."""


def winning_configuration(study: Study) -> Configuration | None:
    """Return what the study brings, or has to take out of, production: its winner, once that is chosen."""
    if study.plan.reverses is not None:
        return study.plan.reverses.promoted
    return study.trials[study.winner].configuration if study.winner is not None else None


def brings_something(study: Study) -> bool:
    """Say whether production is meant to end on something else than it began with."""
    return study.plan.reverses is not None or study.intended is Outcome.PROMOTED


def known_fingerprints(study: Study) -> Mapping[str, frozenset[str]]:
    """Return, for each replica, what it may serve users with: production's configuration or the winner."""
    incumbent = study.incumbent
    assert incumbent is not None
    winner = winning_configuration(study)
    known = {}
    for replica in study.plan.target.replicas:
        allowed = {production_fingerprint(incumbent, replica.name)}
        if winner is not None:
            allowed.add(_fingerprint(incumbent, replica.name, winner))
        known[replica.name] = frozenset(allowed)
    return known


def _fingerprint(incumbent: Incumbent, replica: str, configuration: Configuration) -> str:
    return configured_fingerprint(incumbent.configs[replica], configuration)


def promote(study: Study, seen: Observation) -> Decision:
    """Begin the next stage, or end with everything restored when one was not accepted.

    Where somebody else owns what production starts with, nothing is touched: the winner is proposed to them.
    """
    trial = study.trial
    staged = study.promoted or (trial is not None and trial.kind is TrialKind.STAGE)
    if CONFIGURATION in seen.faults and not staged:
        owner = seen.faults[CONFIGURATION]
        text = f"the winner is proposed, not promoted: {owner}"
        return ending(replace(study, proposed_to=owner), Outcome.KEPT, text, seen.at)
    if trial is not None and trial.kind is TrialKind.STAGE:
        replica = trial.replicas[0]
        if trial.verdict is not Verdict.ACCEPT:
            return ending(study, Outcome.ABORTED, f"promotion stopped at {replica}: {trial.reason}", seen.at)
        if replica not in study.promoted:
            study = replace(study, promoted=(*study.promoted, replica))
    left = [name for name in study.plan.target.stable_names if name not in study.promoted]
    if not left:
        return Decision(
            entered(study, "all stages accepted", seen.at), None, "every stable replica runs the winner"
        )
    kept_out = _kept_out(study, seen)
    if kept_out is not None:
        return kept_out
    stage = _production_trial(study, seen, TrialKind.STAGE, (left[0],), production_share(study.plan))
    return Decision(begin(study, stage), None, f"promote the winner to {left[0]}")


def _kept_out(study: Study, seen: Observation) -> Decision | None:
    """Wait with a promotion that is not allowed now, and give it up in the end; None when nothing stands against it.

    One that has begun is taken back: production does not stay half of each through a freeze.
    """
    why = seen.clearance.promotion
    if not why:
        return None
    if study.promoted:
        return ending(study, Outcome.ABORTED, f"promotion stopped: {why}", seen.at)
    if study.phase_since is not None and seen.at - study.phase_since >= study.plan.pace.approval_limit:
        return ending(study, Outcome.KEPT, f"the winner was kept out of production: {why}", seen.at)
    return Decision(study, None, f"waiting to promote: {why}", study.plan.pace.look_interval)


def watch(study: Study, seen: Observation) -> Decision:
    """Watch production on the winner for the bake time, then end; roll back when it does not hold."""
    trial = study.trial
    if trial is None or trial.kind is not TrialKind.WATCH:
        names = study.plan.target.stable_names
        return Decision(
            begin(study, _production_trial(study, seen, TrialKind.WATCH, names, 1.0)),
            None,
            "watch production",
        )
    if trial.verdict is Verdict.ACCEPT:
        text = f"{trial.configuration.describe()} holds in production: {trial.reason}"
        return ending(study, Outcome.PROMOTED, text, seen.at)
    return ending(study, Outcome.ABORTED, f"rolled back: {trial.reason}", seen.at)


def _production_trial(
    study: Study, seen: Observation, kind: TrialKind, replicas: tuple[str, ...], share: float
) -> Trial:
    winner = winning_configuration(study)
    assert winner is not None
    return Trial(len(study.trials), kind, replicas, winner, (Level(0, share),), TrialState.PROPOSED, seen.at)


def too_late_to_cancel(study: Study) -> str:
    """Return why a cancellation would change nothing of how the study ends; empty while it is obeyed.

    On Kubernetes what production would be restored from goes with the canary.
    """
    if study.phase is Phase.ENDED:
        return "it has already ended"
    leaving = study.canary_since is None or (
        study.pending is not None and isinstance(study.pending.action, TakeDown)
    )
    promoted = study.phase is Phase.RESTORATION and study.intended is Outcome.PROMOTED
    if promoted and leaving and study.plan.target.workload is not None:
        return "its promotion stands, and it ends within moments: then roll it back"
    return ""


def recalled(study: Study, seen: Observation) -> Study:
    """Return the study with its promotion recalled, where an operator cancelled it while all was being put right.

    The tick that ended the watch may not have known of the wish: whoever was told that the study restores must not find
    the winner in production. No store ends a study over a cancellation that its last tick did not know of, nor records
    one that comes too late.
    """
    if seen.wish is not Wish.CANCEL or study.intended is not Outcome.PROMOTED or too_late_to_cancel(study):
        return study
    reason = f"cancelled by an operator, after this: {study.reason}"
    return replace(study, intended=Outcome.ABORTED, reason=reason, phase_since=seen.at)


def restore(study: Study, seen: Observation) -> Decision:
    """Return the next step towards the study's end: weights first, then configurations, then nothing is left.

    While a stable replica has still to be put right the canary stands in for it, if it can. A gateway that does
    not answer keeps no replica from its configuration; what is not put right within the limit is named.
    """
    incumbent = study.incumbent
    if incumbent is None or (study.plan.target.workload is not None and study.canary_since is None):
        return _cleared(study, seen)
    wrong = [name for name in _touched(study) if not _right(study, incumbent, name, seen)]
    late, given_up = _lateness(study, seen)
    wanted = _weights_while(study, incumbent, [] if late else wrong, wrong, seen)
    if seen.weights is not None and not _given(study, seen.weights, wanted) and not given_up:
        return acting(study, SetWeights(wanted), seen.at, "give production its traffic back")
    if late:
        return _cleared(study, seen, _unrestored(study, seen, wrong, wanted))
    for name in wrong:
        if name in seen.fingerprints:
            return _restore_replica(study, name, seen)
    if seen.weights is None:
        return acting(study, SetWeights(wanted), seen.at, "give production its traffic back")
    if wrong:
        waiting = ", ".join(f"{name} ({seen.faults.get(name, 'no answer')})" for name in wrong)
        return Decision(study, None, f"waiting to restore {waiting}", study.plan.pace.look_interval)
    open_end = _open_end(study, seen)
    if open_end:
        soon = min(study.plan.pace.look_interval, study.plan.pace.flush_interval)
        return Decision(study, None, f"all is restored; waiting for {open_end}", soon)
    return _cleared(study, seen)


def _open_end(study: Study, seen: Observation) -> str:
    """What is still to be learnt of a study that is otherwise over; empty for nothing."""
    if any(trial.tail for trial in study.trials):
        return "the last answers, to count the harm"
    return "what traces tell of the last slow requests" if awaited(study, seen.at) else ""


def _cleared(study: Study, seen: Observation, trouble: Sequence[str] = ()) -> Decision:
    """Take down the canary that this study put up, then end. One that cannot be taken down is left to the reaper."""
    if PERSON not in study.reason:  # told once, however often taking the canary down has to be tried
        study = _troubled(study, seen, "; ".join(trouble))
    if study.canary_since is None:
        return _ended(study, seen)
    if seen.at - (study.phase_since or seen.at) < 2 * _limit(study):
        return acting(study, TakeDown(), seen.at, "take the canary down and give the route back")
    return _ended(_troubled(study, seen, "the canary could not be taken down; the reaper will"), seen)


def _limit(study: Study) -> timedelta:
    """How long everything that the study is answerable for may take to be put right."""
    return study.plan.pace.restore_limit * max(1, len(_touched(study)))


def _lateness(study: Study, seen: Observation) -> tuple[bool, bool]:
    """Whether the limit for all replicas together is over, and whether even the weights are given up."""
    limit = _limit(study)
    taken = seen.at - (study.phase_since or seen.at)
    return taken >= limit, taken >= 2 * limit


def _weights_while(
    study: Study, incumbent: Incumbent, restoring: list[str], wrong: list[str], seen: Observation
) -> dict[str, int]:
    """Return the weights while the replicas `restoring` are put right and those `wrong` are not to be used."""
    canary = study.plan.target.canary.name
    stable = [name for name in restoring if name != canary and name in seen.fingerprints]
    if stable and seen.fingerprints.get(canary) in known_fingerprints(study)[canary]:
        return relieved_weights(study.plan, incumbent, stable[0], 0.0)
    return canary_weights(study.plan, incumbent, 0.0) if canary in wrong else dict(incumbent.weights)


def _given(study: Study, weights: Mapping[str, int], wanted: Mapping[str, int]) -> bool:
    """Say whether production has its traffic: by the weights wanted, or because the canary has no place any more.

    It has none once taking the canary down has begun, or when somebody took it out of the route.
    """
    canary = study.plan.target.canary.at_gateway
    gone = study.plan.target.workload is not None and canary not in weights
    return gone or dict(weights) == dict(wanted)


def _unrestored(study: Study, seen: Observation, wrong: list[str], wanted: Mapping[str, int]) -> list[str]:
    """Return what could not be put right and why, one text each."""
    found = []
    if seen.weights is None or not _given(study, seen.weights, wanted):
        why = "they do not stay as they are set" if seen.weights else seen.faults.get("gateway", "no answer")
        found.append(f"the weights could not be restored: {why}")
    for name in wrong:
        late = "a load that was given up may still take effect"
        why = seen.faults.get(name, late if name in study.unsettled else "it does not take the configuration")
        found.append(f"{name} could not be restored: {why}")
    return found


def _touched(study: Study) -> tuple[str, ...]:
    """Replicas whose configuration the study is answerable for, production before the canary.

    A canary that is taken down afterwards need not be put right first. Pods are answered for together once one of them
    is promoted: whichever is replaced meanwhile comes back with the winner, and under another name of ours.
    """
    target = study.plan.target
    canary = (target.canary.name,) if target.workload is None else ()
    if study.plan.reverses is not None:
        return (*target.stable_names, *canary)
    staged = {name for t in study.trials if t.kind is TrialKind.STAGE for name in t.replicas}
    if staged and target.workload is not None:
        return target.stable_names
    return (*(name for name in target.stable_names if name in staged), *canary)


def _right(study: Study, incumbent: Incumbent, name: str, seen: Observation) -> bool:
    served = seen.fingerprints.get(name)
    if served is None:
        return False
    if name != study.plan.target.canary.name and served not in known_fingerprints(study)[name]:
        return True
    if name in study.unsettled:
        return False
    winner = winning_configuration(study)
    if study.intended is Outcome.PROMOTED and winner is not None:
        return served == _fingerprint(incumbent, name, winner)
    return served == incumbent.fingerprints[name]


def _restore_replica(study: Study, name: str, seen: Observation) -> Decision:
    winner = winning_configuration(study)
    if study.intended is Outcome.PROMOTED and winner is not None:
        return acting(study, Load(name, winner), seen.at, f"put the winner on {name}")
    return acting(study, Restore(name), seen.at, f"put the incumbent back on {name}")


def restored(study: Study, result: ActionResult) -> Decision:
    """Return the study once the outcome of a restoring action is known; what failed is tried again."""
    action = study.pending.action if study.pending else None
    study = replace(study, pending=None)
    if isinstance(action, Load | Restore):
        study = settled(study, action.replica, result)
    if result.done and isinstance(action, TakeDown):
        study = replace(study, canary_since=None)
    if result.done:
        return Decision(study, None, "done")
    return Decision(study, None, f"not restored yet: {result.reason}", study.plan.pace.look_interval)


def _troubled(study: Study, seen: Observation, trouble: str) -> Study:
    """What the stable replicas serve decides whether it stands; any other trouble only calls a person."""
    if not trouble:
        return study
    outcome = study.intended or Outcome.ABORTED
    outcome = outcome if _stands(study, outcome, seen) else Outcome.ABORTED
    return replace(study, intended=outcome, reason=f"{study.reason}; {trouble}: {PERSON}")


def _ended(study: Study, seen: Observation) -> Decision:
    outcome = study.intended or Outcome.ABORTED
    trials = tuple(folded(trial) for trial in study.trials)
    study = replace(study, trials=trials, outcome=outcome, ended_at=seen.at)
    study = entered(study, "restored", seen.at)
    return Decision(study, None, study.reason)


def _stands(study: Study, outcome: Outcome, seen: Observation) -> bool:
    """Say whether every stable replica serves what a promotion, or taking one back, was to bring.

    A pod that is not there comes back with what the ConfigMap says, which is the same; where none is read at all,
    nothing is known.
    """
    incumbent, winner = study.incumbent, winning_configuration(study)
    if outcome not in (Outcome.PROMOTED, Outcome.ROLLED_BACK) or incumbent is None or winner is None:
        return False
    back = outcome is Outcome.ROLLED_BACK
    wanted = {
        name: incumbent.fingerprints[name] if back else _fingerprint(incumbent, name, winner)
        for name in study.plan.target.stable_names
    }
    workload = study.plan.target.workload
    comes_back = workload is not None and bool(workload.config_map)
    return any(name in seen.fingerprints for name in wanted) and all(
        seen.fingerprints.get(name, served if comes_back else None) == served
        for name, served in wanted.items()
    )

"""The states of a study and `next_step`: a pure function from records and observations to the next action.

A study is a sequence of trials; `procedure` carries a trial through, this module says which trial comes next
and when the study is over. Every phase change is in one table; anything unlisted raises.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from autotuner.domain import confirmation, procedure, reversal, rollout
from autotuner.domain.aftermath import aftermath
from autotuner.domain.configuration import fingerprint, read_configuration, with_configuration
from autotuner.domain.dispersion import with_learnt_dispersion
from autotuner.domain.evidence import NONE
from autotuner.domain.explaining import explained
from autotuner.domain.findings.preflight import hopeless, time_for_a_verdict, unlike_production
from autotuner.domain.judgement import Counts, Verdict
from autotuner.domain.measurement import Sample
from autotuner.domain.needs import Ground, lacking, needs, uncertain
from autotuner.domain.observation import WORKLOAD, ActionResult, Decision, Observation, acting
from autotuner.domain.phases import ending, entered
from autotuner.domain.provenance import UNKNOWN, Provenance, differences, together
from autotuner.domain.ramp import (
    affordable,
    fair_share,
    ladder,
    limited_ladder,
    reserve_requests,
    warm_up_level,
)
from autotuner.domain.selection import choose
from autotuner.domain.study import (
    Action,
    Incumbent,
    Level,
    Outcome,
    Phase,
    Propose,
    PutUp,
    Restore,
    Step,
    Study,
    StudyPlan,
    TakeDown,
    Trial,
    TrialKind,
    TrialState,
    Wish,
)
from autotuner.domain.trial_states import begin
from autotuner.errors import AutotunerError, Refused

UNMEASURED_IN_A_ROW = 2
"""After so many candidates that could not be measured the study ends: something else is wrong."""

TUNING = (Phase.CREATED, Phase.BASELINE, Phase.SEARCH, Phase.CONFIRMATION)
"""What the study's time limit is for: waiting for approval has its own, and a promotion is not cut short."""


def next_step(study: Study, seen: Observation) -> Decision:
    """Return what to do next. Pure: the same study and observation give the same decision.

    The study must not have ended nor have a pending action (its outcome comes first, see `absorb`).
    """
    if study.phase is Phase.ENDED or study.pending is not None:
        raise AutotunerError(
            f"study {study.id}: no next step in phase {study.phase} with pending {study.pending}"
        )
    study = explained(aftermath(study, seen), seen)
    if study.phase is Phase.RESTORATION:
        return rollout.restore(rollout.recalled(study, seen), seen)
    if study.plan.reverses is not None:
        return reversal.begin(study, study.plan.reverses, seen)
    over = _over(study, seen)
    if over is not None:
        return over
    if study.trial is not None and study.trial.state is not TrialState.JUDGED:
        return procedure.advance(study, seen)
    return _PLANNERS[study.phase](study, seen)


def absorb(study: Study, result: ActionResult) -> Decision:
    """Return the study once the outcome of its pending action is known."""
    if study.pending is None:
        raise AutotunerError(f"study {study.id}: an outcome came without a pending action")
    action: Action = study.pending.action
    if study.phase is Phase.RESTORATION:
        return rollout.restored(study, result)
    if isinstance(action, Propose):
        return _proposed(replace(study, pending=None), result)
    if isinstance(action, PutUp):
        return _put_up(replace(study, pending=None), result)
    if isinstance(action, Restore | TakeDown):
        raise AutotunerError(f"study {study.id}: a restore was pending in phase {study.phase}")
    trial = study.trial
    assert trial is not None
    return procedure.absorb(study, trial, action, result)


def _over(study: Study, seen: Observation) -> Decision | None:
    """What ends a study from outside, whatever it is doing."""
    if seen.wish is Wish.CANCEL:
        return ending(study, Outcome.ABORTED, "cancelled by an operator", seen.at)
    if seen.clearance.end:
        return ending(study, Outcome.ABORTED, seen.clearance.end, seen.at)
    budget = study.plan.slo.harm_budget_requests
    if study.harm_requests >= budget:
        return ending(study, Outcome.ABORTED, f"the harm budget of {budget} requests is spent", seen.at)
    stuck = _stuck(study, seen)
    if stuck:
        return ending(study, Outcome.ABORTED, stuck, seen.at)
    changed = _changed_by_others(study, seen)
    if changed:
        return ending(study, Outcome.ABORTED, changed, seen.at)
    if study.phase in TUNING and seen.at - study.created_at >= study.plan.pace.study_limit:
        return ending(study, Outcome.INCONCLUSIVE, "the study's time is up", seen.at)
    return None


def _stuck(study: Study, seen: Observation) -> str:
    """Weights that cannot be set for longer than a restoration may take: nothing can be measured or withdrawn."""
    trial = study.trial
    if trial is None or trial.state not in (TrialState.APPLIED, TrialState.RETREATING):
        return ""
    if trial.blocked_since is None or seen.at - trial.blocked_since < study.plan.pace.restore_limit:
        return ""
    return f"the gateway's weights could not be set: {seen.faults.get('gateway', 'it refuses them')}"


def _changed_by_others(study: Study, seen: Observation) -> str:
    """A stable replica that serves neither the incumbent nor the winner was changed by somebody else."""
    if study.canary_since is not None and WORKLOAD in seen.faults:
        return f"production is not what this study began with: {seen.faults[WORKLOAD]}"
    if study.incumbent is None:
        return ""
    known = rollout.known_fingerprints(study)
    for name in study.plan.target.stable_names:
        served = seen.fingerprints.get(name)
        if served is not None and served not in known[name]:
            return f"{name} serves neither the incumbent nor the winner: somebody else changed it"
    return _another_version(study, seen)


def _another_version(study: Study, seen: Observation) -> str:
    """A load reads the model repository again: a version that somebody put there meanwhile is loaded with it."""
    assert study.incumbent is not None
    began = Provenance(study.incumbent.provenance.model_versions)
    for name, counted in (seen.sample.servers if seen.sample else {}).items():
        different = differences(began, Provenance(counted.model_versions))
        if different:
            return f"{name} has loaded {different[0]}: what was measured so far does not hold for it"
    return ""


# -- created ---------------------------------------------------------------------------------------------------


def _inspect(study: Study, seen: Observation) -> Decision:
    """Read production as it is; refuse what cannot be tuned before anything is touched."""
    plan = study.plan
    if seen.clearance.start:
        return Decision(study, None, f"waiting: {seen.clearance.start}", plan.pace.look_interval)
    if plan.target.workload is not None and study.canary_since is None:
        text = f"put up a canary beside {plan.target.workload}"
        return acting(replace(study, canary_since=seen.at), PutUp(), seen.at, text)
    names = [replica.name for replica in plan.target.replicas]
    absent = [name for name in names if name not in seen.configs]
    faults = [f"{name}: {seen.faults.get(name, 'no answer')}" for name in absent]
    if seen.weights is None:
        faults.append(f"gateway: {seen.faults.get('gateway', 'no answer')}")
    unread = seen.sample.missing(names, plan.target.backends(names)) if seen.sample else ""
    if seen.sample is None or unread:
        faults.append(f"metrics of {unread or seen.faults.get('metrics', 'no answer')}")
    if faults or seen.sample is None or seen.weights is None:
        if seen.at - (study.canary_since or study.created_at) >= _patience(study, absent):
            return ending(
                study, Outcome.ABORTED, f"the target could not be read: {'; '.join(faults)}", seen.at
            )
        return Decision(study, None, f"waiting: {'; '.join(faults)}", plan.pace.look_interval)
    found = needs(_ground(plan, seen, seen.sample))
    try:
        incumbent = _incumbent(study, seen)
    except AutotunerError as error:
        return ending(study, Outcome.ABORTED, f"this target cannot be tuned: {error}", seen.at)
    if missing := lacking(found):
        return ending(study, Outcome.ABORTED, f"this target cannot be tuned: {missing}", seen.at)
    study = entered(replace(study, incumbent=incumbent), "inspected", seen.at)
    text = f"production runs {incumbent.configuration.describe()}"
    open_questions = uncertain(found) if plan.tells_needs else ""
    return Decision(
        study, None, f"{text}; of what a study needs {open_questions}" if open_questions else text
    )


def _ground(plan: StudyPlan, seen: Observation, sample: Sample) -> Ground:
    """What the first look shows; the weights were read, and how much traffic comes is measured next."""
    first = plan.target.stable_names[0]
    memory = [(one.memory_used_bytes, one.memory_total_bytes) for one in sample.servers.values()]
    return Ground(
        ceiling_seconds=plan.slo.p99_ceiling_seconds,
        config=json.loads(seen.configs[first]),
        edges_seconds=sample.edges_seconds,
        rate_per_second=None,
        memory=tuple((used, total) for used, total in memory if used is not None and total),
        alone=None,
        weighted=True,
        route="its weights were read",
        replicas=len(plan.target.replicas),
        control="no server tells its --model-control-mode: the first load will show it",
    )


def _patience(study: Study, absent: Sequence[str]) -> timedelta:
    """How long to wait until all can be read: a canary that was just put up must be scheduled, pulled and loaded."""
    pace, target = study.plan.pace, study.plan.target
    rising = study.canary_since is not None and absent == [target.canary.name]
    return pace.load_limit if rising else pace.no_data_limit


def _put_up(study: Study, result: ActionResult) -> Decision:
    if result.done:
        return Decision(study, None, "the canary is put up; waiting until it serves")
    if result.retry and result.at - (study.canary_since or result.at) < study.plan.pace.load_limit:
        return acting(study, PutUp(), result.at, f"put up the canary again: {result.reason}")
    return ending(study, Outcome.ABORTED, f"there is no canary: {result.reason}", result.at)


def _incumbent(study: Study, seen: Observation) -> Incumbent:
    """Return production as found. Raises Refused when the replicas do not serve one and the same model."""
    target, most = study.plan.target, study.plan.slo.max_canary_share
    if target.only_share is not None and target.only_share > most:
        raise Refused(
            f"without weights the canary gets {target.only_share:.0%} of the requests, "
            f"and the SLO budget allows {most:.0%}"
        )
    first = target.stable_names[0]
    config = json.loads(seen.configs[first])
    configuration = read_configuration(config)
    prints = {name: fingerprint(json.loads(text)) for name, text in seen.configs.items()}
    for name in target.stable_names:
        if prints[name] != prints[first]:
            raise Refused(
                f"{name} and {first} serve different configurations: make the stable replicas equal first"
            )
    canary = with_configuration(json.loads(seen.configs[target.canary.name]), configuration)
    if fingerprint(canary) != prints[first]:
        raise Refused(
            "the canary differs from production in more than the tuned fields: deploy the same model on it"
        )
    provenance = _same_provenance(study, seen)
    weights = dict(seen.weights or {})
    missing = [name for name in target.backends(r.name for r in target.replicas) if name not in weights]
    if missing:
        raise Refused(f"the gateway has no weight for {', '.join(missing)}")
    return Incumbent(configuration, dict(seen.configs), prints, weights, provenance)


def _same_provenance(study: Study, seen: Observation) -> Provenance:
    """Return what all replicas run. Raises Refused where two are known to run different things."""
    found = {name: _provenance(seen, name) for name in (r.name for r in study.plan.target.replicas)}
    known = UNKNOWN
    for name, each in found.items():
        different = differences(known, each)
        if different:
            raise Refused(f"{name} runs {' and '.join(different)}: deploy the same on every replica first")
        known = together([known, each])
    return known


def _provenance(seen: Observation, replica: str) -> Provenance:
    told = (seen.provenances or {}).get(replica, UNKNOWN)
    counted = seen.sample.servers.get(replica) if seen.sample else None
    return replace(told, model_versions=counted.model_versions) if counted else told


# -- baseline --------------------------------------------------------------------------------------------------


def _new_trial(
    study: Study, kind: TrialKind, replicas: tuple[str, ...], levels: tuple[Level, ...], at: datetime
) -> Trial:
    assert study.incumbent is not None
    return Trial(
        len(study.trials), kind, replicas, study.incumbent.configuration, levels, TrialState.PROPOSED, at
    )


def _baseline(study: Study, seen: Observation) -> Decision:
    """Production as found, then the incumbent on the canary, before anything new is tried."""
    target = study.plan.target
    trial = study.trial
    if trial is None:
        trial = _new_trial(study, TrialKind.PRODUCTION, target.stable_names, (Level(0, 1.0),), seen.at)
        return Decision(begin(study, trial), None, "measure production as it is")
    if trial.kind is TrialKind.PRODUCTION:
        return _after_production(study, trial, seen)
    return _after_baseline(study, trial, seen)


def _after_production(study: Study, trial: Trial, seen: Observation) -> Decision:
    if trial.verdict not in (Verdict.ACCEPT, Verdict.REJECT):
        text = f"production could not be measured: {trial.reason}"
        if trial.verdict is Verdict.INCONCLUSIVE:
            text += f"; {time_for_a_verdict(study, trial)}"
        return ending(study, Outcome.INCONCLUSIVE, text, seen.at)
    step = trial.steps[-1]
    study = replace(
        study,
        reference_rate_per_second=step.total_rate_per_second,
        control_baseline=step.candidate,
    )
    study = with_learnt_dispersion(study)
    baseline = _new_trial(
        study, TrialKind.BASELINE, (study.plan.target.canary.name,), ladder(study.plan), seen.at
    )
    return Decision(begin(study, baseline), None, "measure the incumbent on the canary (A/A)")


def _after_baseline(study: Study, trial: Trial, seen: Observation) -> Decision:
    steps = [step for step in trial.steps if step.level.number >= 0]
    reason = hopeless(study, trial)
    if reason:
        return ending(study, Outcome.KEPT, reason, seen.at)
    if trial.verdict in (Verdict.INCONCLUSIVE, Verdict.VOID) or not trial.steps:
        text = f"the incumbent could not be measured: {trial.reason}"
        if trial.verdict is Verdict.INCONCLUSIVE:
            text += f"; {time_for_a_verdict(study, trial)}"
        return ending(study, Outcome.INCONCLUSIVE, text, seen.at)
    reason = unlike_production(study, trial)
    if reason:
        return ending(study, Outcome.INCONCLUSIVE, reason, seen.at)
    study = with_learnt_dispersion(replace(study, control_baseline=_control(steps)))
    return Decision(
        entered(study, "baseline measured", seen.at), None, "the baseline is known; the search begins"
    )


def _control(steps: Sequence[Step]) -> Counts:
    """What the stable replicas are like while nothing moves: a window that was void says nothing of that."""
    return sum((step.control for step in steps if step.verdict is not Verdict.VOID), NONE)


# -- search ----------------------------------------------------------------------------------------------------


def _search(study: Study, seen: Observation) -> Decision:
    if seen.wish is Wish.PAUSE:
        return Decision(study, None, "paused by an operator", study.plan.pace.look_interval)
    if seen.clearance.start:
        return Decision(study, None, f"waiting: {seen.clearance.start}", study.plan.pace.look_interval)
    stop = _search_is_over(study)
    if stop:
        return _searched(study, stop, seen.at)
    number = len(study.trials)
    return acting(study, Propose(number), seen.at, f"ask for configuration {number}")


def _search_is_over(study: Study) -> str:
    candidates = [t for t in study.trials if t.kind is TrialKind.CANDIDATE]
    if len(candidates) >= study.plan.max_trials:
        return f"all {study.plan.max_trials} trials are done"
    first = Level(0, max(fair_share(study.plan), warm_up_level(study.plan).share))
    if not affordable(study, first):
        return "the rest of the harm budget could not pay for another trial going wrong"
    if not _confirmable(study, first):
        return "the rest of the harm budget is kept for confirming the best candidate"
    last = candidates[-UNMEASURED_IN_A_ROW:]
    if len(last) == UNMEASURED_IN_A_ROW and all(_unmeasured(t) for t in last):
        return "candidates can no longer be measured"
    return ""


def _confirmable(study: Study, first: Level) -> bool:
    """Whether, after one more trial gone wrong, the best candidate so far could still be confirmed at its height."""
    best = choose(study).trial
    if best is None:
        return True
    left = study.plan.slo.harm_budget_requests - study.harm_requests
    return left >= reserve_requests(study, first) + reserve_requests(study, best.accepted[-1].level)


def _unmeasured(trial: Trial) -> bool:
    return trial.verdict in (Verdict.VOID, Verdict.INCONCLUSIVE)


def _proposed(study: Study, result: ActionResult) -> Decision:
    if not result.done:
        return ending(study, Outcome.ABORTED, f"no proposal: {result.reason}", result.at)
    if result.proposal is None:
        return _searched(study, result.reason or "nothing is worth another trial", result.at)
    levels = limited_ladder(
        study.plan, study.reference_rate_per_second or 0.0, result.proposal.highest_rate_per_second
    )
    trial = replace(
        _new_trial(study, TrialKind.CANDIDATE, (study.plan.target.canary.name,), levels, result.at),
        configuration=result.proposal.configuration,
        proposal=result.proposal,
    )
    return Decision(begin(study, trial), None, result.proposal.reason)


def _searched(study: Study, why: str, at: datetime) -> Decision:
    choice = choose(study)
    if choice.trial is not None:
        study = entered(replace(study, winner=choice.trial.number), "winner chosen", at)
        return Decision(study, None, f"{why}; {choice.reason}")
    candidates = [t for t in study.trials if t.kind is TrialKind.CANDIDATE]
    unmeasured = [t for t in candidates if _unmeasured(t)]
    outcome = Outcome.INCONCLUSIVE if unmeasured and len(unmeasured) == len(candidates) else Outcome.KEPT
    return ending(study, outcome, f"{why}; {choice.reason}", at)


# -- approval --------------------------------------------------------------------------------------------------


def _approval(study: Study, seen: Observation) -> Decision:
    if seen.wish is Wish.APPROVE:
        return Decision(entered(study, "approved", seen.at), None, "approved by an operator")
    if seen.wish is Wish.DISAPPROVE:
        return ending(study, Outcome.KEPT, "an operator did not approve the winner", seen.at)
    if study.phase_since and seen.at - study.phase_since >= study.plan.pace.approval_limit:
        return ending(study, Outcome.KEPT, "nobody approved the winner in time", seen.at)
    return Decision(study, None, "waiting for approval", study.plan.pace.look_interval)


_PLANNERS = {
    Phase.CREATED: _inspect,
    Phase.BASELINE: _baseline,
    Phase.SEARCH: _search,
    Phase.CONFIRMATION: confirmation.confirm,
    Phase.APPROVAL: _approval,
    Phase.PROMOTION: rollout.promote,
    Phase.WATCH: rollout.watch,
}

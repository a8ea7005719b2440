"""How one configuration is put on its replicas and measured up the load ramp: the same way for every kind of trial.

Each step moves a trial along the table of `trial_states`, at the weights of `routing`. Whatever goes wrong while
users are exposed, the next action takes the traffic away; only then is it decided whose fault it was (guards rules
3 and 6). What outlives a window is counted in `aftermath`.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from autotuner.domain.aftermath import DRAIN_LIMIT, closed_window, folded, settled
from autotuner.domain.evidence import (
    Evidence,
    answering,
    closed_step,
    looked,
    open_for,
    recounted,
    spoilt,
    stale,
    too_thin,
    unreadable,
    weigh,
    window_limit,
    window_minimum,
)
from autotuner.domain.judgement import Judgement, Verdict
from autotuner.domain.measurement import Sample
from autotuner.domain.observation import ActionResult, Decision, Observation, acting
from autotuner.domain.ramp import affordable
from autotuner.domain.routing import level_weights, next_level, no_stand_in, parked_weights, retreat_weights
from autotuner.domain.study import (
    IN_PRODUCTION,
    Level,
    Load,
    OpenWindow,
    SetWeights,
    Study,
    Trial,
    TrialKind,
    TrialState,
)
from autotuner.domain.trial_states import incumbent_of, moved, wanted_fingerprint, with_trial

COLD = timedelta(seconds=1)
"""The first second after a load is slow whatever the configuration (seen on the real server): never evidence."""


def advance(study: Study, seen: Observation) -> Decision:
    """Return the next step of the study's newest trial, which must not be judged yet."""
    trial = study.trial
    assert trial is not None
    if trial.state is TrialState.PROPOSED:
        return _apply(study, trial, seen)
    if trial.state is TrialState.APPLIED:
        return _route(study, trial, seen)
    if trial.state is TrialState.RETREATING:
        return _retreat(study, trial, seen)
    return _measure(study, trial, seen)


def _hold(study: Study, reason: str) -> Decision:
    return Decision(study, None, reason, study.plan.pace.look_interval)


def _apply(study: Study, trial: Trial, seen: Observation) -> Decision:
    """Put the configuration on every replica under test, one at a time, with no traffic on it."""
    incumbent = incumbent_of(study)
    alone = _stands_alone(study, trial, seen)
    if alone is not None:
        return alone
    for replica in trial.replicas:
        if replica not in seen.fingerprints:
            return _blocked(
                study, trial, seen, f"{replica} is not ready: {seen.faults.get(replica, 'no answer')}"
            )
        right = seen.fingerprints[replica] == wanted_fingerprint(incumbent, replica, trial)
        if right and replica not in study.unsettled:
            continue
        if trial.kind is TrialKind.PRODUCTION:
            return _blocked(
                study, trial, seen, f"{replica} does not serve the configuration it was found with"
            )
        emptied = _empty(study, trial, seen, replica)
        if emptied is not None:
            return emptied
        if trial.blocked_since and seen.at - trial.blocked_since >= study.plan.pace.load_limit:
            return _unapplied(
                study, trial, seen.at, f"{replica} did not take the configuration in time", Verdict.VOID
            )
        return acting(
            study,
            Load(replica, trial.configuration),
            seen.at,
            f"load {trial.configuration.describe()} on {replica}",
        )
    if trial.kind not in IN_PRODUCTION:
        emptied = _empty(study, trial, seen, trial.replicas[0])
        if emptied is not None:
            return emptied
    trial = replace(moved(trial, "applied"), blocked_since=None, draining_since=None)
    return Decision(
        with_trial(study, trial), None, f"{trial.configuration.describe()} is on {', '.join(trial.replicas)}"
    )


def _stands_alone(study: Study, trial: Trial, seen: Observation) -> Decision | None:
    """Wait with production's own weights while a stage has no canary to stand in for it; None when it has."""
    why = no_stand_in(study, trial, seen) if trial.kind is TrialKind.STAGE else ""
    if not why:
        return None
    weights = dict(incumbent_of(study).weights)
    if seen.weights is not None and dict(seen.weights) != weights:
        return acting(study, SetWeights(weights), seen.at, f"production's own weights: {why}")
    return _blocked(study, trial, seen, why)


def _empty(study: Study, trial: Trial, seen: Observation, replica: str) -> Decision | None:
    """Take the traffic off a replica and let it finish what it has; None once it is empty, or will not become so."""
    if seen.weights is None:
        return _blocked(study, trial, seen, f"gateway: {seen.faults.get('gateway', 'no answer')}")
    parked = parked_weights(study, trial)
    if dict(seen.weights) != parked:
        return acting(study, SetWeights(parked), seen.at, f"take the traffic off {replica}")
    target = study.plan.target
    backend = target.replica(replica).at_gateway
    if len(target.behind(backend)) > 1:
        return None  # the others behind it go on answering: when this one is empty cannot be seen
    counters = seen.sample.gateway.get(backend) if seen.sample else None
    waiting = counters.sent - counters.ended if counters else 0
    since = min(trial.draining_since or seen.at, seen.at)
    old = _counted_before(seen, trial.draining_since or seen.at - study.plan.pace.look_interval)
    if (waiting <= 0 and not old) or seen.at - since >= DRAIN_LIMIT:
        return None
    trial = replace(trial, draining_since=since)
    what = "may still have requests to answer" if old else f"still has {waiting} requests to answer"
    return _hold(with_trial(study, trial), f"{replica} {what}")


def _counted_before(seen: Observation, instant: datetime) -> bool:
    """Whether the newest counters are from before an instant: a metrics server knows only what it last scraped."""
    return seen.sample is not None and seen.sample.at < instant


def _blocked(study: Study, trial: Trial, seen: Observation, why: str) -> Decision:
    since = min(trial.blocked_since or seen.at, seen.at)
    if seen.at - since >= study.plan.pace.load_limit:
        return _unapplied(study, trial, seen.at, why, Verdict.VOID)
    return _hold(with_trial(study, replace(trial, blocked_since=since)), f"waiting: {why}")


def _unapplied(study: Study, trial: Trial, at: datetime, why: str, verdict: Verdict) -> Decision:
    trial = moved(trial, "could not be applied")
    trial = replace(trial, verdict=verdict, reason=f"{verdict}: {why}", limited_by="load", ended_at=at)
    return Decision(with_trial(study, trial), None, trial.reason)


def _route(study: Study, trial: Trial, seen: Observation) -> Decision:
    """Give the replicas under test their next level of traffic."""
    incumbent = incumbent_of(study)
    for replica in trial.replicas:
        served = seen.fingerprints.get(replica)
        if served is None:
            return _spoil(
                study, trial, seen, f"{replica} is not ready: {seen.faults.get(replica, 'no answer')}"
            )
        if served != wanted_fingerprint(incumbent, replica, trial):
            return _spoil(study, trial, seen, f"{replica} no longer serves the configuration on trial")
    level = next_level(study, trial)
    alone = _alone(study, trial, level, seen)
    if alone:
        return _spoil(study, trial, seen, alone)
    if trial.kind not in IN_PRODUCTION and not affordable(study, level):
        return _unaffordable(study, trial, level, seen)
    weights = level_weights(study, trial, level)
    if trial.kind in (TrialKind.PRODUCTION, TrialKind.WATCH) and seen.weights == weights:
        return Decision(
            with_trial(study, _routed(trial, level, seen.at)), None, "production's own weights are set"
        )
    name = "warm up with" if level.number < 0 else f"level {level.number + 1} of {len(trial.levels)}:"
    text = f"{name} {level.share:.0%} of the requests on {', '.join(trial.replicas)}"
    return acting(study, SetWeights(weights), seen.at, text)


def _unaffordable(study: Study, trial: Trial, level: Level, seen: Observation) -> Decision:
    """End a trial whose next level the harm budget could not pay for; what it has reached stands."""
    verdict = Verdict.ACCEPT if trial.accepted else Verdict.INCONCLUSIVE
    reason = (
        f"{verdict.name}: the rest of the harm budget could not pay for {level.share:.0%} of the requests "
        f"on {trial.replicas[0]} going wrong"
    )
    trial = replace(moved(trial, "unaffordable"), verdict=verdict, limited_by="harm budget")
    return _leave(study, trial, seen, reason)


def _alone(study: Study, trial: Trial, level: Level, seen: Observation) -> str:
    """Why a stage that warms up has nobody to carry the rest of its traffic; empty for all else."""
    return no_stand_in(study, trial, seen) if trial.kind is TrialKind.STAGE and level.number < 0 else ""


def _routed(trial: Trial, level: Level, at: datetime) -> Trial:
    trial = replace(trial, blocked_since=None)
    trial = moved(trial, "warm-up routed" if level.number < 0 else "level routed")
    return replace(trial, window=OpenWindow(level, trial.voids, at))


def _measure(study: Study, trial: Trial, seen: Observation) -> Decision:
    """Take one look at an open window: withdraw when it is spoilt or judged, keep looking otherwise."""
    window = trial.window
    assert window is not None
    weights = level_weights(study, trial, window.level)
    for replica in trial.replicas:
        if seen.fingerprints.get(replica, "") not in (
            "",
            wanted_fingerprint(incumbent_of(study), replica, trial),
        ):
            return _spoil(study, trial, seen, f"{replica} no longer serves the configuration on trial")
    if seen.weights is not None and dict(seen.weights) != weights:
        return _spoil(study, trial, seen, "the gateway's weights are not the ones that were set")
    alone = _alone(study, trial, window.level, seen)
    if alone:
        return _spoil(study, trial, seen, alone)
    dark = unreadable(study, trial, seen)
    if dark or seen.sample is None:
        return _blind(study, trial, window, seen, dark)
    newest = window.recent[-1] if window.recent else window.first or window.routed
    if newest is not None and seen.sample.at <= newest.at:
        return _stand_still(study, trial, seen, newest)
    problem = spoilt(study, trial, window, seen.sample, weights)
    if problem:
        return _spoil(study, trial, seen, problem)
    return _look(study, trial, replace(window, blind_since=None), seen, seen.sample)


def _blind(study: Study, trial: Trial, window: OpenWindow, seen: Observation, why: str) -> Decision:
    since = min(window.blind_since or seen.at, seen.at)
    unready = any(replica not in seen.fingerprints for replica in answering(study, trial))
    grace = study.plan.pace.look_interval if unready else study.plan.pace.no_data_limit
    if seen.at - since >= grace:
        return _spoil(study, trial, seen, why)
    window = recounted(study, trial, replace(window, blind_since=since), seen.sample)
    trial = replace(trial, window=window)
    return _hold(with_trial(study, trial), f"waiting: {why}")


def _stand_still(study: Study, trial: Trial, seen: Observation, newest: Sample) -> Decision:
    """Wait for newer counters than those of the last look: a metrics server has them at its next scrape."""
    age = seen.at - newest.at
    if age < -study.plan.pace.look_interval:
        why = "the clock was set back: how long the window has been open is not known"
        return _spoil(study, trial, seen, why)
    if age >= study.plan.pace.no_data_limit:
        return _spoil(study, trial, seen, f"no newer counters for {age.total_seconds():.0f} s")
    return _hold(study, "no newer counters than at the last look")


def _look(study: Study, trial: Trial, window: OpenWindow, seen: Observation, sample: Sample) -> Decision:
    pace = study.plan.pace
    if window.routed is None:
        window = replace(window, routed=sample)
        return _hold(with_trial(study, replace(trial, window=window)), "traffic routed; settling")
    window = looked(study, trial, window, sample)
    if window.first is None:
        settling = pace.settle + (COLD + pace.flush_interval if window.level.number < 0 else timedelta(0))
        if sample.at - window.routed_at < settling:
            return _hold(with_trial(study, replace(trial, window=window)), "settling")
        window = replace(window, first=sample)
        if window.level.number >= 0:
            trial = moved(trial, "settled")
        return _hold(with_trial(study, replace(trial, window=window)), "the window is open")
    return _decide(study, replace(trial, window=window), window, seen, sample)


def _decide(study: Study, trial: Trial, window: OpenWindow, seen: Observation, sample: Sample) -> Decision:
    evidence = weigh(study, trial, window, sample, window_limit(study, trial))
    judgement = evidence.judgement
    if window.level.number < 0:
        return _decide_warm_up(study, trial, window, seen, evidence)
    if judgement is None:
        return _hold(with_trial(study, trial), _progress(evidence))
    if judgement.verdict is Verdict.ACCEPT:
        thin = stale(study, window) or too_thin(study, trial, window, sample)
        if thin and open_for(window, sample.at) >= window_limit(study, trial):
            judgement = replace(judgement, verdict=Verdict.INCONCLUSIVE, reason=f"INCONCLUSIVE: {thin}")
        elif thin or open_for(window, sample.at) < window_minimum(study, trial):
            return _hold(with_trial(study, trial), _progress(evidence) + (f"; {thin}" if thin else ""))
    if judgement.verdict is Verdict.INCONCLUSIVE and open_for(window, sample.at) < window_minimum(
        study, trial
    ):
        return _hold(with_trial(study, trial), _progress(evidence))
    return _close(study, trial, seen, evidence, judgement)


def _decide_warm_up(
    study: Study, trial: Trial, window: OpenWindow, seen: Observation, evidence: Evidence
) -> Decision:
    """While warming up only a clear breach counts; the requests are no evidence for the configuration."""
    judgement = evidence.judgement
    if judgement is not None and judgement.verdict is Verdict.REJECT:
        return _close(study, trial, seen, evidence, judgement)
    if open_for(window, seen.sample.at if seen.sample else seen.at) < study.plan.pace.warm_up:
        return _hold(with_trial(study, trial), f"warming up; {_progress(evidence)}")
    trial = replace(
        moved(trial, "warmed up"), warmed=True, closed_harm_requests=trial.harm_requests, window=None
    )
    return Decision(with_trial(study, trial), None, "warmed up")


def _progress(evidence: Evidence) -> str:
    counts = evidence.candidate
    return f"{counts.bad_at_most} of {counts.total} requests slow or failed so far"


def _close(
    study: Study, trial: Trial, seen: Observation, evidence: Evidence, judgement: Judgement
) -> Decision:
    window, sample = trial.window, seen.sample
    assert window is not None
    assert sample is not None
    step = closed_step(study, trial, window, sample, evidence, judgement)
    closed = closed_window(replace(trial, steps=(*trial.steps, step)), seen.at)
    if step.verdict is Verdict.VOID:
        return _withdraw_void(study, closed, seen, step.judgement.reason)
    trial = folded(closed)
    if step.verdict is Verdict.ACCEPT and len(trial.accepted) < len(trial.levels):
        upward = trial.levels[len(trial.accepted)]
        if affordable(with_trial(study, trial), upward):
            trial = moved(trial, "level accepted")
            return Decision(with_trial(study, trial), None, step.judgement.reason)
        closed = replace(closed, limited_by="harm budget")
    trial = moved(closed, "judged")
    trial = replace(
        trial, verdict=_trial_verdict(trial), limited_by=trial.limited_by or _limit(trial, step.verdict)
    )
    return _leave(study, trial, seen, step.judgement.reason)


def _trial_verdict(trial: Trial) -> Verdict:
    """A trial is accepted if its lowest level was; how high it got is its capacity."""
    return Verdict.ACCEPT if trial.accepted else trial.steps[-1].verdict


def _limit(trial: Trial, verdict: Verdict) -> str:
    if trial.only_teaches and verdict is Verdict.ACCEPT:
        return "proposal"
    return {Verdict.ACCEPT: "traffic", Verdict.REJECT: "ceiling"}.get(verdict, "evidence")


def _spoil(study: Study, trial: Trial, seen: Observation, why: str) -> Decision:
    """The environment, not the configuration, spoilt the window: withdraw, and repeat a bounded number of times."""
    return _withdraw_void(study, closed_window(trial, seen.at), seen, f"VOID: {why}")


def _withdraw_void(study: Study, trial: Trial, seen: Observation, reason: str) -> Decision:
    trial = replace(moved(trial, "spoilt"), voids=trial.voids + 1, reason=reason, draining_since=None)
    if trial.voids > study.plan.max_voids:
        verdict = Verdict.ACCEPT if trial.accepted and trial.kind not in IN_PRODUCTION else Verdict.VOID
        trial = replace(trial, verdict=verdict, limited_by="evidence")
    return _leave(study, trial, seen, reason)


def _leave(study: Study, trial: Trial, seen: Observation, reason: str) -> Decision:
    """Take the traffic off the replicas under test at once."""
    trial = replace(trial, reason=reason)
    action = SetWeights(retreat_weights(study, trial, seen))
    return acting(with_trial(study, trial), action, seen.at, reason)


def _retreat(study: Study, trial: Trial, seen: Observation) -> Decision:
    wanted = retreat_weights(study, trial, seen)
    if seen.weights is None or dict(seen.weights) != wanted:
        return acting(study, SetWeights(wanted), seen.at, f"take the traffic off {', '.join(trial.replicas)}")
    return Decision(with_trial(study, _withdrawn(trial, seen.at)), None, trial.reason)


def _withdrawn(trial: Trial, at: datetime) -> Trial:
    trial = replace(trial, blocked_since=None)
    if trial.verdict is None:
        return replace(moved(trial, "withdrawn to repeat"), warmed=False)
    return replace(moved(trial, "withdrawn"), ended_at=at)


def absorb(study: Study, trial: Trial, action: Load | SetWeights, result: ActionResult) -> Decision:
    """Return the study once the outcome of a trial's action is known."""
    decided_at = study.pending.decided_at if study.pending else result.at
    study = replace(study, pending=None)
    if isinstance(action, Load):
        return _loaded(study, trial, action, result, decided_at)
    if not result.done:
        if trial.state in (TrialState.APPLIED, TrialState.RETREATING):
            study = with_trial(study, replace(trial, blocked_since=trial.blocked_since or decided_at))
        return _hold(study, f"the weights could not be set: {result.reason}")
    if trial.state is TrialState.RETREATING:
        return Decision(with_trial(study, _withdrawn(trial, result.at)), None, trial.reason)
    if trial.state is not TrialState.APPLIED:
        return Decision(study, None, "weights set")
    trial = _routed(trial, next_level(study, trial), result.at)
    return Decision(with_trial(study, trial), None, "weights set")


def _loaded(study: Study, trial: Trial, action: Load, result: ActionResult, decided_at: datetime) -> Decision:
    since = trial.blocked_since or decided_at
    trial = replace(trial, blocked_since=since)
    study = settled(study, action.replica, result)
    if result.done:
        return Decision(with_trial(study, trial), None, f"{action.replica} is loaded")
    if not result.retry:
        return _unapplied(study, trial, result.at, f"it does not load: {result.reason}", Verdict.REJECT)
    if result.at - since >= study.plan.pace.load_limit:
        return _unapplied(study, trial, result.at, f"{action.replica}: {result.reason}", Verdict.VOID)
    return Decision(with_trial(study, trial), None, f"waiting: {result.reason}", timedelta(seconds=1))

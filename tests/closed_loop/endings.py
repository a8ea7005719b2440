"""What must hold at the end of every study, whatever happened to it on the way, and how to get to its middle."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from autotuner.adapters.simulated import small_vision
from autotuner.domain.configuration import Configuration, read_configuration
from autotuner.domain.study import Outcome, Phase, Study, Trial, TrialKind, TrialState
from autotuner.operations import replay
from tests.builders import a_configuration
from tests.closed_loop.loop import Loop, QuickStore, ScriptedProposer, a_short_plan

BETTER = a_configuration(preferred_batch_size=())
"""On the small vision model: more capacity than the incumbent."""

TERRIBLE = a_configuration(max_queue_delay_microseconds=400_000, preferred_batch_size=())
"""Waits for 32 requests or 0.4 s: nearly every request is slow."""


def a_loop(*proposed: Configuration, seed: int = 1, **changes: object) -> Loop:
    """A short study of the small vision model that tries `proposed`, `BETTER` if none is named."""
    tried = proposed or (BETTER,)
    profile = changes.pop("profile", small_vision())
    plan = a_short_plan(max_trials=len(tried), **changes)
    return Loop(plan, profile, seed, ScriptedProposer(*tried), QuickStore())  # type: ignore[arg-type]


def at(
    kind: TrialKind, state: TrialState = TrialState.MEASURING, level: int | None = None
) -> Callable[[Study], bool]:
    """Whether the newest trial is of `kind` and in `state`; at `level`, if one is named."""

    def there(study: Study) -> bool:
        trial = study.trial
        if trial is None or trial.kind is not kind or trial.state is not state:
            return False
        return level is None or (trial.window is not None and trial.window.level.number == level)

    return there


def reached(phase: Phase) -> Callable[[Study], bool]:
    """Whether the study is in `phase`."""
    return lambda study: study.phase is phase


def trials(study: Study, kind: TrialKind) -> list[Trial]:
    """The study's trials of one kind, in order."""
    return [trial for trial in study.trials if trial.kind is kind]


def served(loop: Loop, replica: str) -> Configuration:
    """What a replica serves now."""
    return read_configuration(loop.target.serving.model_config(replica))


def check_ending(loop: Loop, apart_from: Iterable[str] = (), over_budget_by: float = 0.0) -> Study:
    """Assert what must hold at every end and return the study.

    apart_from: replicas that are out of reach or somebody else's, and `gateway`. over_budget_by: harm above the
    budget that is put up with.
    """
    study, apart = loop.study, set(apart_from)
    assert study.phase is Phase.ENDED
    assert study.pending is None
    assert len(study.reason) > 10
    assert study.incumbent is not None
    assert [trial.number for trial in study.trials] == list(range(len(study.trials)))
    assert all(trial.state is TrialState.JUDGED and trial.window is None for trial in study.trials)
    wanted = study.incumbent.configuration
    if study.outcome is Outcome.PROMOTED:
        assert study.winner is not None
        wanted = study.trials[study.winner].configuration
        check_evidence(study)
    for replica in study.plan.target.replicas:
        if replica.name not in apart:
            assert served(loop, replica.name) == wanted, replica.name
    if "gateway" not in apart:
        assert dict(loop.target.route.weights()) == dict(study.incumbent.weights)
    assert study.harm_requests <= study.plan.slo.harm_budget_requests + over_budget_by
    again = replay(loop.store, loop.study_id, loop.proposers)
    assert again.differences == ()
    return study


def check_evidence(study: Study) -> None:
    """Assert that a promoted study accepted its winner on fresh data, in each stage and under watch."""
    assert study.winner is not None
    winner = study.trials[study.winner].configuration
    kinds = (TrialKind.CONFIRMATION, TrialKind.STAGE, TrialKind.WATCH)
    for kind in kinds:
        found = [trial for trial in trials(study, kind) if trial.configuration == winner]
        assert found, kind
        assert found[-1].accepted, kind
    staged = {trial.replicas[0] for trial in trials(study, TrialKind.STAGE) if trial.accepted}
    assert staged == set(study.plan.target.stable_names)


def seconds(loop: Loop) -> float:
    """The simulated time since the study began."""
    return (loop.clock.now() - loop.study.created_at).total_seconds()

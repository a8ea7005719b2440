"""What fails while a real stack is tuned, fault after fault in one study: each has its sentence, and nobody is blamed.

The study tries four configurations: one that does not load, one that is five times as slow as it should be, one that
is good, and one whose load hangs. Faults are injected when the study's record says that their moment has come.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import SecretStr

from autotuner.adapters.clock import SystemClock
from autotuner.adapters.postgres import upgrade
from autotuner.bootstrap import Application, application, world_of
from autotuner.domain.configuration import Configuration, fingerprint
from autotuner.domain.evidence import looked, weigh
from autotuner.domain.judgement import Verdict
from autotuner.domain.lifecycle import absorb, next_step
from autotuner.domain.observation import ActionResult, Observation
from autotuner.domain.study import (
    Incumbent,
    Outcome,
    Phase,
    Proposal,
    SearchOver,
    SetWeights,
    Study,
    StudyPlan,
    Trial,
    TrialKind,
    TrialState,
)
from autotuner.errors import Unavailable
from autotuner.operations import Replay, register_target, replay, start_study
from autotuner.ports import JournalEntry, Proposer
from autotuner.records import from_record
from autotuner.sandbox.stack import CANARY, SandboxStack, brisk_plan, remove_directory, run_directory
from autotuner.sandbox.workload import Workload, parse_workload
from autotuner.settings import Settings
from tests.acceptance.lying_metrics import Lie, LyingMetrics, lying_metrics

LIMIT_SECONDS = 420.0
POLL_SECONDS = 0.1
OFF_WITHIN = timedelta(seconds=3)

FAILS_US, HANGS_US, SLOW_US = 1111, 2222, 3333


def delayed(microseconds: int) -> Configuration:
    """A configuration with this queue delay, better than the incumbent unless a fault is planted for it."""
    return Configuration(microseconds, (), 1, 32)


FAILS, SLOW, GOOD, HANGS = delayed(FAILS_US), delayed(SLOW_US), delayed(0), delayed(HANGS_US)
PROPOSED = (FAILS, SLOW, GOOD, HANGS)


def workload() -> Workload:
    """The small vision model with planted faults, under calm arrivals."""
    text = files("autotuner.sandbox").joinpath("workloads", "small-vision.yaml").read_text("utf-8")
    content: dict[str, Any] = yaml.safe_load(text)
    content |= {
        "name": "faulty-vision",
        "faults": {
            "fail_load_when_delay_us": FAILS_US,
            "hang_load_when_delay_us": HANGS_US,
            "slow_when_delay_us": SLOW_US,
        },
        "traffic": {"requests_per_second": 280, "arrivals": {"poisson": True}},
        # So large a gain that the search is all there is: confirmation and promotion are rehearsed by the demo.
        "study": {"max_trials": len(PROPOSED), "ramp_steps": 2, "max_voids": 12, "minimum_gain": 10.0},
    }
    content["slo"] |= {"max_canary_share": 0.55}
    return parse_workload(content)


class Scripted:
    """Proposes `PROPOSED`, one after another."""

    def propose(self, study: Study) -> Proposal | SearchOver:
        """Return the configuration that follows those already tried."""
        tried = len([trial for trial in study.trials if trial.kind is TrialKind.CANDIDATE])
        if tried >= len(PROPOSED):
            return SearchOver("the test has no more")
        return Proposal(PROPOSED[tried], "the test says so", "scripted")


def scripted(_plan: StudyPlan) -> Proposer:
    """The proposer of every plan here."""
    return Scripted()


# -- what is injected, and when

Condition = Callable[[Study], bool]


def at(kind: TrialKind, configuration: Configuration | None, state: TrialState) -> Condition:
    """Whether the newest trial is of this kind and configuration (None: any) and in this state."""

    def there(study: Study) -> bool:
        trial = study.trial
        return (
            trial is not None
            and trial.kind is kind
            and trial.state is state
            and configuration in (None, trial.configuration)
        )

    return there


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong: its name, when, and how; `repaired` undoes it once its window is void."""

    name: str
    when: Condition
    happens: Callable[[], None]
    repaired: Callable[[], None] | None = None


@dataclass(frozen=True)
class Happened:
    """A fault as it happened: when, and the voids that the trial had before."""

    at: datetime
    trial: int
    voids: int


def script(stack: SandboxStack, metrics: LyingMetrics, log: Complaints) -> Iterator[Fault]:
    """Every fault in the order in which it happens."""
    measuring = at(TrialKind.CANDIDATE, GOOD, TrialState.MEASURING)

    def kill_canary() -> None:
        os.kill(stack.tritons[CANARY].process.pid, signal.SIGKILL)

    def restart_postgres() -> None:
        assert stack.postgres is not None
        stack.postgres.kill()
        log.heard.wait(timeout=30)
        stack.postgres.start()

    yield Fault("postgres", at(TrialKind.BASELINE, None, TrialState.MEASURING), restart_postgres)
    yield Fault("remember", at(TrialKind.CANDIDATE, GOOD, TrialState.WARMING), metrics.remember)
    for lie in Lie:
        yield Fault(
            lie,
            measuring,
            lambda lie=lie: setattr(metrics, "lie", lie),  # type: ignore[misc]
            lambda: setattr(metrics, "lie", None),
        )
    yield Fault("canary", measuring, kill_canary, lambda: None)
    yield Fault("envoy", measuring, stack.envoy.kill, lambda: None)
    # Nothing but a restart helps a server that loads for ever; a liveness probe would do the same.
    yield Fault("hung canary", at(TrialKind.CANDIDATE, HANGS, TrialState.JUDGED), kill_canary)


class Complaints(logging.Handler):
    """What the worker says when the database is away."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.heard = threading.Event()
        self.reasons: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep what was said."""
        if record.getMessage() in ("tick_failed", "database_unavailable"):
            self.reasons.append(str(getattr(record, "reason", "")))
            self.heard.set()


# -- one study with everything in it


@dataclass(frozen=True)
class Story:
    """A study through all faults: its records, and the world as it was left."""

    study: Study
    initial: Study
    journal: Sequence[JournalEntry]
    replayed: Replay
    happened: Mapping[str, Happened]
    complaints: Sequence[str]
    served: Mapping[str, str]
    weights: Mapping[str, int]
    supervised: Sequence[str]

    @property
    def incumbent(self) -> Incumbent:
        """Production as it was found."""
        assert self.study.incumbent is not None
        return self.study.incumbent

    def trial(self, configuration: Configuration) -> Trial:
        """The candidate's trial."""
        (found,) = [t for t in self.study.trials if t.proposal and t.configuration == configuration]
        return found

    def voided(self, fault: str) -> str:
        """The sentence with which the window that a fault spoilt was given up."""
        moment = self.happened[fault].at
        return next(e.reason for e in self.journal if e.at >= moment and e.reason.startswith("VOID"))

    def judged_across(self, fault: str) -> list[str]:
        """Verdicts, other than void ones, on windows in whose middle the fault happened."""
        moment = self.happened[fault].at
        return [
            step.judgement.reason
            for step in self.study.trials[self.happened[fault].trial].steps
            if step.started_at < moment < step.ended_at and step.verdict is not Verdict.VOID
        ]


@dataclass
class Conductor:
    """Injects faults one after another while a worker carries the study."""

    app: Application
    study_id: str
    happened: dict[str, Happened] = field(default_factory=dict)

    def conduct(self, faults: Iterator[Fault]) -> Study:
        """Return the study once all faults have happened and it has ended."""
        for fault in faults:
            study = self._until(fault.when, fault.name)
            trial = study.trial
            assert trial is not None
            self.happened[fault.name] = Happened(self.app.clock.now(), trial.number, trial.voids)
            fault.happens()
            if fault.repaired is not None:
                self._until(self._void_since(fault.name), f"{fault.name}: its window is void")
                fault.repaired()
        return self._until(lambda study: study.phase is Phase.ENDED, "the study ends")

    def _void_since(self, name: str) -> Condition:
        happened = self.happened[name]
        return lambda study: study.trials[happened.trial].voids > happened.voids

    def _until(self, condition: Condition, what: str) -> Study:
        give_up = time.monotonic() + LIMIT_SECONDS
        while True:
            study = self._study()
            if study is not None and condition(study):
                return study
            assert study is None or study.phase is not Phase.ENDED, (
                f"it ended before '{what}': {study.reason}"
            )
            assert time.monotonic() < give_up, f"not in time: {what}"
            time.sleep(POLL_SECONDS)

    def _study(self) -> Study | None:
        try:
            return self.app.store.study(self.study_id)
        except Unavailable:
            return None


@pytest.fixture(scope="module")
def story() -> Iterator[Story]:
    place = run_directory()
    place.chmod(0o755)
    try:
        yield told(place)
    finally:
        remove_directory(place)


def told(place: Path) -> Story:
    """Run the study through all its faults."""
    supervised: list[str] = []
    with ExitStack() as opened:
        stack = opened.enter_context(SandboxStack(workload(), place, seed=3, report=supervised.append))
        metrics = opened.enter_context(lying_metrics(stack.tritons[CANARY].metrics_url))
        upgrade(stack.url)
        settings = Settings(database_url=SecretStr(stack.url), holder="acceptance")
        app = opened.enter_context(replace(application(settings), proposers=scripted))
        log = Complaints()
        worker_log = logging.getLogger("autotuner.worker")
        worker_log.addHandler(log)
        opened.callback(worker_log.removeHandler, log)
        plan = plan_on(stack, app, metrics)
        conductor = Conductor(app, start_study(app.store, app.clock, plan, "acceptance").id)
        with carried(app):
            study = conductor.conduct(script(stack, metrics, log))
        serving = world_of(stack.target(), SystemClock()).serving
        return Story(
            study=study,
            initial=app.store.initial(study.id),
            journal=app.store.journal(study.id),
            replayed=replay(app.store, study.id, app.proposers),
            happened=conductor.happened,
            complaints=log.reasons,
            served={r.name: fingerprint(serving.model_config(r.name)) for r in plan.target.replicas},
            weights=world_of(stack.target(), SystemClock()).route.weights(),
            supervised=supervised,
        )


def plan_on(stack: SandboxStack, app: Application, metrics: LyingMetrics) -> StudyPlan:
    """The rehearsal's plan, in more of a hurry, with the canary's metrics read where they may lie."""
    target = stack.target()
    target = replace(target, canary=replace(target.canary, metrics_url=metrics.url))
    slo = register_target(app.store, app.clock, target, stack.budget("acceptance"), "acceptance", "")
    plan = brisk_plan(stack, slo)
    pace = replace(plan.pace, load_limit=timedelta(seconds=12), no_data_limit=timedelta(seconds=3))
    return replace(plan, target=target, max_dispersion=1.5, pace=pace)


@contextmanager
def carried(app: Application) -> Iterator[None]:
    """Carry studies in a thread, as `autotuner worker` does, until the context ends."""
    stop = threading.Event()
    thread = threading.Thread(target=app.worker().run, args=(stop,), name="worker")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


# -- how it ends


def test_through_all_faults_the_study_ends_with_the_incumbent_exactly_as_it_was_found(story: Story) -> None:
    assert story.study.outcome is Outcome.KEPT
    assert story.served == story.incumbent.fingerprints
    assert story.weights == story.incumbent.weights
    assert story.weights[CANARY] == 0


def test_no_trial_is_lost_or_counted_twice(story: Story) -> None:
    assert [trial.number for trial in story.study.trials] == list(range(len(story.study.trials)))
    assert [t.configuration for t in story.study.trials if t.proposal] == list(PROPOSED)
    assert [entry.sequence for entry in story.journal] == list(range(1, len(story.journal) + 1))


def test_a_replay_agrees_with_every_decision(story: Story) -> None:
    assert story.replayed.differences == ()
    assert story.replayed.proposals == len(PROPOSED)


def test_the_good_configuration_is_blamed_for_none_of_it(story: Story) -> None:
    trial = story.trial(GOOD)

    assert trial.verdict is Verdict.ACCEPT
    assert trial.voids >= len(Lie) + 2
    assert Verdict.REJECT not in [step.verdict for step in trial.steps]


def test_the_harm_stays_within_the_budget(story: Story) -> None:
    assert 0 < story.study.harm_requests <= story.study.plan.slo.harm_budget_requests


# -- fault by fault


def test_a_database_that_crashes_while_the_incumbent_is_measured_costs_nothing_but_time(story: Story) -> None:
    baseline = story.study.trials[story.happened["postgres"].trial]

    assert story.complaints
    assert all("unavailable" in reason for reason in story.complaints)
    assert baseline.accepted


def test_a_candidate_whose_load_fails_is_rejected_in_the_servers_words(story: Story) -> None:
    trial = story.trial(FAILS)

    assert trial.verdict is Verdict.REJECT
    assert "it does not load" in trial.reason
    assert "planted failure" in trial.reason
    assert trial.harm_requests == 0.0


def test_a_candidate_whose_load_hangs_is_given_up_in_time(story: Story) -> None:
    trial = story.trial(HANGS)

    assert trial.verdict is Verdict.VOID
    assert "no answer within" in trial.reason
    assert trial.ended_at is not None
    assert trial.ended_at - trial.proposed_at <= story.study.plan.pace.load_limit + timedelta(seconds=6)
    assert trial.harm_requests == 0.0


@pytest.mark.parametrize(
    ("lie", "words"),
    [
        (Lie.NAN, "nan, which no counter can be"),
        (Lie.HTML, "a web page instead of metrics"),
        (Lie.ZEROS, "the counters of canary went backwards: it restarted or gave an old answer"),
        (Lie.OLD, "the counters of canary went backwards: it restarted or gave an old answer"),
    ],
)
def test_metrics_of_the_canary_that_lie_are_no_verdict_and_are_named(
    story: Story, lie: Lie, words: str
) -> None:
    sentence = story.voided(lie)

    assert CANARY in sentence
    assert words in sentence
    assert story.judged_across(lie) == []


def test_a_canary_that_is_killed_while_it_is_measured_is_measured_again(story: Story) -> None:
    assert f"{CANARY} died; it is started again" in story.supervised
    assert CANARY in story.voided("canary")
    assert story.judged_across("canary") == []


def test_a_gateway_that_restarts_while_it_is_measured_spoils_the_window_and_is_named(story: Story) -> None:
    assert "Envoy died; it is started again" in story.supervised
    assert "gateway" in story.voided("envoy")
    assert story.judged_across("envoy") == []


def test_a_bad_configuration_is_off_the_canary_within_three_seconds_of_the_evidence(story: Story) -> None:
    trial = story.trial(SLOW)
    evident, withdrawn = evidence_and_withdrawal(story, trial.number)

    assert trial.verdict is Verdict.REJECT
    assert "the stable replicas had" in trial.reason
    assert timedelta(0) <= withdrawn - evident <= OFF_WITHIN
    assert 0 < trial.harm_requests < 300


def evidence_and_withdrawal(story: Story, number: int) -> tuple[datetime, datetime]:
    """When the first sample was read whose counts justify REJECT, and when the gateway had taken the traffic off."""
    study, evident = story.initial, None
    for entry in story.journal:
        mine = study.trial is not None and study.trial.number == number
        if entry.kind == "decision":
            seen: Observation = from_record(Observation, entry.observed)
            if mine and evident is None:
                evident = seen_to_justify_reject(study, seen)
            study = next_step(study, seen).study
            continue
        result: ActionResult = from_record(ActionResult, entry.observed)
        action = study.pending.action if study.pending else None
        if evident is not None and isinstance(action, SetWeights) and not action.weights[CANARY]:
            assert result.done
            return evident, result.at
        study = absorb(study, result).study
    raise AssertionError("no evidence, or never withdrawn")


def seen_to_justify_reject(study: Study, seen: Observation) -> datetime | None:
    """When this look's sample was read, if the counts of the open window then justify REJECT."""
    trial, sample = study.trial, seen.sample
    if trial is None or sample is None or trial.window is None or trial.window.first is None:
        return None
    if sample.missing(replica.name for replica in study.plan.target.replicas):
        return None
    window = looked(study, trial, trial.window, sample)
    judgement = weigh(study, trial, window, sample, timedelta.max).judgement
    return sample.at if judgement is not None and judgement.verdict is Verdict.REJECT else None

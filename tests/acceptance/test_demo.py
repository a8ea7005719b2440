"""`autotuner demo` as a newcomer runs it, and as nobody should: its worker killed, itself interrupted at any moment."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml

from autotuner.cli.exits import Exit
from autotuner.domain.configuration import Configuration, read_configuration
from autotuner.domain.study import Phase
from autotuner.domain.titles import PHASE_TITLES
from autotuner.sandbox.envoy import RUNTIME_PREFIX
from tests.acceptance.demonstration import Demonstration, alive, demonstration, environment, read_json

KILLED_BY_THE_END_OF = {
    Phase.BASELINE: 6,
    Phase.SEARCH: 12,
    Phase.CONFIRMATION: 16,
    Phase.PROMOTION: 19,
    Phase.WATCH: 20,
}
"""How many workers are killed until then, so that the random moments lie in the whole of a study."""

KILLS = max(KILLED_BY_THE_END_OF.values())
LONGEST_WAIT_SECONDS = 6.0
END_WITHIN_SECONDS = 30.0

AS_FOUND = {"stable-0": 500, "stable-1": 500, "canary": 0}
STILL_RUNNING = "Still running"
SEARCHING = PHASE_TITLES[Phase.SEARCH]

DOCUMENTED = {
    *("outcome", "reason", "incumbent", "winner", "capacity_ratio", "trials", "seconds", "requests"),
    *("slow_requests_caused", "harm_budget", "report"),
}
OF_A_STANDING = {"configuration", "capacity_per_second", "p99_ms"}


def shipped(name: str) -> dict[str, Any]:
    """A workload that comes with the package."""
    text = files("autotuner.sandbox").joinpath("workloads", f"{name}.yaml").read_text("utf-8")
    made: dict[str, Any] = yaml.safe_load(text)
    return made


def calm(name: str, renamed: str, **study: int) -> dict[str, Any]:
    """A shipped workload under another name, with calm arrivals and some settings of the study."""
    content = shipped(name)
    content["traffic"]["arrivals"] = {"poisson": True}
    return content | {"name": renamed, "study": study}


def written(workload: dict[str, Any], path: Path) -> Path:
    """A workload file of this content."""
    path.write_text(yaml.safe_dump(workload), "utf-8")
    return path


def incumbent_of(workload: dict[str, Any]) -> dict[str, Any]:
    """The incumbent as a demo's answer shows it."""
    return {**workload["incumbent"], "max_batch_size": workload["max_batch_size"]}


# -- to its end, with its worker killed twenty times


@dataclass(frozen=True)
class Survived:
    """A demo whose worker was killed again and again: what was read while it was kept up, and how it ended.

    configurations, weights: of servers and gateway. commands: exit code and answer of each command that was asked.
    """

    kills: int
    answer: dict[str, Any]
    code: int
    configurations: dict[str, Configuration]
    weights: dict[str, int]
    commands: dict[str, tuple[int, str]]
    report: str
    left: list[str]
    seconds_to_end: float

    def told(self, command: str) -> Any:
        """The JSON answer of a command that ended well."""
        code, answer = self.commands[command]
        assert code == 0, answer
        return json.loads(answer)

    @property
    def shown(self) -> dict[str, Any]:
        """The study as `show` tells it."""
        made: dict[str, Any] = self.told("show latest --json")
        return made


@pytest.fixture(scope="module")
def survived(tmp_path_factory: pytest.TempPathFactory) -> Survived:
    # Calm arrivals and fewer levels, to spare minutes: `.ci/run` runs the default workload.
    workload = calm("small-vision", "quick", max_trials=2, ramp_steps=3)
    file = written(workload, tmp_path_factory.mktemp("workload") / "quick.yaml")
    with demonstration("--short", "--keep", "--workload", file) as demo:
        kills = kill_workers(demo, random.Random(20))
        demo.until(demo.says(STILL_RUNNING), "it is kept up")
        state = demo.state
        model = state["workload"]
        configurations = {
            name: read_configuration(read_json(f"{triton['http']}/v2/models/{model}/config"))
            for name, triton in state["tritons"].items()
        }
        weights = weights_at(state["gateway_admin"])
        commands = {words: asked(words, state["database_url"]) for words in ASKED}
        demo.interrupt()
        report = Path(demo.answer["report"]).read_text("utf-8")
        assert demo.ended_after_seconds is not None
        return Survived(
            kills=kills,
            answer=demo.answer,
            code=demo.process.returncode,
            configurations=configurations,
            weights=weights,
            commands=commands,
            report=report,
            left=demo.left(),
            seconds_to_end=demo.ended_after_seconds,
        )


ASKED = (
    "replay --latest --json",
    "history --json",
    "show latest --json",
    "audit --verify --json",
    "export latest/winner --format pbtxt",
)


def kill_workers(demo: Demonstration, moments: random.Random) -> int:
    """Kill the worker at random moments of the study, as `kill -9` does; return how often.

    Each time the demo must start another.
    """
    killed: set[int] = set()

    def another() -> bool:
        pid = demo.state.get("worker_pid")
        return over(demo) or (pid is not None and pid not in killed and alive(pid))

    def due() -> bool:
        return over(demo) or len(killed) < KILLED_BY_THE_END_OF.get(phase_of(demo), 0)

    while len(killed) < KILLS:
        demo.until(another, f"another worker carries on after {len(killed)} were killed")
        demo.until(due, "the next phase")
        moment = time.monotonic() + moments.uniform(0.0, LONGEST_WAIT_SECONDS)
        demo.until(lambda at=moment: over(demo) or time.monotonic() >= at, "the next kill")  # type: ignore[misc]
        if over(demo):
            break
        pid = demo.state["worker_pid"]
        os.kill(pid, signal.SIGKILL)
        killed.add(pid)
    return len(killed)


def over(demo: Demonstration) -> bool:
    """Whether the study has ended."""
    return STILL_RUNNING in demo.said


def phase_of(demo: Demonstration) -> Phase:
    """The newest phase that the demo has announced."""
    said = demo.said.splitlines()
    told = [phase for line in said for phase, title in PHASE_TITLES.items() if line == title]
    return told[-1] if told else Phase.CREATED


def weights_at(admin_url: str) -> dict[str, int]:
    """The weights as Envoy has them in force."""
    entries = read_json(f"{admin_url}/runtime")["entries"]
    return {name: int(entries[f"{RUNTIME_PREFIX}.{name}"]["final_value"]) for name in AS_FOUND}


def asked(words: str, database_url: str) -> tuple[int, str]:
    """Exit code and standard output of a command."""
    done = subprocess.run(
        [sys.executable, "-m", "autotuner", *words.split()],
        env=environment() | {"AUTOTUNER_DATABASE_URL": database_url},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout or done.stderr


def test_a_demo_whose_worker_is_killed_twenty_times_ends_with_a_winner_or_with_a_reason_for_none(
    survived: Survived,
) -> None:
    assert survived.code == 0
    assert survived.answer["outcome"] in ("promoted", "kept")
    assert survived.kills == KILLS or survived.answer["outcome"] == "kept"
    assert len(survived.answer["reason"]) > 10
    assert survived.answer["slow_requests_caused"] <= survived.answer["harm_budget"]


def test_the_answer_has_every_documented_field(survived: Survived) -> None:
    assert set(survived.answer) >= DOCUMENTED
    assert set(survived.answer["incumbent"]) >= OF_A_STANDING
    assert survived.answer["trials"] >= 1
    assert survived.answer["requests"] > 10_000
    if survived.answer["outcome"] == "promoted":
        assert set(survived.answer["winner"]) >= OF_A_STANDING
        assert survived.answer["capacity_ratio"] > 1.0


def test_no_trial_is_lost_or_counted_twice(survived: Survived) -> None:
    trials = survived.shown["trials"]

    assert [trial["number"] for trial in trials] == list(range(len(trials)))
    assert all(trial["state"] == "judged" and trial["verdict"] for trial in trials)
    candidates = [json.dumps(t["configuration"]) for t in trials if t["kind"] == "candidate"]
    assert len(candidates) == len(set(candidates)) == survived.answer["trials"]


def test_nothing_is_promoted_without_evidence(survived: Survived) -> None:
    if survived.answer["outcome"] != "promoted":
        pytest.skip("the incumbent was kept")
    wanted = survived.answer["winner"]["configuration"]
    accepted = {
        (trial["kind"], name)
        for trial in survived.shown["trials"]
        if trial["verdict"] == "accept" and trial["configuration"] == wanted
        for name in trial["replicas"]
    }

    needed = {("candidate", "canary"), ("confirmation", "canary")}
    needed |= {(kind, name) for kind in ("stage", "watch") for name in ("stable-0", "stable-1")}
    assert needed <= accepted


def test_a_replay_agrees_with_every_decision_and_the_audit_is_intact(survived: Survived) -> None:
    replayed = survived.told("replay --latest --json")

    assert replayed["differences"] == 0, replayed
    assert replayed["decisions"] > 50
    assert replayed["proposals"] >= survived.answer["trials"]
    assert survived.told("audit --verify --json")["intact"] is True
    assert [each["id"] for each in survived.told("history --json")["studies"]] == [survived.answer["study"]]


def test_every_server_ends_on_what_the_demo_says_and_the_weights_are_as_found(survived: Survived) -> None:
    standing = survived.answer["winner" if survived.answer["outcome"] == "promoted" else "incumbent"]
    wanted = Configuration(
        **standing["configuration"]
        | {"preferred_batch_size": tuple(standing["configuration"]["preferred_batch_size"])}
    )

    assert survived.configurations == dict.fromkeys(AS_FOUND, wanted)
    assert survived.weights == survived.answer["weights"] == AS_FOUND


def test_what_was_promoted_can_be_taken_into_the_repository(survived: Survived) -> None:
    code, text = survived.commands["export latest/winner --format pbtxt"]

    if survived.answer["outcome"] == "promoted":
        delay = survived.answer["winner"]["configuration"]["max_queue_delay_microseconds"]
        assert code == 0
        assert f"max_queue_delay_microseconds: {delay}" in text
    else:
        assert code == Exit.NOT_FOUND


def test_the_report_is_one_file_that_loads_nothing(survived: Survived) -> None:
    assert survived.report.startswith("<!")
    assert "emulated GPU" in survived.report
    assert re.findall(r"https?://(?!www\.w3\.org/)\S+", survived.report) == []
    assert not re.search(r"<(?:link|script|iframe|object|embed)\b[^>]*(?:src|href)=", survived.report)
    assert not re.search(r"url\((?!['\"]?(?:data:|#))|@import", survived.report)


def test_ctrl_c_ends_what_was_kept_up_and_leaves_nothing_behind(survived: Survived) -> None:
    assert survived.left == []
    assert survived.seconds_to_end < END_WITHIN_SECONDS


# -- interrupted


def test_ctrl_c_while_it_searches_restores_the_incumbent_and_leaves_nothing_behind(tmp_path: Path) -> None:
    workload = calm("small-vision", "my-model", ramp_steps=2)
    file = written(workload, tmp_path / "my-model.yaml")

    with demonstration("--workload", file) as demo:
        demo.until(demo.says(SEARCHING), "the search begins")
        moment = time.monotonic() + random.Random(130).uniform(0.0, 12.0)
        demo.until(lambda: time.monotonic() >= moment, "the moment has come")
        demo.interrupt()

        assert demo.process.returncode == Exit.INTERRUPTED, demo.said
        assert demo.ended_after_seconds is not None
        assert demo.ended_after_seconds < END_WITHIN_SECONDS
        assert demo.answer["outcome"] == "aborted"
        assert "cancelled" in demo.answer["reason"]
        assert demo.answer["served"] == dict.fromkeys(AS_FOUND, incumbent_of(workload))
        assert demo.answer["weights"] == AS_FOUND
        assert demo.left() == []


# -- where there is nothing to find


@dataclass(frozen=True)
class Ended:
    """How a demo ended by itself."""

    answer: dict[str, Any]
    code: int
    left: list[str]


@pytest.fixture(scope="module")
def side_by_side() -> dict[str, Ended]:
    """Two demos at the same time, without a folder for their logs."""
    names = ("no-help", "thin-traffic")
    ended = {}
    with ExitStack() as both:
        demos = {name: both.enter_context(demonstration("--workload", name, logs=False)) for name in names}
        for name, demo in demos.items():
            code = demo.process.wait(600)
            ended[name] = Ended(demo.answer, code, demo.left())
    return ended


def test_a_workload_that_no_configuration_can_help_keeps_its_incumbent_and_says_why(
    side_by_side: dict[str, Ended],
) -> None:
    ended = side_by_side["no-help"]

    assert ended.code == 0
    assert ended.answer["outcome"] == "kept"
    assert "no configuration can help" in ended.answer["reason"]
    assert ended.answer["trials"] == 0
    assert ended.answer["winner"] is None
    assert ended.answer["served"] == dict.fromkeys(AS_FOUND, incumbent_of(shipped("no-help")))


def test_traffic_too_thin_to_judge_promotes_nothing(side_by_side: dict[str, Ended]) -> None:
    ended = side_by_side["thin-traffic"]

    assert ended.answer["outcome"] in ("inconclusive", "kept")
    assert ended.code == (Exit.INCONCLUSIVE if ended.answer["outcome"] == "inconclusive" else 0)
    assert ended.answer["winner"] is None
    assert ended.answer["served"] == dict.fromkeys(AS_FOUND, incumbent_of(shipped("thin-traffic")))


def test_two_demos_side_by_side_leave_nothing_behind(side_by_side: dict[str, Ended]) -> None:
    assert [ended.left for ended in side_by_side.values()] == [[], []]
    assert [ended.answer["weights"] for ended in side_by_side.values()] == [AS_FOUND, AS_FOUND]

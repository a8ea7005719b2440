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
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml

from autotuner.adapters.envoy import EnvoyRoute
from autotuner.cli.exits import Exit
from autotuner.domain.configuration import Configuration, read_configuration
from autotuner.domain.study import Phase
from autotuner.domain.target import Gateway
from autotuner.domain.titles import PHASE_TITLES
from autotuner.sandbox.envoy import RUNTIME_PREFIX
from tests.acceptance.demonstration import (
    LIMIT_SECONDS,
    Demonstration,
    alive,
    demonstration,
    environment,
    read_json,
)
from tests.builders import a_target

KILLS_IN = {
    Phase.BASELINE: (6, 6.0),
    Phase.SEARCH: (6, 9.0),
    Phase.CONFIRMATION: (4, 6.0),
    Phase.PROMOTION: (3, 8.0),
    Phase.WATCH: (1, 5.0),
    Phase.RESTORATION: (0, 0.5),
}
"""How often the worker is killed in a phase, and how many seconds it is left alone at most, so that the random
moments lie in the whole of a study; what is left of a phase that was short is made up for in the next."""

NEVER = (0, 0.0)
KILLS = sum(kills for kills, _ in KILLS_IN.values())
END_WITHIN_SECONDS = 30.0

AS_FOUND = {"stable-0": 500, "stable-1": 500, "canary": 0}
STILL_RUNNING = "Still running"
SEARCHING = PHASE_TITLES[Phase.SEARCH]

DOCUMENTED = {
    *("outcome", "reason", "incumbent", "winner", "capacity_ratio", "trials", "seconds", "requests"),
    *("slow_requests_caused", "harm_budget", "report"),
}
TUNED = ("count", "max_queue_delay_microseconds", "preferred_batch_size")
"""As config.pbtxt has them."""

OF_A_STANDING = {"configuration", "capacity_per_second", "p99_ms"}


def shipped(name: str) -> dict[str, Any]:
    """A workload that comes with the package."""
    text = files("autotuner.sandbox").joinpath("workloads", f"{name}.yaml").read_text("utf-8")
    made: dict[str, Any] = yaml.safe_load(text)
    return made


def calm(renamed: str, **study: int) -> dict[str, Any]:
    """The small vision model under another name, with a worse incumbent, so that calm arrivals suffice to tell."""
    content = shipped("small-vision")
    content["incumbent"]["preferred_batch_size"] = [4]
    content["traffic"] = {"requests_per_second": 280, "arrivals": {"poisson": True}}
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
    # Calm arrivals and fewer levels spare minutes; continuous integration runs the default workload.
    workload = calm("quick", max_trials=2, ramp_steps=3)
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
        return over(demo) or len(killed) < kills_by_the_end_of(phase_of(demo))

    while len(killed) < KILLS:
        demo.until(another, f"another worker carries on after {len(killed)} were killed")
        demo.until(due, "the next phase")
        _, longest_seconds = KILLS_IN.get(phase_of(demo), NEVER)
        moment = time.monotonic() + moments.uniform(0.0, longest_seconds)
        demo.until(lambda at=moment: over(demo) or time.monotonic() >= at, "the next kill")  # type: ignore[misc]
        if over(demo):
            break
        pid = demo.state["worker_pid"]
        os.kill(pid, signal.SIGKILL)
        killed.add(pid)
    return len(killed)


def kills_by_the_end_of(phase: Phase) -> int:
    """How often the worker has been killed, at most, when a phase ends."""
    order = list(Phase)
    until_then = order[: order.index(phase) + 1]
    return sum(KILLS_IN.get(each, NEVER)[0] for each in until_then)


def over(demo: Demonstration) -> bool:
    """Whether the study has ended."""
    return phase_of(demo) is Phase.ENDED


def phase_of(demo: Demonstration) -> Phase:
    """The newest phase that the demo has announced."""
    said = demo.said.splitlines()
    told = [phase for line in said for phase, title in PHASE_TITLES.items() if line == title]
    return told[-1] if told else Phase.CREATED


def weights_at(admin_url: str) -> dict[str, int]:
    """The weights as Envoy has them in force: overrides, and where there is none the route's own."""
    return dict(EnvoyRoute(a_target(gateway=Gateway(admin_url, RUNTIME_PREFIX))).weights())


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
    if survived.answer["outcome"] != "promoted":
        pytest.skip("the incumbent was kept")
    code, text = survived.commands["export latest/winner --format pbtxt"]
    wanted = survived.answer["winner"]["configuration"]
    found = {name: [int(v) for v in re.findall(rf"\b{name}: (\d+)", text)] for name in TUNED}

    assert code == 0
    assert found["count"] == [wanted["instance_count"]]
    assert found["max_queue_delay_microseconds"] in ([], [wanted["max_queue_delay_microseconds"]])
    assert found["preferred_batch_size"] in (wanted["preferred_batch_size"], [wanted["max_batch_size"]])


def test_the_report_is_one_file_that_loads_nothing(survived: Survived) -> None:
    assert survived.report.startswith("<!")
    assert "emulated GPU" in survived.report
    assert re.findall(r"https?://(?!www\.w3\.org/)\S+", survived.report) == []
    assert not re.search(r"<(?:link|script|iframe|object|embed)\b[^>]*(?:src|href)=", survived.report)
    assert not re.search(r"url\((?!['\"]?(?:data:|#))|@import", survived.report)


def test_ctrl_c_ends_what_was_kept_up_and_leaves_nothing_behind(survived: Survived) -> None:
    assert survived.left == []
    assert survived.seconds_to_end < END_WITHIN_SECONDS


# -- side by side: interrupted, and where there is nothing to find


@dataclass(frozen=True)
class Ended:
    """How a demo ended. seconds_to_end: after Ctrl-C, where that was pressed."""

    answer: dict[str, Any]
    code: int
    said: str
    left: list[str]
    seconds_to_end: float | None = None


MY_MODEL = calm("my-model", ramp_steps=2)


@pytest.fixture(scope="module")
def side_by_side(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ended]:
    """Three demos, two at any time: one with hardly any traffic, beside it one that ends soon and one interrupted."""
    file = written(MY_MODEL, tmp_path_factory.mktemp("workload") / "my-model.yaml")
    with demonstration("--workload", "thin-traffic", logs=False) as thin:
        with demonstration("--workload", "no-help", logs=False) as hopeless:
            hopeless.process.wait(LIMIT_SECONDS)
            ended = {"no-help": ending(hopeless)}
        with demonstration("--workload", file) as interrupted:
            interrupted.until(interrupted.says(SEARCHING), "the search begins")
            moment = time.monotonic() + random.Random(130).uniform(0.0, 12.0)
            interrupted.until(lambda: time.monotonic() >= moment, "the moment has come")
            interrupted.interrupt()
            ended["my-model"] = ending(interrupted)
        thin.process.wait(LIMIT_SECONDS)
        return ended | {"thin-traffic": ending(thin)}


def ending(demo: Demonstration) -> Ended:
    """How a demo that has ended did so."""
    return Ended(demo.answer, demo.process.returncode, demo.said, demo.left(), demo.ended_after_seconds)


def test_ctrl_c_while_it_searches_restores_the_incumbent_and_ends_soon(
    side_by_side: dict[str, Ended],
) -> None:
    ended = side_by_side["my-model"]

    assert ended.code == Exit.INTERRUPTED, ended.said
    assert ended.seconds_to_end is not None
    assert ended.seconds_to_end < END_WITHIN_SECONDS
    assert ended.answer["outcome"] == "aborted"
    assert "cancelled" in ended.answer["reason"]
    assert ended.answer["served"] == dict.fromkeys(AS_FOUND, incumbent_of(MY_MODEL))


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


def test_demos_side_by_side_leave_nothing_behind(side_by_side: dict[str, Ended]) -> None:
    assert [ended.left for ended in side_by_side.values()] == [[], [], []]
    assert [ended.answer["weights"] for ended in side_by_side.values()] == [AS_FOUND] * 3

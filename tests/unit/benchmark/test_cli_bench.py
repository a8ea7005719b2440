"""`autotuner bench` from its options to its table, on one small workload."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from autotuner.batching.trials import Advice, Aim, History, Problem, Setting
from autotuner.benchmark.contestants import ENTRIES, Entry
from autotuner.benchmark.scenarios import CHANGES, Scenario
from autotuner.benchmark.study import run_study
from autotuner.benchmark.table import course_object
from autotuner.benchmark.tournament import Plan, play
from autotuner.benchmark.workloads import BenchWorkload, as_yaml, builtin, load
from autotuner.benchmark.world import World
from autotuner.cli.app import app
from autotuner.cli.exits import Exit
from autotuner.errors import AutotunerError
from tests.bench_worlds import SMALL
from tests.documents import ROOT

pytestmark = pytest.mark.usefixtures("own_logging")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("workloads")
    (made / "small.yaml").write_text(as_yaml(SMALL), "utf-8")
    return made


def benched(cache: Path, *words: str) -> Any:
    return CliRunner().invoke(app, ["bench", "--jobs", "1", *words], env={"AUTOTUNER_CACHE": str(cache)})


def answer(cache: Path, *words: str) -> dict[str, Any]:
    done = benched(cache, *words, "--json")
    assert done.exit_code == Exit.DONE, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_bench_ends_in_a_table_that_its_seeds_decide(cache: Path, folder: Path) -> None:
    words = ("--workloads", str(folder), "--scenario", "matched", "--seeds", "2", "--trials", "4")
    samplers = ("--samplers", "random,tpe+filter")

    first, again = (answer(cache, *words, *samplers) for _ in range(2))

    assert first == again
    assert [row["sampler"] for row in first["table"]] == ["random", "tpe+filter"]
    assert {(s["sampler"], s["seed"]) for s in first["studies"]} == {
        (name, seed) for name in ("random", "tpe+filter") for seed in (0, 1)
    }
    for study in first["studies"]:
        assert len(study["attempts"]) == 4
        assert study["attempts"][0]["preferred_batch_size"] == [2]
        tried = [
            json.dumps({k: a[k] for k in ("delay_ms", "preferred_batch_size", "instance_count")})
            for a in study["attempts"]
        ]
        assert len(set(tried)) == 4
        assert study["best_quality"] >= study["attempts"][0]["quality"] > 0.0
    assert first["workloads"][0]["name"] == "small"


def test_the_table_is_for_people_and_progress_goes_to_standard_error(cache: Path, folder: Path) -> None:
    done = benched(
        cache,
        "--workloads",
        str(folder),
        "--aim",
        "capacity",
        "--samplers",
        "hill-climb",
        "--seeds",
        "1",
        "--trials",
        "3",
    )

    assert done.exit_code == Exit.DONE
    assert done.stdout.splitlines()[0].startswith("bursty (arrivals switch between")
    assert "| hill-climb | 1 |" in done.stdout
    assert "study 1 of 1" in done.stderr
    assert "study" not in done.stdout.split("|")[0].replace("studies", "")


def test_who_lacks_a_module_is_left_out_and_named(
    cache: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ENTRIES, "lacking", Entry(ENTRIES["random"].make, ("no_such_module",)))
    words = ("--workloads", str(folder), "--scenario", "matched", "--seeds", "1", "--trials", "2")

    found = answer(cache, *words, "--samplers", "lacking,random")
    alone = benched(cache, *words, "--samplers", "lacking")

    assert found["unavailable"] == {"lacking": "no_such_module"}
    assert [row["sampler"] for row in found["table"]] == ["random"]
    assert alone.exit_code == Exit.INVALID_INPUT
    assert "no_such_module" in alone.stderr


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--samplers", "annealing"), "--samplers"),
        (("--samplers", ","), "--samplers"),
        (("--workloads", "nowhere"), "--workloads"),
    ],
)
def test_what_cannot_be_used_is_refused_before_anything_is_computed(
    cache: Path, words: tuple[str, str], named: str
) -> None:
    done = benched(cache, *words)

    assert done.exit_code == Exit.INVALID_INPUT
    assert named in done.stderr
    assert "truth" not in done.stderr


def test_workloads_can_be_saved_and_read_again(cache: Path, tmp_path: Path) -> None:
    done = benched(cache, "--workloads", "random:5:3", "--save-workloads", str(tmp_path / "new"))

    assert done.exit_code == Exit.DONE
    assert load(str(tmp_path / "new")) == load("random:5:3")


def test_the_number_of_processes_changes_nothing(cache: Path) -> None:
    plan = Plan((SMALL,), Scenario.MATCHED, Aim.EFFICIENCY, ("random",), 2, 3, cache)
    said: list[str] = []

    alone, together = play(plan, 1, said.append), play(plan, 2, said.append)

    assert [course_object(course) for course in alone] == [course_object(course) for course in together]
    assert said


class Stray:
    """Proposes what is no candidate."""

    def begin(self, problem: Problem) -> Advice:
        return Advice(problem.incumbent, "the incumbent first")

    def propose(self, problem: Problem, history: History) -> Advice:
        return Advice(Setting(0.0, (3,), 1, 4), "a mistake")


class Content:
    """Is content with the incumbent."""

    def begin(self, problem: Problem) -> Advice:
        return Advice(problem.incumbent, "the incumbent first")

    def propose(self, problem: Problem, history: History) -> Advice:
        return Advice(None, "nothing is worth a trial")


def test_a_proposal_that_is_no_candidate_ends_the_bench(cache: Path) -> None:
    world = World(SMALL, Scenario.MATCHED, Aim.EFFICIENCY, cache)

    with pytest.raises(AutotunerError, match="which is no candidate"):
        run_study(world, Stray(), "stray", 0, 5)


def test_a_study_ends_when_nothing_more_is_proposed(cache: Path) -> None:
    world = World(SMALL, Scenario.MATCHED, Aim.EFFICIENCY, cache)

    course = run_study(world, Content(), "content", 0, 5)

    assert len(course.attempts) == 1
    assert course.reason == "nothing is worth a trial"
    assert course.final == world.system.incumbent
    assert course.final_quality == course.attempts[0].quality


# -- its page


def rows_of_the_page(under: str) -> list[list[str]]:
    text = (ROOT / "docs" / "benchmark.md").read_text("utf-8").split(f"## {under}\n", 1)[1].split("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_every_scenario_is_documented_with_what_it_changes() -> None:
    assert {row[0].strip("`"): row[1] for row in rows_of_the_page("Scenarios")} == {
        str(scenario): changes.words for scenario, changes in CHANGES.items()
    }


def test_every_field_of_a_workload_is_documented() -> None:
    named = {name for row in rows_of_the_page("Workloads") for name in row[0].replace("`", "").split(", ")}

    assert named == set(BenchWorkload.model_fields)


def test_every_contestant_is_documented() -> None:
    text = (ROOT / "docs" / "benchmark.md").read_text("utf-8").split("## Contestants", 1)[1]

    assert [name for name in ENTRIES if f"`{name}`" not in text] == []
    assert len(builtin()) == 6

"""`autotuner bench`: how the proposers do on simulated servers, as a table."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from autotuner import __version__
from autotuner.batching.trials import Aim
from autotuner.benchmark.contestants import FILTERED, contestant, missing, names
from autotuner.benchmark.scenarios import CHANGES, Scenario
from autotuner.benchmark.table import as_markdown, course_object, score_object
from autotuner.benchmark.tournament import Plan, play, scores
from autotuner.benchmark.workloads import ALLOWED, BUILTIN, SUFFIX, BenchWorkload, as_yaml, load
from autotuner.cache import cache_directory
from autotuner.cli.invocation import Json, of, say
from autotuner.errors import InvalidInput

DEFAULT_SAMPLERS = "grey-box,tpe,gp-ei,hill-climb"


def bench(  # noqa: PLR0913, PLR0917 - one argument an option
    context: typer.Context,
    workloads: Annotated[str, typer.Option(help=f"{ALLOWED[0].upper()}{ALLOWED[1:]}.")] = BUILTIN,
    scenario: Annotated[
        Scenario, typer.Option(help="How the simulated server differs from what a model would assume.")
    ] = Scenario.BURSTY,
    aim: Annotated[Aim, typer.Option(help="What is to be maximised under the ceiling.")] = Aim.EFFICIENCY,
    samplers: Annotated[
        str,
        typer.Option(
            help=f"Names with commas between: {', '.join(n for n in names() if FILTERED not in n)}; "
            f"{FILTERED} behind one puts the safety filter in front of it."
        ),
    ] = DEFAULT_SAMPLERS,
    seeds: Annotated[
        int, typer.Option(min=1, max=1000, help="Studies of each sampler on each workload.")
    ] = 3,
    trials: Annotated[int, typer.Option(min=1, max=200, help="Most trials of a study.")] = 20,
    jobs: Annotated[int, typer.Option(min=0, max=256, help="Processes; 0: one for each CPU.")] = 0,
    save_workloads: Annotated[
        Path | None, typer.Option(help="Write the workloads as files into this folder and stop.")
    ] = None,
    json: Json = False,
) -> None:
    """Let proposers tune simulated Triton servers, and compare what they find, how soon, and at what cost to users.

    What every setting really does is computed first, which takes minutes, and kept in the cache.
    """
    invocation = of(context, json=json)
    chosen = load(workloads)
    if save_workloads is not None:
        _save(chosen, save_workloads)
        return
    asked = _asked(samplers)
    absent = {name: lacks for name in asked if (lacks := missing(name))}
    present = tuple(name for name in asked if name not in absent)
    for name, lacks in absent.items():
        say(f"{name} is left out: it needs {lacks}")
    if not present:
        contestant(asked[0])
    plan = Plan(chosen, scenario, aim, present, seeds, trials, cache_directory())
    courses = play(plan, jobs or os.cpu_count() or 1, say)
    rows = scores(courses)
    if json:
        invocation.answer(
            {
                "version": __version__,
                "workloads": [workload.model_dump(mode="json") for workload in chosen],
                "scenario": str(scenario),
                "aim": str(aim),
                "seeds": seeds,
                "trials": trials,
                "unavailable": absent,
                "table": [score_object(row) for row in rows],
                "studies": [course_object(course) for course in courses],
            }
        )
        return
    print(f"{scenario} ({CHANGES[scenario].words}), {aim}: {len(chosen)} workloads, {seeds} seeds each\n")
    print(as_markdown(rows, absent, trials))


def _asked(samplers: str) -> tuple[str, ...]:
    """The names that were asked for, each once. Raises InvalidInput."""
    asked = tuple(dict.fromkeys(name.strip() for name in samplers.split(",") if name.strip()))
    if not asked:
        raise InvalidInput("--samplers", samplers, f"one or more of {', '.join(names())}")
    for name in asked:
        missing(name)
    return asked


def _save(workloads: tuple[BenchWorkload, ...], folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for workload in workloads:
            (folder / f"{workload.name}{SUFFIX}").write_text(as_yaml(workload), "utf-8")
    except OSError as error:
        raise InvalidInput(
            "--save-workloads", str(folder), f"a folder that can be written ({error.strerror})"
        ) from error
    say(f"{len(workloads)} workloads are written to {folder}")

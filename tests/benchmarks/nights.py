"""Many more nights than the tests have time for: schedulers and workers killed at random, on a clock that is turned.

`python -m tests.benchmarks.nights --minutes 10` goes on with new seeds for so long; every run must end as it should.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

from tests.benchmarks.verdict import Row
from tests.closed_loop.nights import Nights

NIGHTS = 10
TARGETS = 3
RUNS = 3


def one_run(seed: int, nights: int = NIGHTS) -> Nights:
    """Run and check so many nights; raises AssertionError when something is not as it must be."""
    made = Nights(seed, targets=TARGETS, chance=0.01)
    made.run(nights)
    made.check(nights)
    return made


def rows() -> Iterator[Row]:
    """The figures of the default run."""
    yield from _rows([one_run(seed) for seed in range(RUNS)], NIGHTS)


def _rows(done: list[Nights], nights: int) -> Iterator[Row]:
    yield Row("nights that ran once each", "all", f"{len(done) * TARGETS * nights}", True)
    for kind in ("scheduler", "worker"):
        yield Row(f"{kind}s killed", "", f"{sum(run.kills[kind] for run in done)}", None)


def main(arguments: list[str] | None = None) -> None:
    """Run for so many minutes and print what it came to."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1000)
    asked = parser.parse_args(arguments)
    over, done = time.monotonic() + 60 * asked.minutes, list[Nights]()
    while time.monotonic() < over:
        done.append(one_run(asked.seed + len(done)))
    for row in _rows(done, NIGHTS):
        print(f"{row.name:32} {row.reached}")


if __name__ == "__main__":
    main()

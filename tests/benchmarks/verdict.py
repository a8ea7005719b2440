"""How often the verdict is wrong, and how many requests it needs: measured on simulated windows, a look every second.

Each row is a target of the product, what was reached, and whether that meets it. The product's own `judge` decides; it
is called only at looks where some evidence is near its threshold, since it says "keep looking" at all others.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, partial

import numpy as np
from numpy.typing import NDArray

from autotuner.domain.judgement import SCREENING, STRICT, Counts, Judgement, Levels, Verdict, judge
from autotuner.stats.eprocess import log_e_above, log_e_below
from autotuner.stats.overdispersion import Series, estimate_dispersion
from tests.benchmarks.worlds import Traffic, clustered, independent, queue

RUNS = 2000
LOOKS = 60
RATE_PER_SECOND = 300.0
SLOW_RATE_PER_SECOND = 40.0
BASELINE_LOOKS = 120
BASELINE_REPLICAS = 2
ALLOWED = 0.01
ERROR_CEILING = 0.001
GOOD, EDGE, BAD = 0.0025, 0.01, 0.03
SEED = 20240607

World = Callable[[np.random.Generator, tuple[int, int], float, float], Traffic]
WORLDS: dict[str, World] = {"independent": independent, "clustered": clustered, "queue": queue}
LEVELS = {"strict": STRICT, "screening": SCREENING}


@dataclass(frozen=True)
class Row:
    """One line of a benchmark's table; ok None: a figure without a target."""

    name: str
    target: str
    reached: str
    ok: bool | None


@dataclass(frozen=True)
class Windows:
    """Cumulative counts of many simulated windows, each array (runs, looks); φ per run."""

    total: NDArray[np.int64]
    bad: NDArray[np.int64]
    control_total: NDArray[np.int64]
    control_bad: NDArray[np.int64]
    baseline: Counts
    dispersion: NDArray[np.float64]

    def at(self, run: int, look: int) -> tuple[Counts, Counts]:
        """Counts of the canary and of the control at one look."""
        bad, control_bad = int(self.bad[run, look]), int(self.control_bad[run, look])
        return (
            Counts(int(self.total[run, look]), bad, bad, 0),
            Counts(int(self.control_total[run, look]), control_bad, control_bad, 0),
        )


def decide(windows: Windows, levels: Levels) -> list[Judgement | None]:
    """The first verdict of each run, as a caller who looks every second gets it; None: none in the whole window."""
    phi = windows.dispersion[:, None]
    below = log_e_below(windows.bad / phi, windows.total / phi, ALLOWED) >= -np.log(levels.accept_alpha)
    above = log_e_above(windows.bad / phi, windows.total / phi, ALLOWED) >= -np.log(levels.reject_alpha)
    worth = below | above
    return [_first(windows, levels, run, np.flatnonzero(worth[run])) for run in range(len(worth))]


def _first(windows: Windows, levels: Levels, run: int, looks: Iterable[int]) -> Judgement | None:
    for look in looks:
        found = judge(
            *windows.at(run, look),
            windows.baseline,
            allowed=ALLOWED,
            error_ceiling=ERROR_CEILING,
            levels=levels,
            dispersion=float(windows.dispersion[run]),
            exhausted=False,
        )
        if found is not None:
            return found
    return None


def simulate(
    world: str, share: float, *, runs: int = RUNS, rate: float = RATE_PER_SECOND, phi: bool = True
) -> Windows:
    """Windows of a canary with a true `share` of slow requests beside a control of the same size at `GOOD`.

    phi: divide by the factor that the product's estimator finds in a baseline of each run's own; otherwise by 1.
    """
    rng = np.random.default_rng([SEED, int(share * 1e6), list(WORLDS).index(world), int(rate)])
    traffic = WORLDS[world](rng, (runs, LOOKS), rate, share)
    control = independent(rng, (runs, LOOKS), rate, GOOD)
    return Windows(
        traffic.totals.cumsum(axis=1),
        traffic.exceeding[0].cumsum(axis=1),
        control.totals.cumsum(axis=1),
        control.exceeding[0].cumsum(axis=1),
        Counts(36_000, 90, 90, 0),
        dispersions(world, runs) if phi else np.ones(runs),
    )


@cache
def dispersions(world: str, runs: int) -> NDArray[np.float64]:
    """The factor the product estimates for each run from its own baseline of two minutes on two replicas at `GOOD`."""
    rng = np.random.default_rng([SEED, 1, list(WORLDS).index(world)])
    traffic = WORLDS[world](rng, (runs * BASELINE_REPLICAS, BASELINE_LOOKS), RATE_PER_SECOND, GOOD)
    series = [Series(traffic.totals[i], traffic.exceeding[:, i]) for i in range(runs * BASELINE_REPLICAS)]
    pairs = zip(*[iter(series)] * BASELINE_REPLICAS, strict=True)
    return np.array([estimate_dispersion(pair).factor for pair in pairs])


def shared_windows(canary_share: float, bursts: float, canary_extra: float, runs: int = RUNS) -> Windows:
    """Windows with `RATE_PER_SECOND` divided between canary and control by `canary_share`.

    bursts: share of slow requests that canary and control have in common; canary_extra: the canary's own on top.
    """
    rng = np.random.default_rng(
        [SEED, 2, int(1000 * canary_share), int(1e6 * bursts), int(1e6 * canary_extra)]
    )
    canary = independent(rng, (runs, LOOKS), RATE_PER_SECOND * canary_share, bursts + canary_extra)
    control = independent(rng, (runs, LOOKS), RATE_PER_SECOND * (1 - canary_share), bursts)
    return Windows(
        canary.totals.cumsum(axis=1),
        canary.exceeding[0].cumsum(axis=1),
        control.totals.cumsum(axis=1),
        control.exceeding[0].cumsum(axis=1),
        Counts(36_000, 90, 90, 0),
        np.ones(runs),
    )


def share_of(verdict: Verdict, judgements: Sequence[Judgement | None]) -> float:
    """Share of the runs that ended with `verdict`."""
    return sum(one is not None and one.verdict is verdict for one in judgements) / len(judgements)


def median_of(attribute: str, verdict: Verdict, judgements: Sequence[Judgement | None]) -> float:
    """Median over all runs of a count at the moment of `verdict`; a run that never got it counts as infinite."""
    values = [
        float(getattr(one, attribute)) if one is not None and one.verdict is verdict else np.inf
        for one in judgements
    ]
    return float(np.median(values))


def _at_most(name: str, reached: float, limit: float, unit: str = "") -> Row:
    shown = f"{100 * reached:.2f} %" if unit == "%" else f"{reached:.0f} {unit}"
    target = f"≤ {100 * limit:g} %" if unit == "%" else f"≤ {limit:g} {unit}"
    return Row(name, target, shown, reached <= limit)


def rows() -> list[Row]:
    """The whole table, strict and screening."""
    return [row for name, levels in LEVELS.items() for row in _rows(name, levels)]


def _rows(name: str, levels: Levels) -> list[Row]:
    return [*_errors(name, levels), *_speed(name, levels), *_blame(name, levels)]


def _errors(name: str, levels: Levels) -> list[Row]:
    found: list[Row] = []
    for world in WORLDS:
        edge = simulate(world, EDGE)
        seen = edge.bad[:, -1].sum() / edge.total[:, -1].sum()
        phi = float(np.median(edge.dispersion))
        label = f"{name}, {world} (median φ {phi:.1f})"
        wrong = share_of(Verdict.ACCEPT, decide(edge, levels))
        figure = f"{label}: false ACCEPT at q = 1 % (seen {100 * seen:.3f} %)"
        found.append(_at_most(figure, wrong, levels.accept_alpha, "%"))
        verdicts = decide(simulate(world, GOOD), levels)
        found.append(
            _at_most(f"{label}: false REJECT at q = 0.25 %", share_of(Verdict.REJECT, verdicts), 0.01, "%")
        )
        accepted = share_of(Verdict.ACCEPT, verdicts)
        found.append(
            Row(f"{label}: ACCEPTed within 60 s at q = 0.25 %", "–", f"{100 * accepted:.1f} %", None)
        )
    return found


def _speed(name: str, levels: Levels) -> list[Row]:
    """Requests needed when requests are independent, at a low rate so that waiting for the next look adds little."""
    found: list[Row] = []
    for phi in (False, True):
        slowly = partial(simulate, "independent", rate=SLOW_RATE_PER_SECOND, phi=phi)
        label = f"{name}, independent, φ {'estimated' if phi else '= 1'}"
        good = median_of("total", Verdict.ACCEPT, decide(slowly(GOOD), levels))
        found.append(_at_most(f"{label}: median requests to ACCEPT at q = 0.25 %", good, 1300, "requests"))
        none = median_of("total", Verdict.ACCEPT, decide(slowly(0.0), levels))
        found.append(_at_most(f"{label}: median requests to ACCEPT at q = 0", none, 650, "requests"))
        slow = median_of("bad", Verdict.REJECT, decide(slowly(BAD), levels))
        found.append(_at_most(f"{label}: median slow requests to REJECT at q = 3 %", slow, 12, "slow"))
    return found


def _blame(name: str, levels: Levels) -> list[Row]:
    found: list[Row] = []
    for canary_share in (1 / 3, 0.5, 0.85):
        label = f"{name}, canary share {canary_share:.2f}"
        for burst in (BAD, 0.10):
            verdicts = decide(shared_windows(canary_share, burst, 0.0), levels)
            void = share_of(Verdict.VOID, verdicts)
            figure = f"{label}: shared burst to {100 * burst:.0f} % VOID"
            found.append(Row(figure, "≥ 98 %", f"{100 * void:.2f} %", void >= 0.98))
            alone = decide(shared_windows(canary_share, GOOD, burst), levels)
            wrong = share_of(Verdict.VOID, alone)
            found.append(_at_most(f"{label}: canary alone at {100 * burst:.0f} % VOID", wrong, 0.03, "%"))
            slow = median_of("bad", Verdict.REJECT, alone)
            figure = f"{label}: canary alone at {100 * burst:.0f} %, median slow until REJECT"
            found.append(Row(figure, "–", f"{slow:.0f} slow", None))
    return found


if __name__ == "__main__":
    from tests.benchmarks.__main__ import main

    sys.exit(main(["verdict"]))

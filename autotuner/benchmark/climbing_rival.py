"""A rival in the manner of Model Analyzer's quick search: from the best so far to a neighbour, until none is left."""

from __future__ import annotations

from itertools import product

from autotuner.batching.trials import History, Problem, Setting
from autotuner.benchmark.history import Axes, best_accepted, dice_of

RADII = (2, 1)
"""Steps along an axis, the wide ones first."""


def climb(problem: Problem, history: History, pool: tuple[Setting, ...]) -> tuple[Setting | None, str]:
    """Return an untried neighbour of the best accepted setting, along one axis, or none when all have been tried."""
    axes = Axes.of(problem)
    centre = axes.point(best_accepted(problem, history))
    by_point = {tuple(axes.point(setting).values()): setting for setting in pool}
    dice = dice_of(problem, history)
    for radius in RADII:
        near = [
            by_point[place]
            for name, sign in product(centre, (-radius, radius))
            if (place := tuple({**centre, name: centre[name] + sign}.values())) in by_point
        ]
        if near:
            return near[int(dice.integers(len(near)))], f"a neighbour of the best so far, {radius} away"
    return None, "every neighbour of the best so far has been tried"

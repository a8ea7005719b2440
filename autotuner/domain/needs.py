"""What a study needs of a place, one list for all who ask: diagnoses, `metrics check`, `kubernetes preflight`, studies.

Each need is a question with an answer and a sentence. What is not known is told as that, and never stands in the way:
a study is refused only for what is certainly not there (guards rule 1).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from autotuner.domain.configuration import ModelConfig, read_configuration
from autotuner.domain.judgement import SCREENING, Levels
from autotuner.domain.measurement import edges_around
from autotuner.domain.slo import ALLOWED_BAD_SHARE
from autotuner.errors import AutotunerError, InvalidInput
from autotuner.stats.eprocess import log_e_below

DISPERSION = 3.0
"""Slow requests are taken to come in clusters of so many: what bursty traffic shows; a study measures its own."""

PATIENCE = timedelta(minutes=30)
"""A verdict that takes longer than this makes a night of three trials."""

EDGE_NEAR = 0.1
"""A bucket edge within this share of the ceiling is near enough: verdicts are a little stricter than the promise."""

MOST_REQUESTS = 1_000_000
"""A verdict that takes more requests than this never comes."""


class Answer(StrEnum):
    """Whether one thing that a study needs is there."""

    YES = "yes"
    DOUBTFUL = "doubtful"
    """It would do, and the study is the worse for it."""
    UNKNOWN = "unknown"
    """It cannot be read without writing, its source was not named, or nobody has looked yet."""
    NO = "no"


@dataclass(frozen=True)
class Check:
    """One thing that was looked at. detail: one sentence. advice: what would put it right, if anything."""

    what: str
    answer: Answer
    detail: str
    advice: str = ""

    @property
    def sentence(self) -> str:
        """What it is about, and what is the matter."""
        return f"{self.what}: {self.detail}"


@dataclass(frozen=True)
class Ground:
    """What is known of a place; None where it is not.

    config: the model's complete configuration. edges_seconds: of the gateway's histogram. rate_per_second: on the mean
    replica. memory: used and total bytes of each replica's device. alone: whether the server has no other model.
    weighted: whether weights can be set, with a sentence. replicas: how many were read. control: a sentence of why
    model control cannot be told, empty for the usual one.
    """

    ceiling_seconds: float
    config: ModelConfig | None
    edges_seconds: tuple[float, ...] | None
    rate_per_second: float | None
    memory: tuple[tuple[float, float], ...]
    alone: bool | None
    weighted: bool | None
    route: str
    replicas: int
    control: str = ""


def needs(ground: Ground) -> tuple[Check, ...]:
    """Return what a study at this place would have and lack."""
    checks: tuple[Callable[[Ground], Check], ...] = (
        _tunable,
        _control,
        _edge,
        _traffic,
        _memory,
        _route,
        _canary,
    )
    return tuple(check(ground) for check in checks)


def lacking(found: Iterable[Check]) -> str:
    """Return the first thing that is certainly not there, in words; empty when there is none."""
    return next((need.detail for need in found if need.answer is Answer.NO), "")


def uncertain(found: Iterable[Check]) -> str:
    """Return what is not known or doubtful, each by its name; empty when all is there."""
    told = {Answer.UNKNOWN: "not known", Answer.DOUBTFUL: "doubtful"}
    parts = list[str]()
    for answer, words in told.items():
        names = [need.what for need in found if need.answer is answer]
        parts += [f"{words}: {', '.join(names)}"] if names else []
    return "; ".join(parts)


def _tunable(ground: Ground) -> Check:
    what = "a model that can be tuned"
    if not ground.config:
        return Check(what, Answer.UNKNOWN, "its configuration could not be read")
    try:
        read_configuration(ground.config)
    except AutotunerError as error:
        return Check(what, Answer.NO, str(error))
    return Check(what, Answer.YES, "it has a dynamic batcher and one instance group")


def _control(ground: Ground) -> Check:
    detail = ground.control or (
        "no server tells its --model-control-mode, and trying would be a load: it must be `explicit` on "
        "every replica"
    )
    return Check("explicit model control", Answer.UNKNOWN, detail)


def _edge(ground: Ground) -> Check:
    if ground.edges_seconds is None:
        return Check(EDGE, Answer.UNKNOWN, "no gateway was read: name it with --gateway")
    return edge(ground.edges_seconds, ground.ceiling_seconds)


EDGE = "a histogram edge at the ceiling"


def edge(edges_seconds: Sequence[float], ceiling_seconds: float, advice: str = "") -> Check:
    """Return whether a histogram can tell how many requests were over the ceiling. advice: how to add an edge there."""
    ceiling = f"{ceiling_seconds * 1e3:g} ms"
    try:
        low, high = edges_around(edges_seconds, ceiling_seconds)
    except InvalidInput as error:
        return Check(EDGE, Answer.NO, str(error), advice)
    number = len(edges_seconds)
    if low == high:
        return Check(EDGE, Answer.YES, f"{number} edges, one of them at {ceiling}")
    below, above = edges_seconds[low], edges_seconds[high]
    detail = (
        f"{number} edges, none at {ceiling}: a configuration is accepted by {below * 1e3:g} ms "
        f"and rejected by {above * 1e3:g} ms"
    )
    near = below >= (1.0 - EDGE_NEAR) * ceiling_seconds
    return Check(EDGE, Answer.YES if near else Answer.DOUBTFUL, detail, advice)


def verdict_takes(rate_per_second: float | None) -> timedelta | None:
    """Return how long one verdict takes where a replica gets so many requests; None without traffic."""
    if not rate_per_second:
        return None
    return timedelta(seconds=math.ceil(fewest_requests(SCREENING, DISPERSION) / rate_per_second))


def _traffic(ground: Ground) -> Check:
    what, takes = "enough traffic", verdict_takes(ground.rate_per_second)
    if ground.rate_per_second is None:
        return Check(what, Answer.UNKNOWN, "nobody has looked yet")
    if takes is None:
        return Check(what, Answer.NO, "no request came in the window")
    detail = (
        f"one verdict takes about {fewest_requests(SCREENING, DISPERSION):,} requests, "
        f"{takes.total_seconds() / 60:.1f} minutes at {ground.rate_per_second:.3g}/s on a replica"
    )
    return Check(what, Answer.YES if takes <= PATIENCE else Answer.NO, detail)


def _memory(ground: Ground) -> Check:
    what = "memory for a reload"
    if not ground.memory:
        return Check(what, Answer.UNKNOWN, "the servers report no device memory")
    used = max(used / total for used, total in ground.memory)
    detail = (
        f"{100 * used:.0f} % of the device's memory is in use, and old and new version are both loaded for "
        "a moment"
    )
    if 2.0 * used <= 1.0:
        return Check(what, Answer.YES, detail)
    return Check(what, Answer.NO if ground.alone else Answer.UNKNOWN, detail)


def _route(ground: Ground) -> Check:
    known = {None: Answer.UNKNOWN, True: Answer.YES, False: Answer.NO}
    return Check("a weighted route", known[ground.weighted], ground.route)


def _canary(ground: Ground) -> Check:
    what = "a replica to spare"
    if ground.replicas > 1:
        return Check(what, Answer.YES, f"{ground.replicas} replicas were read")
    return Check(
        what,
        Answer.UNKNOWN,
        "one replica was read: a study needs a canary beside at least one stable replica",
    )


# ---- what a verdict costs


def requests_to_accept(slow_share: float, alpha: float) -> int | None:
    """Return how many requests an ACCEPT takes when exactly `slow_share` of them are slow; None for never.

    Without dispersion: slow requests that come in bursts take that many times more.
    """
    wanted = -math.log(alpha)
    low, high = 1, MOST_REQUESTS

    def enough(requests: int) -> bool:
        return float(log_e_below(slow_share * requests, requests, ALLOWED_BAD_SHARE)) >= wanted

    if not enough(high):
        return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle + 1, high)
    return low


def fewest_requests(levels: Levels, dispersion: float) -> int:
    """Return how many requests, not one of them slow or failed, an ACCEPT takes at the least."""
    least = requests_to_accept(0.0, levels.accept_alpha)
    assert least is not None, "without a slow request every level is reached"
    return math.ceil(least * dispersion)

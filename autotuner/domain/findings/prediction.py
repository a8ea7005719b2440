"""What tuning would be worth here, from the window alone; or why that cannot be said, and what is to be measured."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta

from autotuner.batching.production import Observed, enough
from autotuner.batching.prospect import Asked, Expected, Prospect, prospect
from autotuner.batching.trials import Aim, BatchCount
from autotuner.domain.configuration import Configuration, read_configuration
from autotuner.domain.findings.reading import Batch
from autotuner.domain.findings.scene import LEAST_EXECUTIONS, Scene, ms, percent
from autotuner.domain.findings.window import ReplicaWindow
from autotuner.domain.prediction import setting_of
from autotuner.domain.selection import TIE
from autotuner.domain.space import MARGIN_SHARE, combinations, veto
from autotuner.domain.target import Limits, Objective
from autotuner.errors import AutotunerError

LEAST_DELAY_MICROSECONDS = 2_000
"""Shorter delays are left out, 0 apart: no prediction from means tells them from it."""

CLIENT_ITEMS = 1.2
"""Items in a request from which batches are partly the clients' doing: the simulated batcher has one item a request."""

CURVE_REACH = 4
"""Beyond so many times the largest batch that ran the curve is a guess."""


@dataclass(frozen=True)
class Wish:
    """What is asked beside the readings. gpu_cost_per_hour: of one replica; None: no money is told."""

    objective: Objective = Objective.CAPACITY
    gpu_cost_per_hour: float | None = None
    currency: str = "USD"
    limits: Limits | None = None


@dataclass(frozen=True)
class Cost:
    """Of a million inferences on a replica that carries its capacity, for today's configuration and the best one."""

    now: float | None
    then: float | None
    at_todays_rate: float


@dataclass(frozen=True)
class Prediction:
    """A prospect, or why there is none. doubts: what its bands do not hold. needed: what would have to be measured."""

    prospect: Prospect | None
    why_not: str = ""
    needed: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    cost: Cost | None = None
    currency: str = "USD"


def predict(scene: Scene, look_interval: timedelta, wish: Wish) -> Prediction:
    """Return what the window says tuning would be worth."""
    refused = _refusal(scene)
    if refused is not None:
        return refused
    seen = observed(scene, look_interval)
    if not enough(seen):
        return Prediction(
            None,
            f"{seen.requests} requests in {seen.seconds:.0f} s are too few to explain latency and batches",
            ("a window with some hundred requests: look longer with --for, or at a busier hour",),
        )
    settings = tuple(setting_of(one) for one in candidates(scene, wish))
    found = prospect(seen, Asked(settings, scene.ceiling_seconds, Aim(wish.objective.value), TIE))
    doubts, needed = _doubts(scene, seen)
    return Prediction(found, "", needed, doubts, _cost(found, wish), wish.currency)


def _refusal(scene: Scene) -> Prediction | None:
    """Why nothing can be predicted whatever the traffic was."""
    if not scene.config:
        return Prediction(
            None, "the model's configuration could not be read", ("access to the model's configuration",)
        )
    try:
        read_configuration(scene.config)
    except AutotunerError as error:
        return Prediction(None, str(error))
    if scene.window.reloads:
        return Prediction(None, "the model was loaded anew within the window", ("a window without a reload",))
    work = scene.work
    if not work.requests:
        return Prediction(None, "no request came in the window", ("a window with traffic",))
    if not work.batches:
        return Prediction(
            None,
            "the server tells no times by batch size",
            ("the inference statistics of the model (batch_stats), which may be restricted",),
        )
    if work.inferences > CLIENT_ITEMS * work.requests:
        return Prediction(
            None,
            f"a request carries {work.inferences / work.requests:.3g} items: clients batch, and by which "
            "rule is not known",
            ("the sizes of the clients' requests, or traffic of single items",),
        )
    if work.cache_hits > 0.05 * work.requests:
        return Prediction(
            None, "the response cache answers a part of the requests", ("traffic that misses the cache",)
        )
    return None


def observed(scene: Scene, look_interval: timedelta) -> Observed:
    """Return the busiest replica in the words of the model."""
    configuration = read_configuration(scene.config)
    one = busiest(scene)
    latency = scene.latency
    seconds = scene.window.seconds / max(1, len(one.counts)) if one.counts else look_interval.total_seconds()
    return Observed(
        setting=setting_of(configuration),
        counts=one.counts,
        look_seconds=seconds,
        batches=_counted(one.work.batches, configuration.max_batch_size),
        p50_seconds=latency.p50_seconds,
        p95_seconds=latency.p95_seconds,
        p99_seconds=latency.p99_seconds,
        queue_seconds=one.work.queue_seconds / one.work.requests if one.work.requests else None,
        device_busy=one.utilisation,
        before=_counted(one.since_load.since(one.work).batches, configuration.max_batch_size),
    )


def busiest(scene: Scene) -> ReplicaWindow:
    """Return the replica with most requests."""
    return max(scene.window.replicas.values(), key=lambda one: one.work.requests)


def _counted(batches: tuple[Batch, ...], largest: int) -> tuple[BatchCount, ...]:
    return tuple(
        BatchCount(one.size, one.executions, one.seconds)
        for one in batches
        if one.executions > 0 and one.seconds > 0.0 and 1 <= one.size <= largest
    )


def candidates(scene: Scene, wish: Wish) -> tuple[Configuration, ...]:
    """Return configurations worth comparing, today's among them: those that may meet the ceiling.

    At most one instance more than there are: what several would do to one another cannot be told so far ahead.
    """
    incumbent, ceiling = read_configuration(scene.config), scene.ceiling_seconds
    limits = wish.limits or Limits(1000, int(ceiling * 1e6))
    limits = replace(limits, max_instance_count=min(limits.max_instance_count, incumbent.instance_count + 1))
    least = scene.fastest_batch_seconds or 0.0
    if incumbent.instance_count > 1:
        least /= incumbent.instance_count
    return tuple(
        one
        for one in combinations(limits, ceiling, incumbent).candidates
        if one == incumbent
        or (
            not 0 < one.max_queue_delay_microseconds < LEAST_DELAY_MICROSECONDS
            and (
                len(one.preferred_batch_size) < 2
                or one.preferred_batch_size == incumbent.preferred_batch_size
            )
            and not veto(one, ceiling, least, MARGIN_SHARE * ceiling)
        )
    )


def _doubts(scene: Scene, seen: Observed) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What the bands do not hold, and what would have to be measured to know better."""
    doubts, needed = list[str](), list[str]()
    ran = max((one.size for one in seen.batches if one.executions >= LEAST_EXECUTIONS), default=0)
    if ran * CURVE_REACH < seen.setting.max_batch_size:
        doubts.append(
            f"no batch larger than {ran} ran often: times up to {seen.setting.max_batch_size} follow a fit"
        )
        needed.append("the time of larger batches: a busier hour, or a trial on a canary")
    if len([one for one in seen.batches if one.executions >= LEAST_EXECUTIONS]) < 2:
        doubts.append("one batch size ran: what a larger one takes is not known")
    if seen.device_busy is None:
        doubts.append("no device utilisation is told: how instances disturb one another stays open")
        needed.append(
            "the device's utilisation (nv_gpu_utilization; with MIG, from DCGM), or a trial with two instances"
        )
    elif seen.setting.instances == 1:
        doubts.append(
            "one instance runs: what a second one does follows from how busy the device is, not from a measurement"
        )
    if seen.p99_seconds is None:
        doubts.append("no source tells p99 today: the prediction could not be held against it")
        needed.append(
            "latency quantiles: --metrics-config summary_latencies=true, or the gateway with --gateway"
        )
    elif scene.window.gateway is None:
        doubts.append(
            "p99 is as Triton sees it, over its own sliding window; what the way to it adds is not in it"
        )
    if seen.look_seconds > 0.0:
        doubts.append(
            f"bursts shorter than the {ms(seen.look_seconds)} between two looks are inferred from queues and batches"
        )
    if len(scene.window.replicas) > 1:
        doubts.append("predicted is the busiest replica, all replicas being alike")
    return tuple(doubts), tuple(needed)


def _cost(found: Prospect, wish: Wish) -> Cost | None:
    if wish.gpu_cost_per_hour is None:
        return None

    def million(rate_per_second: float) -> float:
        return float(wish.gpu_cost_per_hour or 0.0) / 3600 / rate_per_second * 1e6

    def at_capacity(one: Expected | None) -> float | None:
        return million(one.capacity.value) if one is not None and one.capacity is not None else None

    return Cost(at_capacity(found.today), at_capacity(found.best), million(found.observed.rate_per_second))


def worth(prediction: Prediction) -> str:
    """Return the prediction in one sentence."""
    found = prediction.prospect
    if found is None:
        needed = f"; to be measured: {'; '.join(prediction.needed)}" if prediction.needed else ""
        return f"no prediction: {prediction.why_not}{needed}"
    if found.best is None:
        return "no configuration is predicted to hold the ceiling at today's rate"
    now, then = found.today.capacity, found.best.capacity
    if found.best.setting == found.today.setting:
        return "today's configuration is the best one within ties, as far as can be predicted"
    if then is None:
        return "no configuration is predicted to hold the ceiling over a range of rates"
    if now is None:
        return (
            f"capacity {then.value:.0f}/s on a replica ({then.low:.0f} to {then.high:.0f}), where today's "
            "breaks the ceiling"
        )
    gain = then.value / now.value - 1.0
    within = "" if then.low > now.high else ", within the uncertainty of both"
    return (
        f"capacity {then.value:.0f}/s on a replica ({then.low:.0f} to {then.high:.0f}) instead of "
        f"{now.value:.0f}/s ({now.low:.0f} to {now.high:.0f}): "
        f"{'+' if gain >= 0 else '−'}{percent(abs(gain))}{within}"
    )

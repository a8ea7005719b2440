"""Settings that work against themselves, and instruments that are off."""

from __future__ import annotations

from autotuner.domain.findings.kinds import Confidence, Finding, Kind, Severity
from autotuner.domain.findings.scene import Scene, ms, percent

CAPPED_SHARE = 0.3
"""Share of requests in batches at the cap from which it is no accident: without a cap sizes spread, and one size among
the larger ones rarely has a tenth of them."""

LESS_CAPPED_SHARE = 0.1
"""The same where latency is near the ceiling and nothing ran above the cap: it takes what a busier hour needs."""

CAP_ROOM = 1.25
"""The model must take batches that are larger than the cap by so much for the cap to matter."""

QUEUE_AT_CAP = 0.5
"""Queue time, as a share of compute time, from which requests really wait behind full batches."""

PROFILE_EXECUTIONS = 100
"""So many executions since the load, none of them at a preferred size, before that is called strange."""


def capped(scene: Scene) -> Finding | None:
    """Preferred sizes that cap the batch: while the delay is not exceeded, nothing larger than the largest is sent."""
    cap = max(scene.preferred, default=0)
    work, queue, compute = scene.work, scene.queue_seconds, scene.compute_seconds
    if not cap or cap * CAP_ROOM > scene.max_batch_size or queue is None or not compute:
        return None
    # The batcher sends the largest preferred size, or one more when a request came in between.
    at_cap = sum(one.size * one.executions for one in work.batches if cap <= one.size <= cap + 1)
    above = sum(one.size * one.executions for one in work.batches if one.size > cap + 1)
    much = at_cap >= CAPPED_SHARE * work.inferences
    least = LESS_CAPPED_SHARE if above == 0 and scene.presses else CAPPED_SHARE
    if not at_cap or at_cap < least * work.inferences or above > at_cap or queue < QUEUE_AT_CAP * compute:
        return None
    sure = much and scene.enough and scene.delay_seconds < queue and above == 0
    evidence = (
        (
            f"{percent(at_cap / work.inferences)} of the requests ran in batches of {cap} or {cap + 1}, the largest "
            f"preferred size, and {percent(above / work.inferences)} in larger ones, where max_batch_size is "
            f"{scene.max_batch_size}"
        ),
        (
            f"meanwhile requests waited {ms(queue)} in the queue, for {ms(compute)} of compute; with a "
            f"delay of {ms(scene.delay_seconds)} a preferred size is not a wish but a cap"
        ),
    )
    remedy = (
        "remove preferred_batch_size (or let it end with max_batch_size): a busy model then gathers what "
        "has come while it computed"
    )
    return Finding(
        Kind.MISCONFIGURATION,
        Confidence.SURE if sure else Confidence.LIKELY,
        evidence,
        remedy,
        Severity.BREAKS if scene.presses else Severity.COSTS,
        queue / (queue + compute),
    )


def above_profile(scene: Scene) -> Finding | None:
    """Preferred sizes that a TensorRT engine's profile may not have: it never ran one, though batches were formed."""
    executions = sum(
        batch.executions for one in scene.window.replicas.values() for batch in one.since_load.batches
    )
    cap = max(scene.preferred, default=0)
    tensorrt = (
        str(scene.config.get("platform", "")) == "tensorrt_plan" or scene.config.get("backend") == "tensorrt"
    )
    failing = any(one.since_load.failures for one in scene.window.replicas.values())
    if not tensorrt or executions < PROFILE_EXECUTIONS or cap <= scene.largest_ever or not failing:
        return None
    evidence = (
        (
            f"a TensorRT engine with a preferred size of {cap}; of {executions} executions since the load "
            f"none was larger than {scene.largest_ever}, and requests failed"
        ),
        "whether the engine's optimisation profile goes that far cannot be read from a server",
    )
    remedy = (
        f"compare preferred_batch_size with the profile's largest batch (trtexec --loadEngine); keep {cap} "
        "only within it"
    )
    return Finding(Kind.MISCONFIGURATION, Confidence.POSSIBLE, evidence, remedy, Severity.BREAKS, 0.2)


def delay_above_ceiling(scene: Scene) -> Finding | None:
    """A delay that alone, or with the time of one batch, takes the whole ceiling."""
    delay, ceiling, fastest = scene.delay_seconds, scene.ceiling_seconds, scene.fastest_batch_seconds or 0.0
    if scene.batcher is None or delay == 0.0 or delay + fastest < ceiling:
        return None
    alone = delay >= ceiling
    evidence = (
        f"max_queue_delay_microseconds is {ms(delay)}"
        + ("" if alone else f" and the smallest batch takes {ms(fastest)}")
        + f"; the ceiling is {ms(ceiling)}",
        "at a low rate every request waits the whole delay for others that do not come",
    )
    remedy = (
        f"set the delay well below {ms(max(0.0, ceiling - fastest))}, what the ceiling leaves beside a batch"
    )
    return Finding(
        Kind.MISCONFIGURATION,
        Confidence.SURE if alone else Confidence.LIKELY,
        evidence,
        remedy,
        Severity.BREAKS,
        0.9,
    )


def no_batcher(scene: Scene) -> Finding | None:
    """A model that takes batches and has no dynamic batcher: only what a client sends together runs together."""
    special = scene.config.get("sequence_batching") or scene.config.get("ensemble_scheduling")
    decoupled = (scene.config.get("model_transaction_policy") or {}).get("decoupled")
    if not scene.config or special or decoupled or scene.batcher is not None:
        return None
    if scene.max_batch_size < 2:
        evidence = (
            "max_batch_size is 0 or 1: the model takes one item at a time, so nothing can be batched",
        )
        remedy = (
            "export the model with a batch dimension and set max_batch_size; then dynamic batching can help"
        )
    else:
        evidence = (
            (
                f"the model takes batches up to {scene.max_batch_size} and its configuration has no "
                "dynamic_batching section"
            ),
        )
        remedy = "add an empty `dynamic_batching { }` to its config.pbtxt: it costs nothing while there is no queue"
    severity = Severity.COSTS if scene.enough and _queues(scene) else Severity.NOTICE
    return Finding(Kind.MISCONFIGURATION, Confidence.SURE, evidence, remedy, severity, 0.5)


def _queues(scene: Scene) -> bool:
    queue, compute = scene.queue_seconds, scene.compute_seconds
    return queue is not None and compute is not None and queue >= QUEUE_AT_CAP * compute


def cache_on(scene: Scene) -> Finding | None:
    """A response cache: a hit is neither queued nor computed, so every mean is of a mixture."""
    if not (scene.config.get("response_cache") or {}).get("enable"):
        return None
    hits, requests = scene.work.cache_hits, scene.work.requests
    share = f"{percent(hits / requests)} of the requests were hits" if hits else "no hit was counted"
    evidence = (f"the model's response cache is on; in the window {share}",)
    remedy = (
        "read every latency here as a mixture of hits and misses, and tune with the cache off or on "
        "traffic that misses: a study would measure the cache"
    )
    return Finding(Kind.MISCONFIGURATION, Confidence.SURE, evidence, remedy, Severity.NOTICE, 0.3)


def metrics_missing(scene: Scene) -> Finding | None:
    """No metrics page: no quantiles, no device, and nothing that survives a reload."""
    missing = [name for name, one in scene.window.replicas.items() if not one.metrics]
    if not missing:
        return None
    why = "; ".join(one.sentence() for one in scene.facts.unread if one.what.startswith("metrics"))
    evidence = (f"no metrics from {', '.join(missing)}" + (f": {why}" if why else ""),)
    remedy = (
        "let it serve metrics (--allow-metrics, on by default, port 8002) and name their address with "
        "--metrics if it is not the usual one"
    )
    return Finding(Kind.MISCONFIGURATION, Confidence.SURE, evidence, remedy, Severity.NOTICE, 0.2)


def summaries_off(scene: Scene) -> Finding | None:
    """No latency quantiles from Triton: without a gateway there is no p99 at all."""
    told = [one for one in scene.window.replicas.values() if one.metrics]
    if not told or any(one.quantiles for one in told):
        return None
    evidence = ("the metrics page has no latency summaries, so the server tells means and no quantiles",)
    remedy = "start tritonserver with --metrics-config summary_latencies=true"
    if scene.window.gateway is None:
        remedy += (
            ", or name the gateway with --gateway: without either there is no p99 to hold against the ceiling"
        )
    return Finding(Kind.MISCONFIGURATION, Confidence.SURE, evidence, remedy, Severity.NOTICE, 0.1)

"""Models whose batching is not this dynamic batcher's: the server's own configuration says so, so all is sure."""

from __future__ import annotations

from typing import Any

from autotuner.domain.findings.kinds import Confidence, Finding, Kind, Severity
from autotuner.domain.findings.reading import Work
from autotuner.domain.findings.scene import Scene, ms, percent

GENERATIVE_BACKENDS = ("vllm", "tensorrtllm")
"""Backends that batch inside, token by token."""


def wrong_tool(scene: Scene) -> Finding | None:
    """A decoupled or generative model: requests of one batch do not end together, so batching by request is wrong."""
    config = scene.config
    backend = str(config.get("backend", ""))
    if backend in GENERATIVE_BACKENDS:
        why = f"the backend is {backend}, which batches token by token inside the model"
    elif (config.get("model_transaction_policy") or {}).get("decoupled"):
        why = "the model is decoupled: it may answer one request many times, at its own pace"
    else:
        return None
    remedy = (
        "use continuous (in-flight) batching instead of the dynamic batcher: vLLM, or TensorRT-LLM with "
        "its in-flight batcher; tune their batch and cache limits"
    )
    return Finding(Kind.WRONG_TOOL, Confidence.SURE, (why,), remedy, Severity.DECIDES, 1.0)


def stateful(scene: Scene) -> Finding | None:
    """A sequence batcher: a sequence keeps its instance, so instance counts and batch sizes are not free."""
    section: dict[str, Any] | None = scene.config.get("sequence_batching")
    if not section:
        return None
    oldest = section.get("oldest")
    if oldest is not None:
        strategy = "oldest"
        may = (
            "max_queue_delay_microseconds, preferred_batch_size and max_candidate_sequences of its "
            "`oldest` strategy may be tuned by hand, one at a time and on a canary with sequences of its "
            "own"
        )
    else:
        strategy = "direct"
        may = (
            "with the `direct` strategy only max_queue_delay_microseconds and minimum_slot_utilization "
            "may be tuned; batch slots follow from max_batch_size and instances"
        )
    evidence = (
        f"sequence batching, strategy {strategy}",
        "a sequence stays on one instance: a reload, or weights that move, break sequences that are under way",
    )
    remedy = f"{may}; the number of instances and the traffic's weights must not change under open sequences"
    return Finding(Kind.STATEFUL, Confidence.SURE, evidence, remedy, Severity.DECIDES, 0.9)


def ensemble(scene: Scene) -> Finding | None:
    """An ensemble has no batcher of its own: the member that holds the time is what can be tuned."""
    steps = (scene.config.get("ensemble_scheduling") or {}).get("step")
    if not steps:
        return None
    names = list(dict.fromkeys(str(step.get("model_name", "")) for step in steps))
    times = _member_times(scene, names)
    if not times:
        said = f"an ensemble of {', '.join(names)}; no member ran in the window, or none could be read"
        remedy = "look again under traffic: the member that holds the time is the one to tune"
        return Finding(Kind.ENSEMBLE, Confidence.SURE, (said,), remedy, Severity.DECIDES, 0.8)
    holder, (held, queue) = max(times.items(), key=lambda item: item[1][0])
    whole = scene.total_seconds or sum(time for time, _ in times.values())
    each = ", ".join(f"{name} {ms(time)}" for name, (time, _) in times.items())
    evidence = (
        f"an ensemble; mean time of a request in each member: {each}",
        (
            f"{holder} holds {percent(min(1.0, held / whole))} of the {ms(whole)} of the whole, "
            f"{ms(queue)} of it in its queue"
        ),
    )
    remedy = f"tune {holder}: an ensemble has no batcher of its own; diagnose it with --model {holder}"
    return Finding(Kind.ENSEMBLE, Confidence.SURE, evidence, remedy, Severity.DECIDES, 0.8)


def _member_times(scene: Scene, names: list[str]) -> dict[str, tuple[float, float]]:
    """Mean seconds of a request in each member that ran, and those of them in the member's queue."""
    found = {}
    for name in names:
        works = [one.members[name] for one in scene.window.replicas.values() if name in one.members]
        work = sum(works, Work())
        if work.requests:
            found[name] = (work.request_seconds / work.requests, work.queue_seconds / work.requests)
    return found

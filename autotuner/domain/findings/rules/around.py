"""Time and requests that are lost around the model: before Triton, between replicas, in failures, after loads."""

from __future__ import annotations

from autotuner.domain.findings.breakdown import Part, breakdown
from autotuner.domain.findings.kinds import Confidence, Finding, Kind, Severity
from autotuner.domain.findings.scene import LEAST_REQUESTS, Scene, ms, percent

LOST_SHARE = 0.3
"""Share of a request's time before Triton from which it is worth more than tuning the model."""

MOSTLY = 0.5
"""Most of the time is before Triton."""

LOST_OF_CEILING = 0.05
"""Less than this share of the ceiling is not worth looking for, whatever part of a fast request it is."""

UNEQUAL, VERY_UNEQUAL = 1.5, 3.0
"""Ratio of the busiest replica to the idlest: chance makes 1.3 of equal shares of 200 requests; sticky connections
make 2 and more."""

FAILING = 0.01
"""Share of failed requests that uses up all that a 99th-percentile ceiling allows."""

CLIENT_ITEMS = 1.5
"""Items in a request from which clients batch by themselves."""

COLD_EXCESS_SECONDS = 0.5
"""Time that executions since the load took beyond what they take now, from which the load's first requests suffered."""

COLD_FACTOR = 20.0
"""The same in executions of today's length, so that a slow model does not look cold."""


def outside_triton(scene: Scene) -> Finding | None:
    """Time is lost before Triton: gateway, network, connections."""
    found = breakdown(scene)
    before, total = found.mean(Part.BEFORE_TRITON), found.total_seconds
    if before is None or not total or before < LOST_OF_CEILING * scene.ceiling_seconds:
        return None
    share = before / total
    if share < LOST_SHARE or not scene.enough:
        return None
    evidence = (
        (
            f"the gateway sees {ms(total)} for a request, Triton {ms(scene.total_seconds)}: {ms(before)} "
            f"({percent(share)}) are spent before Triton or on the way back"
        ),
    )
    remedy = (
        "look at the gateway (connection limits, retries, TLS, buffering), the network between it and "
        "Triton, and the servers' own HTTP threads; no batching changes this"
    )
    over = scene.latency.p99_seconds is not None and scene.latency.p99_seconds > scene.ceiling_seconds
    return Finding(
        Kind.OUTSIDE_TRITON,
        Confidence.SURE if share >= MOSTLY else Confidence.LIKELY,
        evidence,
        remedy,
        Severity.BREAKS if over else Severity.COSTS,
        share,
    )


def unequal_shares(scene: Scene) -> Finding | None:
    """Replicas with unequal shares: sticky connections, which gRPC has by nature."""
    counts = {name: one.work.requests for name, one in scene.window.replicas.items()}
    if len(counts) < 2 or sum(counts.values()) < 2 * LEAST_REQUESTS * len(counts):
        return None
    most, least = max(counts.values()), min(counts.values())
    if most < UNEQUAL * max(1, least):
        return None
    each = ", ".join(f"{name} {count:,}" for name, count in counts.items())
    evidence = (
        f"requests in the window: {each}; the busiest replica has {most / max(1, least):.2g} times the idlest's",
    )
    remedy = (
        "balance per request and not per connection: a gateway that knows HTTP/2, or client-side "
        "balancing with a largest connection age for gRPC; check weights too, if they are meant to be "
        "equal"
    )
    return Finding(
        Kind.OUTSIDE_TRITON,
        Confidence.SURE if most >= VERY_UNEQUAL * max(1, least) else Confidence.LIKELY,
        evidence,
        remedy,
        Severity.COSTS,
        1.0 - least / most,
    )


def client_batches(scene: Scene) -> Finding | None:
    """Clients that batch by themselves: what they send together cannot be taken apart by the server."""
    work = scene.work
    if not scene.enough or work.inferences < CLIENT_ITEMS * work.requests:
        return None
    items = work.inferences / work.requests
    evidence = (f"a request carries {items:.3g} items on average: clients batch before they send",)
    remedy = (
        "their gathering adds a wait nobody here sees, and large requests fill batches alone; let the "
        "server batch instead where requests are independent"
    )
    return Finding(Kind.OUTSIDE_TRITON, Confidence.POSSIBLE, evidence, remedy, Severity.NOTICE, 0.1)


def failures(scene: Scene) -> Finding | None:
    """Requests fail: no latency means anything before that is mended."""
    failed, ended = scene.work.failures, scene.work.failures + scene.work.requests
    gateway = scene.window.gateway
    if gateway is not None and gateway.failed > failed:
        failed, ended = gateway.failed, max(gateway.requests, gateway.failed)
    if not ended or failed < FAILING * ended or failed < 3:
        return None
    evidence = (f"{failed:,} of {ended:,} requests failed ({percent(failed / ended)})",)
    remedy = (
        "look at the servers' and the gateway's logs first: a study counts each failure as a slow request"
    )
    return Finding(Kind.FAILURES, Confidence.SURE, evidence, remedy, Severity.BREAKS, failed / ended)


def cold_start(scene: Scene) -> Finding | None:
    """The first requests after a load are slow: seen now, or left in what was counted since the load."""
    warm_up = bool(scene.config.get("model_warmup"))
    remedy = (
        "the model has a warm-up already: check that it covers every batch size"
        if warm_up
        else "give the model a model_warmup section, so that it is warm before its first request"
    )
    if scene.window.reloads:
        evidence = (
            (
                f"the model was loaded anew {scene.window.reloads} time(s) within the window: the first "
                "second after a load is slow, and the figures here are a mixture of before and after"
            ),
        )
        remedy += "; then look again in a quiet minute"
        return Finding(Kind.COLD_START, Confidence.SURE, evidence, remedy, Severity.DECIDES, 0.6)
    excess = _excess_seconds(scene)
    if excess is None:
        return None
    evidence = (
        (
            f"executions since the load took {excess:.2g} s more in all than the same ones take now: the "
            "first ones after it were slow"
        ),
    )
    return Finding(Kind.COLD_START, Confidence.POSSIBLE, evidence, remedy, Severity.NOTICE, 0.1)


def _excess_seconds(scene: Scene) -> float | None:
    """What executions before the window took beyond their present time; None where that is little or not known."""
    worst = 0.0
    for one in scene.window.replicas.values():
        now = {batch.size: batch for batch in one.work.batches if batch.executions >= 10}
        before = {batch.size: batch for batch in one.since_load.since(one.work).batches}
        both = [size for size in now if size in before]
        excess = sum(before[size].seconds - before[size].executions * now[size].mean_seconds for size in both)
        usual = max((now[size].mean_seconds for size in both), default=0.0)
        allowed = max(COLD_EXCESS_SECONDS, COLD_FACTOR * usual)
        spent = sum(before[size].seconds for size in both)
        # A load that differs by a fifth is another hour of the day and not the first minute after a load.
        if excess > max(allowed, 0.2 * spent):
            worst = max(worst, excess)
    return worst or None

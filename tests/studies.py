"""A study with every optional part filled, and the steps that lead a stored study onwards."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from autotuner.domain.configuration import Configuration
from autotuner.domain.judgement import Counts, Judgement, Verdict
from autotuner.domain.measurement import BatchTiming, Latency, ServerUse
from autotuner.domain.provenance import Provenance
from autotuner.domain.slo import SloBudget
from autotuner.domain.slow_requests import PartTime, SlowRequest, SlowRequests
from autotuner.domain.sources import (
    FailedWhere,
    Instrumentation,
    LatencyHistogram,
    PrometheusServer,
    TraceStore,
)
from autotuner.domain.spans import Part
from autotuner.domain.study import (
    Action,
    Arrived,
    Increment,
    Incumbent,
    Level,
    Load,
    OpenWindow,
    Outcome,
    Pending,
    Phase,
    Proposal,
    SetWeights,
    Step,
    Study,
    Trial,
    TrialKind,
    TrialState,
)
from autotuner.domain.target import Gateway, Limits
from autotuner.domain.workload import RouteKind, RouteReference, Workload, WorkloadKind
from autotuner.ports import Grant, JournalEntry, Store
from autotuner.records import digest, to_record
from tests.builders import (
    REPLICAS,
    a_budget,
    a_configuration,
    a_plan,
    a_replica,
    a_sample,
    a_study,
    a_target,
    at,
)

AWKWARD = 0.1 + 0.2
"""A float whose shortest spelling has 17 digits."""

INCREMENTS = (
    Increment(100, (100, 90, 3, 0), 0, 0.25, 100, Arrived(AWKWARD, 101)),
    Increment(7, (), 1, None, None),
)


def a_judgement(**changes: Any) -> Judgement:
    """An ACCEPT with awkward figures and a sentence that is not ASCII."""
    fields: dict[str, Any] = {
        "verdict": Verdict.ACCEPT,
        "estimate": 1 / 3,
        "interval": (1e-300, AWKWARD),
        "total": 1300,
        "bad": 2,
        "control_total": 2600,
        "control_bad": 3,
        "dispersion": 1.0000000000000002,
        "log_e_accept": 4.605170185988092,
        "log_e_reject": -12.25,
        "reason": "ACCEPT: q ≤ 1 % “surely”",
    }
    return Judgement(**{**fields, **changes})


def a_step(number: int = 0, **changes: Any) -> Step:
    """One judged level with all that was measured in it."""
    fields: dict[str, Any] = {
        "level": Level(number, 1 / 3),
        "attempt": 1,
        "started_at": at(10.123456),
        "ended_at": at(70.5),
        "candidate": Counts(1300, 3, 2, 1),
        "control": Counts(2600, 4, 3, 0),
        "rate_per_second": AWKWARD,
        "total_rate_per_second": 3 * AWKWARD,
        "latency": Latency(0.02, 0.05, None),
        "use": ServerUse(0.005, 0.01, 3.7, 0.0025, 0.5, 1e9, 16e9, fastest_batch_seconds=0.012),
        "harm_requests": 1.5,
        "judgement": a_judgement(),
        "compute_error": 1e-5,
        "increments": INCREMENTS,
        "batches": (BatchTiming(1, 3, 0.036), BatchTiming(4, 320, AWKWARD)),
        "arrived": (Arrived(1.000001, 93), Arrived(5.0, 0)),
        "model_versions": ("2", "10"),
        "counted": a_sample(70.5, 1300, slow=3),
        "slow": told_by_traces(),
    }
    return Step(**{**fields, **changes})


def told_by_traces(**changes: Any) -> SlowRequests:
    """What traces told of two slow requests, most of whose time went in the queue."""
    fields: dict[str, Any] = {
        "source": "Tempo",
        "requests": 2,
        "mean_seconds": AWKWARD / 2,
        "parts": (
            PartTime(Part.GATEWAY, AWKWARD / 10, 0),
            PartTime(Part.QUEUE, AWKWARD / 4, 2),
            PartTime(Part.INFER, AWKWARD * 0.15, 0),
        ),
        "slowest": (SlowRequest("6e2a9906b2538a6aeb74f1f2d1adcb3a", AWKWARD, Part.QUEUE),),
        "remarks": ("1 of 2 without Triton's spans",),
    }
    return SlowRequests(**{**fields, **changes})


def a_trace_store() -> TraceStore:
    """A trace store of which everything is said."""
    return TraceStore(
        "tempo",
        "https://127.0.0.1:3200",
        gateway="gateway",
        triton="triton",
        replica=(("upstream_cluster.name", "{name}"),),
        arrival=timedelta(seconds=7),
        deadline=timedelta(seconds=2),
        tenant="team-a",
        bearer="traces-token",
        user="reader",
        password="traces-password",
        ca="traces-ca",
    )


def a_fast_step() -> Step:
    """A judged level of which even the p99 is known."""
    unread = SlowRequests("Tempo", fault="no answer within 2 s")
    return a_step(latency=Latency(0.01, 0.02, 0.03), slow=unread)


def a_trial(number: int = 0, **changes: Any) -> Trial:
    """A candidate that is being measured: one step is judged, the next window is open."""
    window = OpenWindow(
        level=Level(1, 0.5),
        attempt=0,
        routed_at=at(80),
        routed=a_sample(80, 2000),
        first=a_sample(90, 2100, slow=3),
        recent=(a_sample(95, 2200, faults={"canary": "NaN"}), a_sample(100, 2300)),
        increments=INCREMENTS,
        blind_since=at(96),
        harm_requests=0.75,
    )
    configuration = Configuration(5000, (4, 8), 2, 32)
    fields: dict[str, Any] = {
        "number": number,
        "kind": TrialKind.CANDIDATE,
        "replicas": ("canary",),
        "configuration": configuration,
        "levels": (Level(-1, 0.1), Level(0, 1 / 3), Level(1, 0.5)),
        "state": TrialState.MEASURING,
        "proposed_at": at(5),
        "reason": "",
        "proposal": Proposal(configuration, "promising", "tpe", {"p99_seconds": AWKWARD}, AWKWARD),
        "window": window,
        "steps": (a_step(),),
        "warmed": True,
        "voids": 1,
        "tail": replace(window, harm_requests=0.25, closed_at=at(101)),
        "blocked_since": at(6),
        "draining_since": at(7),
        "closed_harm_requests": 1.5,
    }
    return Trial(**{**fields, **changes})


def a_metrics_server() -> Instrumentation:
    """A metrics server of which everything is said."""
    server = PrometheusServer(
        "https://127.0.0.1:9090",
        timedelta(seconds=3),
        tenant="team-a",
        bearer="metrics-token",
        user="reader",
        password="metrics-password",
        ca="metrics-ca",
    )
    histogram = LatencyHistogram(
        "gateway_seconds",
        1.0,
        failed=(FailedWhere("code", "5.."),),
        match=(("kind", "request"),),
        envoy_bins=True,
    )
    return Instrumentation(
        server,
        "custom",
        labels=(("job", "triton"),),
        gateway=(("cluster", "{name}"),),
        server=(("instance", "{address}"),),
        gateway_pods=2,
        device="dcgm",
        histogram=histogram,
    )


def a_workload() -> Workload:
    """A Deployment whose configuration a ConfigMap owns."""
    route = RouteReference(RouteKind.HTTP_ROUTE, "vision", 1, "main")
    return Workload(
        "models",
        WorkloadKind.DEPLOYMENT,
        "vision",
        "vision",
        route,
        config_map="vision-config",
        container="tritonserver",
    )


def a_rich_study(slo: SloBudget | None = None, **changes: Any) -> Study:
    """A study in which nothing is left out."""
    limits = Limits(4, 20_000, preferred_batch_sizes=((), (4, 8)))
    target = a_target(
        canary=replace(a_replica("canary"), backend="vision-canary", pod="vision-canary-0"),
        gateway=Gateway("http://127.0.0.1:9900", "route.vision", clusters={"vision-canary": "models/vision"}),
        replica_cost_per_hour=2.5,
        note="naïve – “quoted”",
        limits=limits,
        metrics=a_metrics_server(),
        workload=a_workload(),
        traces=a_trace_store(),
    )
    fields: dict[str, Any] = {
        "plan": a_plan(target=target, slo=slo or a_budget()),
        "phase": Phase.SEARCH,
        "incumbent": Incumbent(
            a_configuration(),
            dict.fromkeys(REPLICAS, '{"name": "small_vision"}'),
            dict.fromkeys(REPLICAS, "0123456789abcdef"),
            dict.fromkeys(REPLICAS, 333),
            Provenance(("2", "10"), "2.51.0", "triton@sha256:12", "NVIDIA-A100"),
        ),
        "trials": (judged(a_trial(0, kind=TrialKind.BASELINE, steps=(a_fast_step(),))), a_trial(1)),
        "pending": Pending(SetWeights({"canary": 500, "stable-0": 250, "stable-1": 250}), at(99)),
        "dispersion": AWKWARD,
        "measured_dispersion": 2 * AWKWARD,
        "control_baseline": Counts(10_000, 20, 10, 1),
        "reference_rate_per_second": 500.1,
        "winner": 1,
        "rejected_winners": (0,),
        "promoted": ("stable-0",),
        "unsettled": ("canary",),
        "phase_since": at(50),
        "canary_since": at(1),
        "proposed_to": "ConfigMap vision-config is owned by Argo CD",
        "intended": Outcome.ABORTED,
        "reason": "so far so good",
    }
    return a_study(**{**fields, **changes})


def judged(trial: Trial, verdict: Verdict = Verdict.ACCEPT) -> Trial:
    """The trial, over."""
    return replace(
        trial,
        state=TrialState.JUDGED,
        window=None,
        verdict=verdict,
        limited_by="traffic",
        reason=f"trial {trial.number} is over",
        ended_at=at(120),
    )


def ended(study: Study, outcome: Outcome = Outcome.KEPT) -> Study:
    """The study, over."""
    return replace(
        study, phase=Phase.ENDED, outcome=outcome, ended_at=at(1000), reason="nothing better", pending=None
    )


def decided(study: Study, seconds: float = 100) -> Study:
    """The study with a load decided."""
    load = Load("canary", a_configuration(max_queue_delay_microseconds=1000))
    return replace(study, pending=Pending(load, at(seconds)))


def an_entry(sequence: int, after: Study, **changes: Any) -> JournalEntry:
    """The journal entry of a decision that leads to `after`."""
    fields: dict[str, Any] = {
        "sequence": sequence,
        "kind": "decision",
        "at": at(sequence),
        "observed": {"at": at(sequence), "rate": AWKWARD, "names": ("a", "b"), "top": float("inf")},
        "action": to_record(after.pending.action, Action) if after.pending else None,
        "reason": f"reason {sequence}",
        "actor": "worker-1",
        "state": digest(after),
    }
    return JournalEntry(**{**fields, **changes})


def append(store: Store, before: Study, after: Study, grant: Grant, **changes: Any) -> Study:
    """Append `after` as the next entry and return it as it is stored."""
    entry = an_entry(store.next_sequence(after.id), after, **changes)
    store.append(before, after, entry, grant)
    return store.study(after.id)


TTL = timedelta(seconds=15)
"""How long the leases of the tests last."""

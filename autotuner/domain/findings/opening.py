"""What a study found production to be like: the rules of a diagnosis, over what production's own window counted.

Made of the records alone whenever somebody asks, so that a rule that is worded better changes no decision: nothing in
a study rests on it but what `preflight` asks of the same rules.
"""

from __future__ import annotations

import json

from autotuner.domain.findings.assess import assess_counted
from autotuner.domain.findings.kinds import Finding
from autotuner.domain.findings.reading import Batch, Device, Facts, Look, ReplicaLook, Work
from autotuner.domain.findings.scene import Scene
from autotuner.domain.findings.window import gather
from autotuner.domain.measurement import GatewayCounters, Sample, ServerCounters
from autotuner.domain.study import Incumbent, Step, Study, TrialKind


def opening(study: Study) -> tuple[Finding, ...]:
    """Return what was the matter with production before anything was tried, most important first.

    Empty until production was measured, and of studies whose records do not keep what was counted.
    """
    step = next((one for one in reversed(_of_production(study)) if one.counted is not None), None)
    if study.incumbent is None or step is None or step.counted is None:
        return ()
    return assess_counted(_scene(study, study.incumbent, step, step.counted))


def _of_production(study: Study) -> tuple[Step, ...]:
    return next((trial.steps for trial in study.trials if trial.kind is TrialKind.PRODUCTION), ())


def _scene(study: Study, incumbent: Incumbent, step: Step, counted: Sample) -> Scene:
    target = study.plan.target
    config = json.loads(incumbent.configs[target.stable_names[0]])
    replicas = {name: _replica(one, target.model) for name, one in counted.servers.items()}
    began = {name: _nothing_yet(one, target.model) for name, one in counted.servers.items()}
    zero = GatewayCounters(0, 0, 0, 0, (0,) * len(counted.edges_seconds), 0.0)
    looks = (
        Look(step.started_at, began, dict.fromkeys(counted.gateway, zero), counted.edges_seconds),
        Look(step.ended_at, replicas, counted.gateway, counted.edges_seconds),
    )
    window = gather(looks, target.model)
    return Scene(study.plan.slo.p99_ceiling_seconds, window, Facts(target.model, {target.model: config}))


def _replica(one: ServerCounters, model: str) -> ReplicaLook:
    device = Device(None, one.device_busy_seconds, one.memory_used_bytes, one.memory_total_bytes)
    return ReplicaLook({model: _work(one)}, metrics=True, device=device)


def _nothing_yet(one: ServerCounters, model: str) -> ReplicaLook:
    busy = None if one.device_busy_seconds is None else 0.0
    return ReplicaLook({model: Work()}, metrics=True, device=Device(busy_seconds=busy))


def _work(one: ServerCounters) -> Work:
    """What a server did. A request's whole time in Triton is not counted for a study: its queue and compute are."""
    return Work(
        requests=one.succeeded,
        failures=one.failed,
        inferences=one.inferences,
        executions=one.executions,
        request_seconds=one.queue_seconds + one.compute_seconds,
        queue_seconds=one.queue_seconds,
        input_seconds=one.input_seconds,
        infer_seconds=one.infer_seconds,
        output_seconds=one.output_seconds,
        batches=tuple(
            Batch(each.size, each.executions, 0.0, each.compute_seconds, 0.0) for each in one.batches
        ),
    )

"""All rules together: which of them may speak, in which order, and when nothing is the matter."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from autotuner.domain.findings.kinds import Confidence, Finding, Kind, Severity, ordered
from autotuner.domain.findings.rules import around, device, load, setup, tool
from autotuner.domain.findings.scene import Scene, ms

Rule = Callable[[Scene], Finding | None]

BY_CONFIGURATION: tuple[Rule, ...] = (
    tool.wrong_tool,
    tool.stateful,
    tool.ensemble,
    setup.no_batcher,
    setup.delay_above_ceiling,
    setup.cache_on,
    device.memory,
)
"""Rules that need no traffic: what the server tells of itself stays true whatever the window was like."""

OF_INSTRUMENTS: tuple[Rule, ...] = (setup.metrics_missing, setup.summaries_off)
"""Rules about what the servers' own pages tell: more than counters, which a study does without."""

BY_TRAFFIC: tuple[Rule, ...] = (
    around.failures,
    load.model,
    load.saturation,
    setup.capped,
    setup.above_profile,
    load.batching,
    around.outside_triton,
    around.unequal_shares,
    around.client_batches,
    device.more_instances,
    device.fewer_instances,
    around.cold_start,
    load.thin_traffic,
)

OF_THE_BATCHER = frozenset({Kind.BATCHING, Kind.SATURATION, Kind.THIN_TRAFFIC, Kind.INSTANCES})
"""What cannot be said of a model whose batching is not the dynamic batcher's."""


def assess(scene: Scene) -> tuple[Finding, ...]:
    """Return everything that is the matter, most important first; HEALTHY where nothing is."""
    return _assessed(scene, (*BY_CONFIGURATION, *OF_INSTRUMENTS))


def assess_counted(scene: Scene) -> tuple[Finding, ...]:
    """Return the same of a scene that is made of counters alone: of the servers' pages nothing is said."""
    return _assessed(scene, BY_CONFIGURATION)


def _assessed(scene: Scene, by_configuration: Iterable[Rule]) -> tuple[Finding, ...]:
    found = [finding for rule in by_configuration if (finding := rule(scene))]
    if (nothing := load.idle(scene)) is not None:
        return ordered([*found, nothing])
    by_traffic = [finding for rule in BY_TRAFFIC if (finding := rule(scene))]
    if scene.window.reloads:
        by_traffic = [_doubted(finding) for finding in by_traffic]
    found = _without_consequences([*found, *by_traffic])
    if all(finding.severity is Severity.NOTICE for finding in found):
        found.append(_healthy(scene))
    return ordered(found)


def _doubted(finding: Finding) -> Finding:
    """Means over a reload are of two things: what rests on them is likely at best."""
    if finding.kind is Kind.COLD_START or finding.confidence is not Confidence.SURE:
        return finding
    return replace(finding, confidence=Confidence.LIKELY)


def _without_consequences(found: Iterable[Finding]) -> list[Finding]:
    """Leave out what another finding causes: one cause is worth more than its three effects."""
    found = list(found)
    kinds = {finding.kind for finding in found}
    sure = {finding.kind for finding in found if finding.confidence is Confidence.SURE}
    left_out: set[Kind] = set()
    if kinds & {Kind.WRONG_TOOL, Kind.STATEFUL, Kind.ENSEMBLE}:
        left_out |= OF_THE_BATCHER
    if Kind.MODEL in sure:
        left_out |= {Kind.BATCHING, Kind.THIN_TRAFFIC, Kind.INSTANCES}
    if kinds & {Kind.THIN_TRAFFIC, Kind.SATURATION} or sure & {Kind.INSTANCES}:
        left_out |= {Kind.BATCHING}
    if any(finding.kind is Kind.MISCONFIGURATION and finding.severity >= Severity.COSTS for finding in found):
        left_out |= {Kind.BATCHING}
    if Kind.SATURATION in sure:
        left_out |= {Kind.INSTANCES}
    return [finding for finding in found if finding.kind not in left_out]


def _healthy(scene: Scene) -> Finding:
    """Nothing costs requests anything; or the ceiling is broken and no rule says why."""
    p99, ceiling = scene.latency.p99_seconds, scene.ceiling_seconds
    evidence: tuple[str, ...]
    split = f"{ms(scene.queue_seconds)} in the queue, {ms(scene.compute_seconds)} of compute"
    if p99 is not None and p99 > ceiling:
        evidence = (f"p99 is {ms(p99)}, over the ceiling of {ms(ceiling)}; the mean request spends {split}",)
        remedy = "no single cause stands out: bursts, or a tail of slow batches; a study would try what helps"
        return Finding(Kind.BATCHING, Confidence.POSSIBLE, evidence, remedy, Severity.BREAKS, 0.1)
    if p99 is None:
        evidence = (f"the mean request takes {ms(scene.total_seconds)} ({split}); no source tells p99",)
    else:
        evidence = (
            f"p99 is {ms(p99)}, within the ceiling of {ms(ceiling)}; the mean request spends {split}",
        )
    if not scene.enough:
        evidence += (f"only {scene.work.requests} requests came, which shows little",)
    sure = scene.enough and p99 is not None
    remedy = "nothing needs mending; whether tuning would be worth it is the prediction's to say"
    return Finding(
        Kind.HEALTHY, Confidence.SURE if sure else Confidence.LIKELY, evidence, remedy, Severity.COSTS, 0.0
    )

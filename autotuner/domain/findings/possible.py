"""Whether a study could run here, and what is missing: the needs of a study, from what a diagnosis saw."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from autotuner.domain.findings.kinds import Confidence, Finding, Kind
from autotuner.domain.findings.scene import Scene
from autotuner.domain.needs import Answer, Check, Ground, needs, verdict_takes


@dataclass(frozen=True)
class StudyPossible:
    """All needs. verdict_takes: how long one verdict would take at this rate; None without traffic."""

    needs: tuple[Check, ...]
    verdict_takes: timedelta | None

    @property
    def possible(self) -> bool | None:
        """True when nothing that is needed is missing, False when something is, None when that is not known of some."""
        answers = {need.answer for need in self.needs}
        if Answer.NO in answers:
            return False
        return None if Answer.UNKNOWN in answers else True

    @property
    def missing(self) -> tuple[str, ...]:
        """What is not there, not known or doubtful, one sentence each."""
        return tuple(need.sentence for need in self.needs if need.answer is not Answer.YES)


def study_possible(scene: Scene, findings: tuple[Finding, ...]) -> StudyPossible:
    """Return what a study here would have and lack."""
    found = needs(_ground(scene))
    sure = [one for one in findings if one.kind is Kind.MODEL and one.confidence is Confidence.SURE]
    if sure:
        found = (Check("a model within the ceiling", Answer.NO, sure[0].evidence[0]), *found)
    return StudyPossible(found, verdict_takes(scene.window.rate_per_second))


def _ground(scene: Scene) -> Ground:
    gateway, facts = scene.window.gateway, scene.facts
    return Ground(
        ceiling_seconds=scene.ceiling_seconds,
        config=scene.config,
        edges_seconds=gateway.edges_seconds if gateway is not None and gateway.edges_seconds else None,
        rate_per_second=scene.window.rate_per_second,
        memory=tuple(
            (one.memory_used_bytes, one.memory_total_bytes)
            for one in scene.window.replicas.values()
            if one.memory_used_bytes is not None and one.memory_total_bytes
        ),
        alone=None if facts.models is None else facts.models == 1,
        weighted=facts.weighted_route,
        route=facts.route or ROUTES[facts.weighted_route],
        replicas=len(scene.window.replicas),
        control=_control(scene),
    )


ROUTES = {
    None: "the gateway's routes were not read",
    True: "the gateway has weighted_clusters with a runtime_key_prefix",
    False: "no route of the gateway has weighted_clusters with a runtime_key_prefix: weights cannot be set",
}


def _control(scene: Scene) -> str:
    """Why model control cannot be told where even its interface is closed; empty elsewhere."""
    closed = [one for one in scene.facts.unread if one.what.startswith("the model repository")]
    return f"{closed[0].sentence()}; a study needs that interface too" if closed else ""

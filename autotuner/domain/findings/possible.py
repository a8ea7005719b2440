"""Whether a study could run here, and what is missing: what only a study needs, beside what a diagnosis needs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from autotuner.domain.configuration import read_configuration
from autotuner.domain.findings.kinds import Confidence, Finding, Kind
from autotuner.domain.findings.preflight import requests_to_accept
from autotuner.domain.findings.scene import Scene, ms
from autotuner.domain.judgement import SCREENING
from autotuner.domain.measurement import edges_around
from autotuner.errors import AutotunerError, InvalidInput

DISPERSION = 3.0
"""Slow requests are taken to come in clusters of so many: what bursty traffic shows; a study measures its own."""

PATIENCE = timedelta(minutes=30)
"""A verdict that takes longer than this makes a night of three trials."""

EDGE_NEAR = 0.1
"""A bucket edge within this share of the ceiling is near enough: verdicts are a little stricter than the promise."""


class Answer(StrEnum):
    """Whether one thing that a study needs is there."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"
    """It cannot be read without writing, or its source was not named."""


@dataclass(frozen=True)
class Need:
    """One thing a study needs. what: its name. detail: one sentence."""

    what: str
    answer: Answer
    detail: str


@dataclass(frozen=True)
class StudyPossible:
    """All needs. verdict_takes: how long one verdict would take at this rate; None without traffic."""

    needs: tuple[Need, ...]
    verdict_takes: timedelta | None

    @property
    def possible(self) -> bool | None:
        """True when all needs are met, False when one is not, None when that is not known of some."""
        answers = {need.answer for need in self.needs}
        if Answer.NO in answers:
            return False
        return None if Answer.UNKNOWN in answers else True

    @property
    def missing(self) -> tuple[str, ...]:
        """What is not there, or not known, one sentence each."""
        return tuple(f"{need.what}: {need.detail}" for need in self.needs if need.answer is not Answer.YES)


def study_possible(scene: Scene, findings: tuple[Finding, ...]) -> StudyPossible:
    """Return what a study here would have and lack."""
    checks: tuple[Callable[[Scene], Need], ...] = (
        _tunable,
        _control,
        _edge,
        _traffic,
        _memory,
        _route,
        _canary,
    )
    needs = [check(scene) for check in checks]
    sure = [one for one in findings if one.kind is Kind.MODEL and one.confidence is Confidence.SURE]
    if sure:
        needs.insert(0, Need("a model within the ceiling", Answer.NO, sure[0].evidence[0]))
    return StudyPossible(tuple(needs), _takes(scene))


def _tunable(scene: Scene) -> Need:
    what = "a model that can be tuned"
    if not scene.config:
        return Need(what, Answer.UNKNOWN, "its configuration could not be read")
    try:
        read_configuration(scene.config)
    except AutotunerError as error:
        return Need(what, Answer.NO, str(error))
    return Need(what, Answer.YES, "it has a dynamic batcher and one instance group")


def _control(scene: Scene) -> Need:
    detail = (
        "no server tells its --model-control-mode, and trying would be a load: it must be `explicit` on "
        "every replica"
    )
    blocked = [one for one in scene.facts.unread if one.what.startswith("the model repository")]
    if blocked:
        detail = f"{blocked[0].sentence()}; a study needs that interface too"
    return Need("explicit model control", Answer.UNKNOWN, detail)


def _edge(scene: Scene) -> Need:
    what, gateway = "a histogram edge at the ceiling", scene.window.gateway
    if gateway is None or not gateway.edges_seconds:
        return Need(what, Answer.UNKNOWN, "no gateway was read: name it with --gateway")
    try:
        low, high = edges_around(gateway.edges_seconds, scene.ceiling_seconds)
    except InvalidInput:
        return Need(
            what,
            Answer.NO,
            f"the gateway's histogram has no finite edges on both sides of {ms(scene.ceiling_seconds)}",
        )
    below, above = gateway.edges_seconds[low], gateway.edges_seconds[high]
    detail = f"the nearest edges are {ms(below)} and {ms(above)}, the ceiling is {ms(scene.ceiling_seconds)}"
    near = below >= (1.0 - EDGE_NEAR) * scene.ceiling_seconds
    return Need(what, Answer.YES if near else Answer.NO, detail)


def _takes(scene: Scene) -> timedelta | None:
    rate = scene.window.rate_per_second
    if rate <= 0.0:
        return None
    return timedelta(seconds=math.ceil(requests_to_accept(SCREENING, DISPERSION) / rate))


def _traffic(scene: Scene) -> Need:
    takes, what = _takes(scene), "enough traffic"
    if takes is None:
        return Need(what, Answer.NO, "no request came in the window")
    requests = requests_to_accept(SCREENING, DISPERSION)
    minutes = takes.total_seconds() / 60
    detail = (
        f"one verdict takes about {requests:,} requests, {minutes:.1f} minutes at "
        f"{scene.window.rate_per_second:.3g}/s on a replica"
    )
    return Need(what, Answer.YES if takes <= PATIENCE else Answer.NO, detail)


def _memory(scene: Scene) -> Need:
    what = "memory for a reload"
    known = [
        one.memory_used_bytes / one.memory_total_bytes
        for one in scene.window.replicas.values()
        if one.memory_used_bytes is not None and one.memory_total_bytes
    ]
    if not known:
        return Need(what, Answer.UNKNOWN, "the servers report no device memory")
    used = max(known)
    fits = 2.0 * used <= 1.0
    detail = (
        f"{100 * used:.0f} % of the device's memory is in use, and old and new version are both loaded for "
        "a moment"
    )
    if fits:
        return Need(what, Answer.YES, detail)
    return Need(what, Answer.NO if scene.facts.models == 1 else Answer.UNKNOWN, detail)


def _route(scene: Scene) -> Need:
    what = "a weighted route"
    if scene.facts.weighted_route is None:
        return Need(what, Answer.UNKNOWN, "the gateway's routes were not read")
    if scene.facts.weighted_route:
        return Need(what, Answer.YES, "the gateway has weighted_clusters with a runtime_key_prefix")
    return Need(
        what,
        Answer.NO,
        "no route of the gateway has weighted_clusters with a runtime_key_prefix: weights cannot be set",
    )


def _canary(scene: Scene) -> Need:
    what, count = "a replica to spare", len(scene.window.replicas)
    if count > 1:
        return Need(what, Answer.YES, f"{count} replicas were read")
    return Need(
        what,
        Answer.UNKNOWN,
        "one replica was read: a study needs a canary beside at least one stable replica",
    )

"""Promotions that were made, on the wire: taking one back, what it rests on, and what all of them were worth."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from api.schemas.studies import ConfigurationAnswer, GpuHoursAnswer, StandingAnswer
from api.schemas.wire import Answer
from autotuner.answers import configuration_object, gpu_hours_object, standing_object
from autotuner.catalogue import LedgerLine
from autotuner.domain.benefit import Standing
from autotuner.domain.certificate import LAPSES_WHEN
from autotuner.promotions import Proof
from autotuner.sections import Section


class Because(Section):
    """Why it is asked for."""

    reason: str = Field(
        min_length=1,
        max_length=1000,
        pattern=r"\S",
        description="a text of 1 to 1000 characters; goes into the audit",
        examples=["incident 4711"],
    )


class RollbackAnswer(Answer):
    """The study that takes a promotion back."""

    study: str = Field(
        description="Its id: watch it as any other study.",
        examples=["small-vision-20260105-020000-1f2e3d-rollback-1"],
    )
    begun: bool = Field(description="Whether this request began it; false when it was asked for before.")


class CertificateAnswer(Answer):
    """What a promotion rests on."""

    study: str = Field(
        description="The study that promoted.", examples=["small-vision-20260105-020000-1f2e3d"]
    )
    target: str = Field(description="Its target.", examples=["small-vision"])
    configuration: ConfigurationAnswer = Field(description="What was promoted.")
    fingerprint: str = Field(
        description="Digest of the complete model configuration that production serves with it.",
        examples=["8f1e5c7f0a4be2d1"],
    )
    given_at: datetime = Field(description="When.", examples=["2026-01-05T04:10:00Z"])
    lowest_rate_per_second: float = Field(
        description="Lower end of the load band: requests per second of one replica.", examples=[40.2]
    )
    highest_rate_per_second: float = Field(
        description="Upper end of the load band: requests per second of one replica.", examples=[120.5]
    )
    levels: int = Field(description="Load levels in the band that were judged on fresh data.", examples=[3])
    band_at_least: bool = Field(description="Whether only the traffic, not the ceiling, ended the band.")
    requests: int = Field(description="Ended requests that were judged.", examples=[21_000])
    bad: int = Field(description="Of these slow or failed, counted strictly.", examples=[31])
    p99_ms: float = Field(
        description="Ceiling in milliseconds that at most `allowed_share` of requests exceed, or fail.",
        examples=[100],
    )
    allowed_share: float = Field(description="Share of requests, 0 to 1.", examples=[0.01])
    error_ratio: float = Field(description="Share of requests, 0 to 1, that may fail.", examples=[0.001])
    confidence: float = Field(
        description="1 − the chance that a level at the very edge was accepted wrongly.", examples=[0.99]
    )
    slo_version: int = Field(description="The version of the SLO budget it was judged by.", examples=[1])
    model: str = Field(description="The model's name in Triton.", examples=["small_vision"])
    platform: str = Field(description="Its platform or backend.", examples=["onnxruntime_onnx"])
    version_policy: str = Field(
        description="Its version policy as JSON text, as Triton read it back; empty without one.",
        examples=['{"latest": {"num_versions": 1}}'],
    )
    hardware: str = Field(description="Kind of its instance group.", examples=["KIND_GPU"])
    devices: list[int] = Field(description="Numbers of the devices, where configured.", examples=[[0]])
    device_memory_bytes: float | None = Field(
        description="Memory of the device, bytes; null where the server did not tell.", examples=[16e9]
    )
    model_versions: list[str] = Field(
        description="Versions of the model that Triton reported as loaded while it was measured; empty: it did not.",
        examples=[["1"]],
    )
    triton: str | None = Field(
        description="Triton's own version; null where it was not told.", examples=["2.51.0"]
    )
    image: str | None = Field(
        description="Image of the container, by digest where the node told it; null outside Kubernetes.",
        examples=["nvcr.io/nvidia/tritonserver@sha256:0f9c"],
    )
    device_type: str | None = Field(
        description="Type of device, as the pod's node selector names it; null where nothing names it.",
        examples=["NVIDIA-A100-SXM4-40GB"],
    )
    lapsed: str = Field(
        description="Why it no longer holds, as far as the records tell; empty while it does.", examples=[""]
    )
    lapses_when: list[str] = Field(description="What ends it.", examples=[list(LAPSES_WHEN[:2])])


class LedgerItem(Answer):
    """What one promotion was worth."""

    study: str = Field(
        description="The study that promoted.", examples=["small-vision-20260105-020000-1f2e3d"]
    )
    target: str = Field(description="Its target.", examples=["small-vision"])
    promoted_at: datetime = Field(description="When.", examples=["2026-01-05T04:10:00Z"])
    reason: str = Field(description="Why.", examples=["the winner holds in production"])
    incumbent: StandingAnswer | None = Field(description="What served before; null where not measured.")
    winner: StandingAnswer | None = Field(description="What has served since; null where not measured.")
    capacity_ratio: float | None = Field(
        description="The winner's capacity over the incumbent's; null where one is not known.", examples=[1.4]
    )
    currency: str = Field(description="Currency of the costs.", examples=["USD"])
    trials: int = Field(description="Configurations that were tried.", examples=[8])
    harm_requests: float = Field(
        description="Slow or failed requests above the allowed 1 % that finding out cost.", examples=[12.5]
    )
    harm_budget_requests: int = Field(description="How many it might have cost.", examples=[500])
    gpu_hours: GpuHoursAnswer = Field(description="What it cost in GPU hours, and what it saves a day.")
    rolled_back_by: str | None = Field(
        description="The study that took it back; null while it stands.", examples=[None]
    )
    rolled_back_at: datetime | None = Field(description="When; null while it stands.", examples=[None])


def certificate_answer(proof: Proof) -> CertificateAnswer:
    """Return a certificate as it goes over the wire."""
    given = proof.certificate
    return CertificateAnswer(
        study=given.study_id,
        target=given.target,
        configuration=ConfigurationAnswer(**configuration_object(given.configuration)),
        fingerprint=given.fingerprint,
        given_at=given.given_at,
        lowest_rate_per_second=given.band.lowest_per_second,
        highest_rate_per_second=given.band.highest_per_second,
        levels=given.band.levels,
        band_at_least=given.band.at_least,
        requests=given.band.requests,
        bad=given.band.bad,
        p99_ms=given.bound.p99_ceiling_seconds * 1e3,
        allowed_share=given.bound.allowed_share,
        error_ratio=given.bound.error_ratio_ceiling,
        confidence=given.bound.confidence,
        slo_version=given.bound.slo_version,
        model=given.model.name,
        platform=given.model.platform,
        version_policy=given.model.version_policy,
        hardware=given.hardware.kind,
        devices=list(given.hardware.devices),
        device_memory_bytes=given.hardware.memory_bytes,
        model_versions=list(given.provenance.model_versions),
        triton=given.provenance.triton or None,
        image=given.provenance.image or None,
        device_type=given.provenance.device_type or None,
        lapsed=proof.lapsed,
        lapses_when=list(LAPSES_WHEN),
    )


def ledger_item(line: LedgerLine) -> LedgerItem:
    """Return a line of the ledger as it goes over the wire."""
    worth = line.worth
    return LedgerItem(
        study=line.study_id,
        target=line.target,
        promoted_at=line.promoted_at,
        reason=line.reason,
        incumbent=_standing(worth.incumbent),
        winner=_standing(worth.winner),
        capacity_ratio=worth.capacity_ratio,
        currency=line.currency,
        trials=worth.candidates,
        harm_requests=worth.harm_requests,
        harm_budget_requests=worth.harm_budget_requests,
        gpu_hours=GpuHoursAnswer(**gpu_hours_object(worth.gpu_hours)),
        rolled_back_by=line.rolled_back_by,
        rolled_back_at=line.rolled_back_at,
    )


def _standing(standing: Standing | None) -> StandingAnswer | None:
    told = standing_object(standing)
    return None if told is None else StandingAnswer(**told)

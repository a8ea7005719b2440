"""The workload file: what a sandbox run pretends to serve, written by people and checked before anything starts.

A file that cannot work is refused with the field, the value found and what is allowed; nothing is guessed and no
unknown field is passed over. Files that come with the package are loaded by name, any other by path.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, StrictInt, model_validator

from autotuner.domain.configuration import MAX_DELAY_MICROSECONDS, Configuration
from autotuner.domain.study import Approval
from autotuner.domain.target import Limits as TargetLimits
from autotuner.domain.target import Objective
from autotuner.errors import InvalidInput
from autotuner.sandbox.arrivals import KINDS, Arrivals, describe
from autotuner.sections import FRACTION, NAME_PATTERN, SAMPLERS, Section, parse_yaml, validated

DEFAULT_WORKLOAD = "small-vision"
SUFFIX = ".yaml"
ONNX_MODELS = ("magika",)

DelayMicroseconds = Annotated[
    int, Field(ge=0, le=MAX_DELAY_MICROSECONDS, description=f"a whole number, 0 to {MAX_DELAY_MICROSECONDS}")
]


class ModelKind(StrEnum):
    """What stands behind the model."""

    EMULATED_GPU = "emulated-gpu"
    ONNX = "onnx"


class Incumbent(Section):
    """The configuration in production when tuning starts."""

    max_queue_delay_microseconds: DelayMicroseconds = 0
    preferred_batch_size: tuple[StrictInt, ...] = Field(
        default=(), strict=False, description="a list of whole batch sizes, 1 to max_batch_size; [] for none"
    )
    instance_count: int = Field(
        default=1, ge=1, le=64, description="a whole number, 1 to limits.instance_count"
    )


class Limits(Section):
    """How far tuning may go."""

    instance_count: int = Field(default=4, ge=1, le=64, description="a whole number, 1 to 64")
    max_queue_delay_microseconds: DelayMicroseconds | None = Field(
        default=None,
        description=f"a whole number, 0 to {MAX_DELAY_MICROSECONDS}; left out: follows from the p99",
    )


class Traffic(Section):
    """How many requests arrive, over all replicas together, and when."""

    requests_per_second: float = Field(gt=0, le=5000, description="a number above 0, up to 5000")
    arrivals: Mapping[str, Any] = Field(description=KINDS)

    def process(self) -> Arrivals:
        """The arrival process. Raises InvalidInput."""
        try:
            return describe(self.arrivals, requests_per_second=self.requests_per_second)
        except InvalidInput as error:
            raise InvalidInput(f"traffic.{error.field}", error.value, error.allowed) from error
        except TypeError as error:
            raise InvalidInput("traffic.arrivals", dict(self.arrivals), KINDS) from error


class Slo(Section):
    """What is promised to users."""

    p99_ms: float = Field(gt=0, le=600_000, description="milliseconds above 0, up to 600000")
    error_ratio: float = Field(
        default=0.001, gt=0, le=0.01, description="a fraction above 0, up to 0.01 (1 %)"
    )
    max_canary_share: float = Field(
        default=0.85, gt=0, le=0.95, description="a fraction above 0, up to 0.95; not a percentage"
    )
    harm_budget_requests: int = Field(
        default=2000, ge=1, description="a whole number of requests, at least 1"
    )


class OnnxModel(Section):
    """Which real model is served."""

    file: str = Field(pattern="|".join(ONNX_MODELS), description=f"one of: {', '.join(ONNX_MODELS)}")


class Faults(Section):
    """Faults to be rehearsed; each concerns configurations with exactly that queue delay."""

    fail_load_when_delay_us: DelayMicroseconds | None = None
    hang_load_when_delay_us: DelayMicroseconds | None = None
    slow_when_delay_us: DelayMicroseconds | None = None


class StudySettings(Section):
    """What a file may change of the rehearsal's plan; `sandbox.stack` has what is left out."""

    objective: Objective = Field(
        default=Objective.CAPACITY, strict=False, description=f"one of: {', '.join(Objective)}"
    )
    max_trials: int | None = Field(default=None, ge=1, le=1000, description="a whole number, 1 to 1000")
    ramp_steps: int | None = Field(default=None, ge=2, le=50, description="a whole number, 2 to 50")
    minimum_gain: float | None = Field(
        default=None, ge=0, le=10, description="a fraction from 0: 0.05 is 5 %", json_schema_extra=FRACTION
    )
    max_voids: int | None = Field(default=None, ge=0, le=100, description="a whole number, 0 to 100")
    approval: Approval | None = Field(
        default=None, strict=False, description=f"one of: {', '.join(Approval)}"
    )
    sampler: str | None = Field(
        default=None, pattern=f"^({'|'.join(SAMPLERS)})$", description=f"one of: {', '.join(SAMPLERS)}"
    )


class Workload(Section):
    """One workload file. Durations are milliseconds, memory is megabytes (10⁶ bytes)."""

    name: str = Field(pattern=NAME_PATTERN, description="lower-case letters, digits and hyphens")
    model: ModelKind = Field(strict=False, description=f"one of: {', '.join(ModelKind)}")
    description: str = Field(default="", description="a text")
    max_batch_size: int = Field(ge=1, le=1024, description="a whole number, 1 to 1024")
    incumbent: Incumbent = Field(
        default=Incumbent(), description="a section with the incumbent configuration"
    )
    limits: Limits = Field(default=Limits(), description="a section with limits")
    traffic: Traffic = Field(description="a section with requests_per_second and arrivals")
    slo: Slo = Field(description="a section with p99_ms")
    gpu_cost_per_hour: float = Field(
        default=2.5, gt=0, le=10_000, description="an amount above 0, up to 10000"
    )
    currency: str = Field(
        default="USD", pattern="^[A-Z]{3}$", description="three capital letters, such as USD"
    )
    study: Mapping[str, Any] | None = Field(default=None, description="a section of study settings")

    # Fields of emulated-gpu models:
    batch_latency_ms: Mapping[int, float] | None = Field(
        default=None,
        description="a map of batch size to milliseconds above 0, not decreasing, with 1 and max_batch_size in it",
    )
    transfer_ms_per_item: float | None = Field(
        default=None, ge=0, le=10_000, description="milliseconds, 0 to 10000"
    )
    instance_memory_mb: float | None = Field(
        default=None, gt=0, le=10_000_000, description="megabytes above 0"
    )
    device_memory_mb: float | None = Field(default=None, gt=0, le=10_000_000, description="megabytes above 0")
    jitter_sigma: float = Field(default=0.0, ge=0, le=1, description="a number, 0 (no jitter) to 1")
    faults: Faults | None = Field(default=None, description="a section with planted faults")

    # The field of onnx models:
    onnx: OnnxModel | None = Field(default=None, description="a section with the model's file")

    @model_validator(mode="after")
    def _checked_together(self) -> Self:
        self._check_kind()
        self._check_incumbent()
        self.traffic.process()
        if self.batch_latency_ms is not None:
            self._check_curve(self.batch_latency_ms)
        self._check_memory()
        self.study_settings()
        return self

    def _check_kind(self) -> None:
        emulated = ("batch_latency_ms", "transfer_ms_per_item", "instance_memory_mb", "device_memory_mb")
        real = self.model is ModelKind.ONNX
        for field in ("onnx",) if real else emulated:
            if getattr(self, field) is None:
                raise InvalidInput(field, None, f"{_description(field)}; model: {self.model} needs it")
        for field in (*emulated, "jitter_sigma", "faults") if real else ("onnx",):
            if field in self.model_fields_set:
                raise InvalidInput(
                    field, getattr(self, field), f"nothing: model: {self.model} does not have it"
                )

    def _check_incumbent(self) -> None:
        if self.incumbent.instance_count > self.limits.instance_count:
            allowed = f"at most limits.instance_count, {self.limits.instance_count}"
            raise InvalidInput("incumbent.instance_count", self.incumbent.instance_count, allowed)
        for size in self.incumbent.preferred_batch_size:
            if not 1 <= size <= self.max_batch_size:
                allowed = f"whole batch sizes, 1 to max_batch_size, {self.max_batch_size}"
                raise InvalidInput("incumbent.preferred_batch_size", size, allowed)
        longest = self.limits.max_queue_delay_microseconds
        delay = self.incumbent.max_queue_delay_microseconds
        if longest is not None and delay > longest:
            allowed = f"at most limits.max_queue_delay_microseconds, {longest}"
            raise InvalidInput("incumbent.max_queue_delay_microseconds", delay, allowed)

    def _check_curve(self, curve: Mapping[int, float]) -> None:
        for size, milliseconds in curve.items():
            if not 1 <= size <= self.max_batch_size:
                allowed = f"batch sizes from 1 to max_batch_size, {self.max_batch_size}"
                raise InvalidInput("batch_latency_ms", size, allowed)
            if not 0 < milliseconds <= 60_000:
                raise InvalidInput(
                    f"batch_latency_ms.{size}", milliseconds, "milliseconds above 0, up to 60000"
                )
        for size in (1, self.max_batch_size):
            if size not in curve:
                allowed = (
                    f"a map that covers every batch size: with 1 and max_batch_size, {self.max_batch_size}"
                )
                raise InvalidInput("batch_latency_ms", sorted(curve), allowed)
        for (_, smaller), (size, larger) in pairwise(sorted(curve.items())):
            if larger < smaller:
                allowed = f"at least the {smaller:g} ms of the next smaller batch"
                raise InvalidInput(f"batch_latency_ms.{size}", larger, allowed)
        alone_ms = curve[1] + (self.transfer_ms_per_item or 0)
        if self.slo.p99_ms <= alone_ms:
            allowed = f"more than {alone_ms:g} ms, which one request takes with nothing before it"
            raise InvalidInput("slo.p99_ms", self.slo.p99_ms, allowed)

    def _check_memory(self) -> None:
        if self.instance_memory_mb is None or self.device_memory_mb is None:
            return
        needed_mb = self.instance_memory_mb * self.incumbent.instance_count
        if needed_mb > self.device_memory_mb:
            allowed = f"at least the {needed_mb:g} MB that the incumbent's instances take"
            raise InvalidInput("device_memory_mb", self.device_memory_mb, allowed)

    def study_settings(self) -> StudySettings:
        """What the file says about the study. Raises InvalidInput."""
        try:
            return validated(StudySettings, self.study or {}, "study")
        except InvalidInput as error:
            raise InvalidInput(f"study.{error.field}", error.value, error.allowed) from error

    @property
    def note(self) -> str:
        """What stands behind the figures, to be shown wherever they are."""
        return "emulated GPU" if self.model is ModelKind.EMULATED_GPU else "real ONNX model on CPU"

    def search_limits(self) -> TargetLimits:
        """How far tuning may go, in the domain's words."""
        longest = self.limits.max_queue_delay_microseconds
        return TargetLimits(
            max_instance_count=self.limits.instance_count,
            max_queue_delay_microseconds=int(self.slo.p99_ms * 1000) if longest is None else longest,
        )

    def incumbent_configuration(self) -> Configuration:
        """The incumbent in the domain's words."""
        return Configuration(
            max_queue_delay_microseconds=self.incumbent.max_queue_delay_microseconds,
            preferred_batch_size=self.incumbent.preferred_batch_size,
            instance_count=self.incumbent.instance_count,
            max_batch_size=self.max_batch_size,
        )


def load_workload(path_or_name: str | Path) -> Workload:
    """The workload of a file, or of a name that `workload_names` lists. Raises InvalidInput."""
    return parse_workload(parse_yaml(_read(path_or_name), "workload", str(path_or_name)))


def parse_workload(content: object) -> Workload:
    """The workload that parsed YAML describes. Raises InvalidInput."""
    return validated(Workload, content, "workload")


def workload_names() -> tuple[str, ...]:
    """Names of the workloads that come with the package."""
    entries = (entry.name for entry in files("autotuner.sandbox").joinpath("workloads").iterdir())
    return tuple(sorted(name.removesuffix(SUFFIX) for name in entries if name.endswith(SUFFIX)))


def _read(path_or_name: str | Path) -> str:
    if str(path_or_name) in workload_names():
        return files("autotuner.sandbox").joinpath("workloads", f"{path_or_name}{SUFFIX}").read_text("utf-8")
    try:
        return Path(path_or_name).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        allowed = f"the path of a readable file, or one of: {', '.join(workload_names())}"
        raise InvalidInput("workload", str(path_or_name), allowed) from error


def _description(field: str) -> str:
    return Workload.model_fields[field].description or ""

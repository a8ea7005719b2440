"""The `metrics` section of a target file: a metrics server that counts, and how a target's series are found there.

Secrets are named here, never written: a target is stored, shown and sent over the API.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, StrictStr, model_validator

from autotuner.domain.sources import (
    FailedWhere,
    Instrumentation,
    Labels,
    LatencyHistogram,
    PrometheusServer,
)
from autotuner.errors import InvalidInput
from autotuner.identity_section import (
    Basic,
    Bearer,
    Certificate,
    Tenant,
    check_identity,
    identity,
    identity_of,
)
from autotuner.instruments.devices import DEVICES, TRITON
from autotuner.instruments.presets import CUSTOM, preset_names
from autotuner.section_values import Duration, Url, duration_text
from autotuner.sections import Section

LABEL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
FAMILY_PATTERN = r"^[a-zA-Z_:][a-zA-Z0-9_:]*$"
LABELS_ALLOWED = "a mapping of at most 10 label names to texts of at most 200 characters"
LONGEST_DEADLINE = timedelta(seconds=3)
DEADLINE_ALLOWED = "a duration from 100ms to 3s"


POD = "{pod}"
"""What stands for the name of a replica's pod; only a workload on Kubernetes has one."""

PATTERN_PATTERN = r"^[0-9A-Za-z_.|()\[\]^-]+$"
PATTERN_ALLOWED = "a regular expression without repetition that the whole label must match, such as 0|[45].."
"""Without repetition no pattern takes long, whoever wrote it."""

AMBIGUOUS = ("[[", "--", "||")
"""What Python warns of in a set, because a later version may read it as an operation on sets."""


def _pattern(value: str) -> str:
    """A regular expression that can be compiled, today and later. Raises ValueError."""
    if any(twice in value for twice in AMBIGUOUS):
        raise ValueError("ambiguous")
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(str(error)) from error
    return value


def _labels(value: dict[str, str]) -> dict[str, str]:
    """Labels with names that Prometheus has. Raises ValueError."""
    if len(value) > 10 or any(len(text) > 200 for text in value.values()):
        raise ValueError("too many or too long")
    if any(not LABEL_NAME.fullmatch(name) or name.startswith("__") for name in value):
        raise ValueError("no label names")
    return value


def _deadline(value: timedelta) -> timedelta:
    if not timedelta(seconds=0.1) <= value <= LONGEST_DEADLINE:
        raise ValueError("out of range")
    return value


LabelMap = Annotated[dict[str, StrictStr], AfterValidator(_labels)]


class PrometheusSection(Section):
    """A server with Prometheus' query API: Prometheus, Thanos, Mimir or VictoriaMetrics."""

    url: Url
    deadline: Annotated[Duration, AfterValidator(_deadline)] = Field(
        default=timedelta(seconds=2),
        description=DEADLINE_ALLOWED + ": for all that one look asks of it, retries included",
    )
    tenant: Tenant = ""
    bearer: Bearer = None
    basic: Basic = None
    ca: Certificate = None

    @model_validator(mode="after")
    def _one_way_to_identify(self) -> Self:
        check_identity("metrics.prometheus", self)
        return self

    def server(self) -> PrometheusServer:
        """The server in the domain's words."""
        return PrometheusServer(url=self.url, deadline=self.deadline, **identity(self))


class FailedSection(Section):
    """Which requests failed: those whose label matches a pattern."""

    label: str = Field(pattern=f"^{LABEL_NAME.pattern}$", description="the name of a label")
    pattern: Annotated[str, AfterValidator(_pattern)] = Field(
        min_length=1, max_length=200, pattern=PATTERN_PATTERN, description=PATTERN_ALLOWED
    )


class CustomSection(Section):
    """The latency histogram of a gateway that has no preset."""

    histogram: str = Field(
        pattern=FAMILY_PATTERN, max_length=200, description="the histogram's name without _bucket"
    )
    unit: str = Field(default="s", pattern="^(s|ms)$", description="one of: s, ms: what its le is counted in")
    failed: tuple[FailedSection, ...] = Field(
        min_length=1,
        max_length=10,
        strict=False,
        description="a list of {label, pattern}: which requests failed",
    )
    match: LabelMap = Field(default={}, description=LABELS_ALLOWED)

    def latency(self) -> LatencyHistogram:
        """The histogram in the domain's words."""
        return LatencyHistogram(
            family=self.histogram,
            unit_seconds=1.0 if self.unit == "s" else 0.001,
            failed=tuple(FailedWhere(each.label, each.pattern) for each in self.failed),
            match=tuple(self.match.items()),
        )


class MetricsSection(Section):
    """A metrics server that counts; without this section the gateway and every server are read directly."""

    prometheus: PrometheusSection = Field(description="a section with url")
    preset: str = Field(
        default="envoy",
        pattern=f"^({'|'.join(preset_names())})$",
        description=f"one of: {', '.join(preset_names())}",
    )
    labels: LabelMap = Field(default={}, description=LABELS_ALLOWED + "; every series must have them")
    gateway: LabelMap = Field(
        default={},
        description=LABELS_ALLOWED + "; one replica's series at the gateway, {name} is the replica's name",
    )
    server: LabelMap = Field(
        default={},
        description=LABELS_ALLOWED
        + "; one replica's own series, {name}, {host}, {port}, {address} and {pod} come from the replica",
    )
    gateway_pods: int | None = Field(
        default=1, ge=1, le=1000, description="a whole number, 1 to 1000, or null for any number"
    )
    device: str = Field(
        default=TRITON, pattern=f"^({'|'.join(DEVICES)})$", description=f"one of: {', '.join(DEVICES)}"
    )
    custom: CustomSection | None = Field(default=None, description="a section with histogram and failed")

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        if self.preset == CUSTOM:
            self._check_custom()
        elif self.custom is not None:
            raise InvalidInput(
                "metrics.custom", self.custom.histogram, "nothing, unless metrics.preset is custom"
            )
        elif self.gateway and self.preset in _ENVOY and "envoy_cluster_name" not in self.gateway:
            allowed = "labels with envoy_cluster_name, by which Envoy tells replicas apart"
            raise InvalidInput("metrics.gateway", self.gateway, allowed)
        for field in ("gateway", "server"):
            self._check_template(field)
        return self

    def _check_custom(self) -> None:
        if self.custom is None:
            raise InvalidInput(
                "metrics.custom", None, "a section with histogram, since metrics.preset is custom"
            )
        if not self.gateway:
            raise InvalidInput(
                "metrics.gateway", {}, "labels that single out a replica, since the preset is custom"
            )

    def _check_template(self, field: str) -> None:
        """Labels that are the same for every replica would count all of them as one."""
        labels: dict[str, str] = getattr(self, field)
        told = ("{name}",) if field == "gateway" else ("{name}", "{host}", "{address}", POD)
        if labels and not any(each in text for text in labels.values() for each in told):
            allowed = f"at least one label with {' or '.join(told)}, which differs between replicas"
            raise InvalidInput(f"metrics.{field}", labels, allowed)

    def instrumentation(self) -> Instrumentation:
        """The section in the domain's words."""
        return Instrumentation(
            prometheus=self.prometheus.server(),
            preset=self.preset,
            labels=_pairs(self.labels),
            gateway=_pairs(self.gateway),
            server=_pairs(self.server),
            gateway_pods=self.gateway_pods,
            device=self.device,
            histogram=self.custom.latency() if self.custom else None,
        )


_ENVOY = frozenset(("envoy", "envoy-gateway", "contour"))


def metrics_section_of(plan: Instrumentation | None) -> dict[str, Any] | None:
    """Return what a target file would say of how a target is measured; None where it is read directly."""
    if plan is None:
        return None
    return {
        "prometheus": _server_of(plan.prometheus),
        "preset": plan.preset,
        "labels": dict(plan.labels),
        "gateway": dict(plan.gateway),
        "server": dict(plan.server),
        "gateway_pods": plan.gateway_pods,
        "device": plan.device,
        "custom": None if plan.histogram is None else _custom_of(plan.histogram),
    }


def _server_of(server: PrometheusServer) -> dict[str, Any]:
    return {"url": server.url, "deadline": duration_text(server.deadline), **identity_of(server)}


def _custom_of(histogram: LatencyHistogram) -> dict[str, Any]:
    return {
        "histogram": histogram.family,
        "unit": "s" if histogram.unit_seconds == 1.0 else "ms",
        "failed": [{"label": each.label, "pattern": each.pattern} for each in histogram.failed],
        "match": dict(histogram.match),
    }


def _pairs(labels: dict[str, str]) -> Labels:
    return tuple(labels.items())

"""The `traces` section of a target file: who has the spans of a target's requests, and whose they are.

Secrets are named here, never written, as in the section of metrics.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, StrictStr, model_validator

from autotuner.domain.sources import OTLP, TRACE_STORES, TRITON_SERVICE, TraceStore
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
from autotuner.section_values import Duration, Url, duration_text
from autotuner.sections import Section

ATTRIBUTE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]{0,99}")
MARKS_ALLOWED = (
    "a mapping of at most 5 attribute names to texts of at most 200 characters, at least one with {name}, "
    "which differs between replicas"
)
LONGEST_DEADLINE = timedelta(seconds=30)
SERVICE_ALLOWED = "a service.name of at most 200 characters on one line"
SERVICE_PATTERN = r"^[^\x00-\x1f\x7f]+$"


def _marks(value: dict[str, str]) -> dict[str, str]:
    """Attributes of which at least one differs between replicas. Raises ValueError."""
    if not value:
        return value
    fits = all(ATTRIBUTE_NAME.fullmatch(name) for name in value)
    short = all(0 < len(text) <= 200 and text.isprintable() for text in value.values())
    if len(value) > 5 or not fits or not short or not any("{name}" in text for text in value.values()):
        raise ValueError("no attributes that single out a replica")
    return value


def _deadline(value: timedelta) -> timedelta:
    if not timedelta(seconds=0.1) <= value <= LONGEST_DEADLINE:
        raise ValueError("out of range")
    return value


def _arrival(value: timedelta) -> timedelta:
    if value > timedelta(minutes=5):
        raise ValueError("out of range")
    return value


class TracesSection(Section):
    """Who has the spans of the target's requests; without this section nobody is asked."""

    source: str = Field(
        pattern=f"^({'|'.join(TRACE_STORES)})$", description=f"one of: {', '.join(TRACE_STORES)}"
    )
    url: Url | None = Field(
        default=None,
        description="a URL with its host: http://HOST:PORT or https://…, of Jaeger's query service or of Tempo",
    )
    gateway: str | None = Field(
        default=None,
        max_length=200,
        pattern=SERVICE_PATTERN,
        description=SERVICE_ALLOWED + ": the gateway's; left out where only Triton records spans",
    )
    triton: str = Field(
        default=TRITON_SERVICE,
        max_length=200,
        pattern=SERVICE_PATTERN,
        description=SERVICE_ALLOWED + ": Triton's",
    )
    replica: Annotated[dict[str, StrictStr], AfterValidator(_marks)] = Field(
        default={}, description=MARKS_ALLOWED
    )
    arrival: Annotated[Duration, AfterValidator(_arrival)] = Field(
        default=timedelta(seconds=10),
        description="a duration up to 5m: how long spans take until they can be read",
    )
    deadline: Annotated[Duration, AfterValidator(_deadline)] = Field(
        default=timedelta(seconds=5),
        description="a duration from 100ms to 30s: for all that is asked about one window",
    )
    tenant: Tenant = ""
    bearer: Bearer = None
    basic: Basic = None
    ca: Certificate = None

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        if self.source == OTLP and self.url is not None:
            raise InvalidInput(
                "traces.url", self.url, "left out with source otlp: spans are sent to this service"
            )
        if self.source != OTLP and self.url is None:
            raise InvalidInput(
                "traces.url", None, f"the URL of the {self.source} that has the spans (required)"
            )
        check_identity("traces", self)
        return self

    def store(self) -> TraceStore:
        """The section in the domain's words."""
        return TraceStore(
            kind=self.source,
            url=self.url or "",
            gateway=self.gateway or "",
            triton=self.triton,
            replica=tuple(self.replica.items()),
            arrival=self.arrival,
            deadline=self.deadline,
            **identity(self),
        )


def traces_section_of(store: TraceStore | None) -> dict[str, Any] | None:
    """Return what a target file would say of who has the spans; None where nobody is asked."""
    if store is None:
        return None
    return {
        "source": store.kind,
        "url": store.url or None,
        "gateway": store.gateway or None,
        "triton": store.triton,
        "replica": dict(store.replica),
        "arrival": duration_text(store.arrival),
        "deadline": duration_text(store.deadline),
        **identity_of(store),
    }

"""Targets and SLO budgets on the wire: the sections of a target file, and what the records add."""

from __future__ import annotations

from collections.abc import Hashable
from datetime import datetime

from pydantic import Field

from api.schemas.wire import Answer
from autotuner.domain.registration import Registration
from autotuner.domain.slo import SloBudget
from autotuner.sections import Section
from autotuner.target_file import TargetSections, sections_of, slo_section_of
from autotuner.targets import ConnectionCheck

REPLICA = {"name": "stable-0", "url": "http://10.0.0.11:8000", "metrics": "http://10.0.0.11:8002/metrics"}
EXAMPLE_SECTIONS = {
    "name": "small-vision",
    "model": "small_vision",
    "stable": [REPLICA],
    "canary": {"name": "canary", "url": "http://10.0.0.13:8000", "metrics": "http://10.0.0.13:8002/metrics"},
    "gateway": {"admin": "http://10.0.0.10:9901", "runtime_prefix": "route.small-vision"},
    "limits": {"instance_count": 4, "max_queue_delay_microseconds": 20000},
    "study": {"max_trials": 12, "approval": "manual", "pace": {"bake": "30m"}},
}
EXAMPLE_SLO = {"p99_ms": 100, "max_canary_share": 0.5, "harm_budget_requests": 500}
EXAMPLE_TARGET = {**EXAMPLE_SECTIONS, "slo": EXAMPLE_SLO}


class TargetChange(TargetSections):
    """All of a target but its SLO budget, which has versions of its own."""

    reason: str = Field(
        default="", max_length=1000, description="a text of at most 1000 characters: why it changes"
    )


class Reason(Section):
    """Why something is done; recorded in the audit."""

    reason: str = Field(
        default="",
        max_length=1000,
        description="a text of at most 1000 characters",
        examples=["incident 4711"],
    )


class BudgetAnswer(Answer):
    """One version of an SLO budget."""

    version: int = Field(description="The version's number, from 1; its ETag.", examples=[2])
    p99_ms: float = Field(
        description="Latency in milliseconds that at most 1 % of requests may exceed.", examples=[100]
    )
    error_ratio: float = Field(description="Fraction of requests, 0 to 1, that may fail.", examples=[0.001])
    max_canary_share: float = Field(
        description="Largest fraction of all requests, 0 to 1, on the canary.", examples=[0.5]
    )
    harm_budget_requests: int = Field(
        description="Slow or failed requests above the allowed 1 % that one study may cause.", examples=[500]
    )
    actor: str = Field(description="Who set it.", examples=["anna"])
    reason: str = Field(description="Why.", examples=["agreed with the search team"])
    created_at: datetime | None = Field(description="When.", examples=["2026-01-05T02:00:00Z"])


class BudgetVersion(BudgetAnswer):
    """One version of an SLO budget, compared with the one before it."""

    loosened_fields: list[str] = Field(
        description="Fields in which it promises users less than the version before; empty when in none.",
        examples=[["p99_ms"]],
    )


class TargetAnswer(TargetSections):
    """A target as it is registered: the sections of its file, and what the records add."""

    slo_budget: BudgetAnswer = Field(description="The version of its SLO budget that is in force.")
    created_at: datetime = Field(
        description="When it was registered first.", examples=["2026-01-05T02:00:00Z"]
    )
    changed_at: datetime = Field(description="When it was changed last.", examples=["2026-01-05T02:00:00Z"])
    changed_by: str = Field(description="Who changed it last.", examples=["anna"])
    retired_at: datetime | None = Field(
        description="Since when no study of it may start; null while one may.",
        examples=["2026-03-01T09:00:00Z"],
    )


class CheckAnswer(Answer):
    """One thing that was tried."""

    what: str = Field(description="`replica NAME`, `model`, `gateway` or `metrics`.", examples=["gateway"])
    passed: bool = Field(description="Whether it could be read.")
    detail: str = Field(description="Why not; empty when it could.", examples=[""])


class ConnectionAnswer(Answer):
    """Whether everything that a study would read can be read now."""

    passed: bool = Field(description="Whether every check passed.")
    checks: list[CheckAnswer] = Field(description="Each check.")


FIELD_NAMES = {"p99_ceiling_seconds": "p99_ms", "error_ratio_ceiling": "error_ratio"}
"""What the fields of a budget are called here; the others are called the same."""


def budget_answer(slo: SloBudget) -> BudgetAnswer:
    """Return a version of a budget as an answer."""
    said = {"version": slo.version, "actor": slo.actor, "reason": slo.reason, "created_at": slo.created_at}
    return BudgetAnswer.model_validate({**slo_section_of(slo), **said})


def budget_version(slo: SloBudget, before: SloBudget | None) -> BudgetVersion:
    """Return a version of a budget beside the one before it."""
    loosened = before.loosened_fields(slo) if before is not None else ()
    fields = [FIELD_NAMES.get(name, name) for name in loosened]
    return BudgetVersion(**budget_answer(slo).model_dump(), loosened_fields=fields)


MOST_ANSWERS = 1_000

_ANSWERS: dict[tuple[Hashable, ...], TargetAnswer] = {}
"""Answers that were made, by all they are made of: equal marks mean equal registrations."""


def target_answer(kept: Registration) -> TargetAnswer:
    """Return a registered target as an answer."""
    key = (kept.target.name, kept.mark, kept.slo, kept.created_at, kept.changed_at, kept.changed_by)
    made = _ANSWERS.get(key)
    if made is None:
        made = _made_answer(kept)
        if len(_ANSWERS) >= MOST_ANSWERS:
            _ANSWERS.clear()
        _ANSWERS[key] = made
    return made


def _made_answer(kept: Registration) -> TargetAnswer:
    said = {
        "slo_budget": budget_answer(kept.slo),
        "created_at": kept.created_at,
        "changed_at": kept.changed_at,
        "changed_by": kept.changed_by,
        "retired_at": kept.retired_at,
    }
    return TargetAnswer.model_validate({**sections_of(kept.target, kept.defaults), **said})


def connection_answer(checks: tuple[ConnectionCheck, ...]) -> ConnectionAnswer:
    """Return what was tried as an answer."""
    found = [CheckAnswer(what=each.what, passed=each.passed, detail=each.detail) for each in checks]
    return ConnectionAnswer(passed=all(each.passed for each in found), checks=found)

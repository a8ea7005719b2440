"""The target file: one model on static endpoints, its promise to users, and how it is to be tuned.

Written by people, checked before anything is stored or touched; `examples/target.yaml` explains every field.
"""

from __future__ import annotations

from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, StrictInt, create_model, model_validator

from autotuner.domain.configuration import MAX_DELAY_MICROSECONDS
from autotuner.domain.registration import StudyDefaults
from autotuner.domain.slo import SloBudget
from autotuner.domain.study import GREYBOX, Approval, Pace, StudyPlan
from autotuner.domain.target import DEFAULT_SITE, Gateway, Limits, Objective, Replica, Target
from autotuner.domain.workload import CANARY, STABLE
from autotuner.errors import InvalidInput
from autotuner.metrics_section import POD, MetricsSection, metrics_section_of
from autotuner.section_values import DURATION_ALLOWED, Duration, Url, duration_text
from autotuner.sections import (
    FRACTION,
    NAME_PATTERN,
    SAMPLERS,
    InvalidFields,
    Section,
    parse_yaml,
    read_file,
    validated,
)
from autotuner.traces_section import TracesSection, traces_section_of
from autotuner.workload_section import WorkloadSection, section_of

WORD = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,126}$"
WHOLE_PERCENTS = 100
BatchSizes = Annotated[tuple[Annotated[StrictInt, Field(ge=1)], ...], Field(strict=False)]


class ReplicaSection(Section):
    """One Triton server."""

    name: str = Field(
        pattern=WORD,
        description="the replica's name at the gateway: letters, digits, dot, hyphen, underscore",
    )
    url: Url
    metrics: Url

    def replica(self) -> Replica:
        """The replica in the domain's words."""
        return Replica(self.name, self.url, self.metrics)


PREFIX_ALLOWED = "the route's runtime_key_prefix: letters, digits, dot, hyphen, underscore"
REPLICAS_ALLOWED = "a list of at least one replica: {name, url, metrics}"
CANARY_ALLOWED = "a replica: {name, url, metrics}"


class ClustersSection(Section):
    """What the gateway's statistics call the two Services of a workload."""

    stable: str = Field(
        default=STABLE, min_length=1, max_length=253, description="a cluster's name in the statistics"
    )
    canary: str = Field(
        default=CANARY, min_length=1, max_length=253, description="a cluster's name in the statistics"
    )

    def named(self) -> dict[str, str]:
        """Names that differ from the backend's own."""
        given = {STABLE: self.stable, CANARY: self.canary}
        return {backend: name for backend, name in given.items() if name != backend}


class GatewaySection(Section):
    """The Envoy in front."""

    admin: Url
    runtime_prefix: str | None = Field(default=None, pattern=WORD, description=PREFIX_ALLOWED)
    clusters: ClustersSection | None = Field(
        default=None, description="a section with stable and canary; with a section kubernetes only"
    )
    total_weight: int = Field(
        default=1000,
        ge=100,
        le=1_000_000,
        description="a whole number, 100 to 1000000: what the weights add up to",
    )


class SloSection(Section):
    """The promise to users."""

    p99_ms: float = Field(gt=0, le=600_000, description="milliseconds above 0, up to 600000")
    error_ratio: float = Field(
        default=0.001, gt=0, le=0.01, description="a fraction above 0, up to 0.01", json_schema_extra=FRACTION
    )
    max_canary_share: float = Field(
        default=0.5, gt=0, le=0.95, description="a fraction above 0, up to 0.95", json_schema_extra=FRACTION
    )
    harm_budget_requests: int = Field(
        default=500, ge=1, le=1_000_000_000, description="a whole number of requests, at least 1"
    )
    reason: str = Field(default="", max_length=1000, description="a text of at most 1000 characters")

    def budget(self, actor: str, reason: str = "") -> SloBudget:
        """The budget in the domain's words, set by `actor`; the store gives it its version."""
        return SloBudget(
            p99_ceiling_seconds=self.p99_ms / 1000,
            error_ratio_ceiling=self.error_ratio,
            max_canary_share=self.max_canary_share,
            harm_budget_requests=self.harm_budget_requests,
            actor=actor,
            reason=reason or self.reason,
        )


class LimitsSection(Section):
    """How far tuning may go."""

    instance_count: int = Field(ge=1, le=1000, description="a whole number, 1 to 1000")
    max_queue_delay_microseconds: int | None = Field(
        default=None,
        ge=0,
        le=MAX_DELAY_MICROSECONDS,
        description=f"a whole number, 0 to {MAX_DELAY_MICROSECONDS}; left out: as long as the p99 ceiling",
    )
    preferred_batch_sizes: tuple[BatchSizes, ...] | None = Field(
        default=None,
        min_length=1,
        strict=False,
        description="a list of lists of whole batch sizes from 1, [] for none; left out: powers of two and their pairs",
    )
    memory_headroom: float = Field(
        default=0.10, ge=0, lt=1, description="a fraction from 0 to below 1", json_schema_extra=FRACTION
    )


PaceSection: type[Section] = create_model(
    "PaceSection",
    __base__=Section,
    **{
        each.name: (Duration | None, Field(default=None, description=DURATION_ALLOWED))
        for each in fields(Pace)
    },
)  # type: ignore[call-overload]
"""How long each part of a study may take; what is left out is as `domain.study.Pace` has it."""


class StudySection(Section):
    """How a study goes about it."""

    max_trials: int = Field(default=12, ge=1, le=1000, description="a whole number, 1 to 1000")
    ramp_steps: int = Field(default=6, ge=2, le=50, description="a whole number, 2 to 50")
    minimum_gain: float = Field(
        default=0.05, ge=0, le=10, description="a fraction from 0: 0.05 is 5 %", json_schema_extra=FRACTION
    )
    max_voids: int = Field(default=2, ge=0, le=100, description="a whole number, 0 to 100")
    approval: Approval = Field(
        default=Approval.AUTOMATIC, strict=False, description=f"one of: {', '.join(Approval)}"
    )
    sampler: str = Field(
        default=GREYBOX, pattern=f"^({'|'.join(SAMPLERS)})$", description=f"one of: {', '.join(SAMPLERS)}"
    )
    seed: int = Field(default=0, ge=0, le=2**31, description="a whole number from 0")
    four_eyes: bool = Field(
        default=False, description="true or false; true: whoever started a study may not approve its winner"
    )
    pace: PaceSection = Field(default=PaceSection(), description="a section of durations")

    def made_pace(self) -> Pace:
        """The pace, what is left out as it is by default."""
        return Pace(**self.pace.model_dump(exclude_none=True))

    def defaults(self) -> StudyDefaults:
        """How the target's studies go about it, in the domain's words."""
        settings: dict[str, Any] = self.model_dump(exclude={"pace"})
        return StudyDefaults(pace=self.made_pace(), **settings)


class CostSection(Section):
    """What a replica costs."""

    replica_per_hour: float = Field(gt=0, le=1_000_000, description="an amount above 0, up to 1000000")
    currency: str = Field(
        default="USD", pattern="^[A-Z]{3}$", description="three capital letters, such as USD"
    )


class TargetSections(Section):
    """What a target file says beside the promise to users."""

    name: str = Field(pattern=NAME_PATTERN, description="lower-case letters, digits and hyphens, up to 63")
    model: str = Field(
        min_length=1, max_length=255, pattern=r"^[^\x00-\x1f\x7f]+$", description="the model's name in Triton"
    )
    stable: tuple[ReplicaSection, ...] | None = Field(
        default=None, min_length=1, strict=False, description=REPLICAS_ALLOWED
    )
    canary: ReplicaSection | None = Field(default=None, description=CANARY_ALLOWED)
    kubernetes: WorkloadSection | None = Field(
        default=None, description="a section with namespace, name, replicas, service and route"
    )
    gateway: GatewaySection = Field(description="a section with admin and runtime_prefix")
    limits: LimitsSection = Field(description="a section with instance_count")
    objective: Objective = Field(
        default=Objective.CAPACITY, strict=False, description=f"one of: {', '.join(Objective)}"
    )
    study: StudySection = Field(default=StudySection(), description="a section of study settings")
    site: str = Field(
        default=DEFAULT_SITE,
        pattern=NAME_PATTERN,
        description="lower-case letters, digits and hyphens, up to 63: the cluster whose canaries are limited together",
    )
    metrics: MetricsSection | None = Field(
        default=None,
        description="a section with prometheus; left out: the gateway and every server are read directly",
    )
    traces: TracesSection | None = Field(
        default=None,
        description="a section with source; left out: nobody is asked where slow requests spend their time",
    )
    cost: CostSection | None = Field(default=None, description="a section with replica_per_hour")
    note: str = Field(default="", max_length=1000, description="a text of at most 1000 characters")

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        if self.kubernetes is None:
            self._check_endpoints()
        else:
            self._check_no_endpoints()
        self._check_replicas()
        self._check_route()
        self._check_pace()
        return self

    def _check_endpoints(self) -> None:
        given = {
            "stable": (self.stable, REPLICAS_ALLOWED),
            "canary": (self.canary, CANARY_ALLOWED),
            "gateway.runtime_prefix": (self.gateway.runtime_prefix, PREFIX_ALLOWED),
        }
        missing = [
            InvalidInput(name, None, f"{text} (required)")
            for name, (value, text) in given.items()
            if value is None
        ]
        if missing:
            raise missing[0] if len(missing) == 1 else InvalidFields(tuple(missing))
        if self.gateway.clusters is not None:
            raise InvalidInput(
                "gateway.clusters", self.gateway.clusters.named(), "left out without a section kubernetes"
            )
        if self.metrics is not None and any(POD in text for text in self.metrics.server.values()):
            allowed = f"labels without {POD}: only a section kubernetes knows pods"
            raise InvalidInput("metrics.server", self.metrics.server, allowed)

    def _check_no_endpoints(self) -> None:
        given = {
            "stable": self.stable,
            "canary": self.canary,
            "gateway.runtime_prefix": self.gateway.runtime_prefix,
        }
        for name, value in given.items():
            if value is not None:
                told = value if isinstance(value, str) else "given"
                raise InvalidInput(
                    name, told, "left out beside a section kubernetes: pods and weights are found there"
                )

    def _check_route(self) -> None:
        """What a kind of route cannot do is not asked of it."""
        if self.kubernetes is None:
            return
        kind = self.kubernetes.route.kind
        if kind.in_percent and self._total_weight != WHOLE_PERCENTS:
            allowed = f"{WHOLE_PERCENTS}, or left out: the weights of {kind} are whole percents"
            raise InvalidInput("gateway.total_weight", self.gateway.total_weight, allowed)
        if kind.has_weights:
            return
        if self._objective is not Objective.EFFICIENCY:
            allowed = f"{Objective.EFFICIENCY}, or left out: without weights no load but today's can be tried"
            raise InvalidInput("objective", self.objective.value, allowed)
        if self.metrics is None:
            allowed = "a section whose gateway labels tell pods apart: to a gateway they are one Service"
            raise InvalidInput("metrics", None, allowed)

    @property
    def _total_weight(self) -> int:
        """What the weights add up to: as the file says, else as the kind of route has it."""
        percents = self.kubernetes is not None and self.kubernetes.route.kind.in_percent
        if percents and "total_weight" not in self.gateway.model_fields_set:
            return WHOLE_PERCENTS
        return self.gateway.total_weight

    @property
    def _objective(self) -> Objective:
        """What leads: as the file says, else what the kind of route allows."""
        weightless = self.kubernetes is not None and not self.kubernetes.route.kind.has_weights
        if weightless and "objective" not in self.model_fields_set:
            return Objective.EFFICIENCY
        return self.objective

    def _check_replicas(self) -> None:
        """Each replica is another server: a canary that is production would expose everybody."""
        places = [(f"stable.{number}", replica) for number, replica in enumerate(self.stable or ())]
        places += [("canary", self.canary)] if self.canary is not None else []
        for position, (place, replica) in enumerate(places):
            for earlier, other in places[:position]:
                for field in ("name", "url", "metrics"):
                    if getattr(replica, field) == getattr(other, field):
                        allowed = (
                            f"another {field} than that of {earlier}: each replica is a server of its own"
                        )
                        raise InvalidInput(f"{place}.{field}", getattr(replica, field), allowed)

    def _check_pace(self) -> None:
        pace = self.study.made_pace()
        for name in ("step_minimum", "production_window"):
            if getattr(pace, name) > pace.step_limit:
                allowed = f"at most study.pace.step_limit, {pace.step_limit.total_seconds():g} s"
                raise InvalidInput(f"study.pace.{name}", f"{getattr(pace, name).total_seconds():g}s", allowed)
        self._check_canary_outlives(pace.study_limit + pace.approval_limit)

    def _check_canary_outlives(self, study: timedelta) -> None:
        """A canary that is removed while its study still sends it traffic would cost users their answers."""
        if self.kubernetes is not None and self.kubernetes.canary_ttl < study:
            needed = duration_text(study)
            allowed = f"at least study.pace.study_limit and approval_limit together, {needed}"
            raise InvalidInput("kubernetes.canary_ttl", duration_text(self.kubernetes.canary_ttl), allowed)


class TargetFile(TargetSections):
    """One target file."""

    slo: SloSection = Field(description="a section with p99_ms")

    @model_validator(mode="after")
    def _delay_is_within_the_ceiling(self) -> Self:
        longest = self.limits.max_queue_delay_microseconds
        if longest is not None and longest > self._ceiling_microseconds:
            allowed = f"at most slo.p99_ms, {self._ceiling_microseconds} microseconds"
            raise InvalidInput("limits.max_queue_delay_microseconds", longest, allowed)
        return self

    @property
    def _ceiling_microseconds(self) -> int:
        return int(self.slo.p99_ms * 1000)

    def target(self) -> Target:
        """The target in the domain's words."""
        longest = self.limits.max_queue_delay_microseconds
        delay = longest if longest is not None else min(self._ceiling_microseconds, MAX_DELAY_MICROSECONDS)
        return Target(
            name=self.name,
            model=self.model,
            stable=self._stable(),
            canary=self._canary(),
            gateway=Gateway(
                self.gateway.admin,
                self.gateway.runtime_prefix or "",
                self._total_weight,
                self.gateway.clusters.named() if self.gateway.clusters is not None else {},
            ),
            limits=Limits(
                max_instance_count=self.limits.instance_count,
                max_queue_delay_microseconds=delay,
                preferred_batch_sizes=self.limits.preferred_batch_sizes,
                memory_headroom=self.limits.memory_headroom,
            ),
            objective=self._objective,
            note=self.note,
            replica_cost_per_hour=self.cost.replica_per_hour if self.cost else None,
            currency=self.cost.currency if self.cost else "USD",
            site=self.site,
            metrics=self.metrics.instrumentation() if self.metrics else None,
            workload=self.kubernetes.workload() if self.kubernetes is not None else None,
            traces=self.traces.store() if self.traces else None,
        )

    def _stable(self) -> tuple[Replica, ...]:
        if self.kubernetes is not None:
            return self.kubernetes.stable()
        return tuple(replica.replica() for replica in self.stable or ())

    def _canary(self) -> Replica:
        if self.kubernetes is not None:
            return self.kubernetes.canary()
        assert self.canary is not None
        return self.canary.replica()

    def budget(self, actor: str, reason: str = "") -> SloBudget:
        """The SLO budget, set by `actor`; the store gives it its version."""
        return self.slo.budget(actor, reason)

    def plan(self, slo: SloBudget) -> StudyPlan:
        """The plan of a study under `slo`, the version of the budget that is in force."""
        return self.study.defaults().plan(self.target(), slo)


def sections_of(target: Target, defaults: StudyDefaults) -> dict[str, Any]:
    """Return what a target file would say of a registered target, beside the promise to users."""
    cost = target.replica_cost_per_hour
    return {
        "name": target.name,
        "model": target.model,
        **_places_of(target),
        "limits": {
            "instance_count": target.limits.max_instance_count,
            "max_queue_delay_microseconds": target.limits.max_queue_delay_microseconds,
            "preferred_batch_sizes": target.limits.preferred_batch_sizes,
            "memory_headroom": target.limits.memory_headroom,
        },
        "objective": target.objective.value,
        "study": _study_of(defaults),
        "metrics": metrics_section_of(target.metrics),
        "traces": traces_section_of(target.traces),
        "cost": None if cost is None else {"replica_per_hour": cost, "currency": target.currency},
        "note": target.note,
    }


def _places_of(target: Target) -> dict[str, Any]:
    gateway: dict[str, Any] = {
        "admin": target.gateway.admin_url,
        "total_weight": target.gateway.total_weight,
    }
    if target.workload is None:
        return {
            "stable": [_replica_of(replica) for replica in target.stable],
            "canary": _replica_of(target.canary),
            "gateway": {**gateway, "runtime_prefix": target.gateway.runtime_prefix},
        }
    clusters = {backend: target.gateway.cluster(backend) for backend in (STABLE, CANARY)}
    return {
        "kubernetes": section_of(target.workload, len(target.stable)),
        "gateway": {**gateway, "clusters": clusters},
    }


def _replica_of(replica: Replica) -> dict[str, str]:
    return {"name": replica.name, "url": replica.http_url, "metrics": replica.metrics_url}


def _study_of(defaults: StudyDefaults) -> dict[str, Any]:
    shown = [each.name for each in fields(defaults) if each.name not in ("pace", "max_dispersion")]
    said = {name: getattr(defaults, name) for name in shown}
    pace = {each.name: duration_text(getattr(defaults.pace, each.name)) for each in fields(Pace)}
    return {**said, "pace": pace}


def slo_section_of(slo: SloBudget) -> dict[str, Any]:
    """Return what a target file would say of a budget."""
    return {
        "p99_ms": round(slo.p99_ceiling_seconds * 1e3, 9),
        "error_ratio": slo.error_ratio_ceiling,
        "max_canary_share": slo.max_canary_share,
        "harm_budget_requests": slo.harm_budget_requests,
    }


def load_target_file(path: Path) -> TargetFile:
    """Return the content of a target file. Raises InvalidInput, telling every field that cannot be used."""
    return parse_target_file(parse_yaml(read_file(path, "target file"), "target file", str(path)))


def parse_target_file(content: object) -> TargetFile:
    """Return what parsed YAML says about a target. Raises InvalidInput."""
    return validated(TargetFile, content, "target file")

"""The tables as they stand at the newest migration; a test compares the two.

A study is kept whole as JSON text (type `json`, not `jsonb`, so that every digit comes back as it was written).
`trials` and `steps` are projections of it for queries, dashboards and the sampler.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY

from autotuner.bookkeeping.audit import AuditAction
from autotuner.domain.access import Scope
from autotuner.domain.judgement import Verdict
from autotuner.domain.notices import NoticeKind
from autotuner.domain.study import Outcome, Phase, TrialKind, TrialState, Wish
from autotuner.domain.target import Objective
from autotuner.ports import MessageState, NightState

METADATA = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)

APPEND_ONLY = ("slo_budgets", "journal", "audit", "ledger")
"""Tables whose rows a trigger protects from every change."""

VERSION_TABLE = "autotuner_alembic_version"
"""Where Alembic notes the revision; its default name may belong to another product in the same database."""


def _listed(values: Iterable[StrEnum]) -> str:
    return ", ".join(f"'{value}'" for value in values)


def _known(column: str, values: Iterable[StrEnum]) -> CheckConstraint:
    return CheckConstraint(f"{column} IN ({_listed(values)})", name=f"{column}_known")


def _required(name: str, kind: Any, comment: str | None = None, **options: Any) -> Column[Any]:
    return Column(name, kind, nullable=False, comment=comment, **options)


def _optional(name: str, kind: Any, comment: str | None = None) -> Column[Any]:
    return Column(name, kind, nullable=True, comment=comment)


def _instant(name: str, comment: str | None = None, *, nullable: bool = False) -> Column[Any]:
    return Column(name, DateTime(timezone=True), nullable=nullable, comment=comment)


targets = Table(
    "targets",
    METADATA,
    Column("name", Text, primary_key=True),
    _required("model", Text, "the model's name in Triton"),
    _required("objective", Text, "what a study maximises"),
    _required("record", JSON, "the whole target"),
    _instant("created_at"),
    _instant("changed_at"),
    _required("changed_by", Text),
    _optional(
        "defaults", JSON(none_as_null=True), "how its studies go about it; none: as the product has it"
    ),
    _instant("retired_at", "since when no study of it may start", nullable=True),
    _known("objective", Objective),
    comment="One model on one Triton deployment, as it is reached and tuned today",
)

slo_budgets = Table(
    "slo_budgets",
    METADATA,
    Column("target", Text, ForeignKey("targets.name"), primary_key=True),
    Column("version", Integer, primary_key=True, autoincrement=False),
    _required("p99_ceiling_seconds", Double, "latency that at most 1 % of requests may exceed"),
    _required("error_ratio_ceiling", Double, "share of requests, 0 to 1, that may fail"),
    _required("max_canary_share", Double, "largest share of requests, 0 to 1, on the canary"),
    _required(
        "harm_budget_requests", BigInteger, "slow-or-failed requests above the allowed 1 % a study may cause"
    ),
    _required("loosened", Boolean, "whether users are promised less than in the version before"),
    _required("loosened_fields", ARRAY(Text)),
    _required("actor", Text),
    _required("reason", Text),
    _instant("created_at"),
    CheckConstraint("version >= 1", name="version_positive"),
    CheckConstraint("p99_ceiling_seconds > 0", name="p99_ceiling_positive"),
    CheckConstraint("error_ratio_ceiling > 0 AND error_ratio_ceiling <= 1", name="error_ratio_is_share"),
    CheckConstraint("max_canary_share > 0 AND max_canary_share <= 1", name="canary_share_is_share"),
    CheckConstraint("harm_budget_requests >= 1", name="harm_budget_positive"),
    CheckConstraint("loosened = (cardinality(loosened_fields) > 0)", name="loosened_says_what"),
    CheckConstraint("NOT loosened OR btrim(reason) <> ''", name="loosened_says_why"),
    comment="Every version of every budget; never changed, only added to",
)

studies = Table(
    "studies",
    METADATA,
    Column("id", Text, primary_key=True),
    _required("ordinal", BigInteger, "order of creation", server_default=Identity(always=True)),
    _required("target", Text),
    _required("slo_version", Integer, "the budget version the study is judged by"),
    _required("phase", Text),
    _optional("outcome", Text),
    _required("reason", Text),
    _required("actor", Text),
    _required("seed", BigInteger),
    _required("wish", Text, "what an operator last asked for"),
    _required("sequence", BigInteger, "number of the newest journal entry, 0 before the first"),
    _required("initial", JSON, "the study as it was created"),
    _required("state", JSON, "the study after the newest journal entry, without the open window"),
    _optional("window", JSON(none_as_null=True), "the open window of the newest trial, if it has one"),
    _instant("created_at"),
    _instant("ended_at", nullable=True),
    _optional("reverses", Text, "the study whose promotion it takes back; none for one that tunes"),
    ForeignKeyConstraint(["target", "slo_version"], ["slo_budgets.target", "slo_budgets.version"]),
    UniqueConstraint("ordinal"),
    _known("phase", Phase),
    _known("outcome", Outcome),
    _known("wish", Wish),
    CheckConstraint("sequence >= 0", name="sequence_not_negative"),
    Index(
        "uq_studies_unfinished_target",
        "target",
        unique=True,
        postgresql_where=text(f"phase <> '{Phase.ENDED}'"),
    ),
    Index("ix_studies_created_at_ordinal", "created_at", "ordinal"),
    Index("ix_studies_target_created_at", "target", "created_at", "ordinal"),
    Index("ix_studies_reverses", "reverses", postgresql_where=text("reverses IS NOT NULL")),
    comment="One tuning run over a target each",
)

ledger = Table(
    "ledger",
    METADATA,
    Column("study_id", Text, ForeignKey("studies.id"), primary_key=True),
    _required("target", Text),
    _instant("promoted_at"),
    _required("reason", Text, "why it was promoted"),
    _required("currency", Text, "of the costs"),
    _required("worth", JSON, "incumbent against winner, and what finding out cost"),
    Index("ix_ledger_promoted_at", "promoted_at", "study_id"),
    Index("ix_ledger_target_promoted_at", "target", "promoted_at", "study_id"),
    comment="What every promotion was worth; never changed, only added to",
)

journal = Table(
    "journal",
    METADATA,
    Column("study_id", Text, ForeignKey("studies.id"), primary_key=True),
    Column("sequence", BigInteger, primary_key=True, autoincrement=False),
    _required("kind", Text, "decision or outcome"),
    _instant("at"),
    _required("actor", Text),
    _required("reason", Text),
    _required("observed", JSON, "what was seen"),
    _optional("action", JSON(none_as_null=True), "what was decided"),
    _required("state", Text, "digest of the study afterwards"),
    CheckConstraint("sequence >= 1", name="sequence_positive"),
    CheckConstraint("kind IN ('decision', 'outcome')", name="kind_known"),
    comment="Every decision and outcome of every study; never changed, only added to",
)

trials = Table(
    "trials",
    METADATA,
    Column("study_id", Text, ForeignKey("studies.id"), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    _required("kind", Text),
    _required("state", Text),
    _required("replicas", ARRAY(Text), "the replicas under test"),
    _required("max_queue_delay_microseconds", BigInteger),
    _required("preferred_batch_size", ARRAY(Integer), "a set, ascending; empty means none"),
    _required("instance_count", Integer),
    _required("max_batch_size", Integer),
    _optional("verdict", Text),
    _required("limited_by", Text, "what ended the ramp; empty while it has not ended"),
    _required("reason", Text),
    _optional("capacity_per_second", Double, "highest accepted rate of one replica, requests per second"),
    _required("harm_requests", Double, "slow-or-failed requests above the allowed 1 %"),
    _instant("proposed_at"),
    _instant("ended_at", nullable=True),
    _required("target", Text),
    _optional(
        "record",
        Text,
        "as in studies.state, once it is final; none where an earlier release saw to it",
    ),
    _known("kind", TrialKind),
    _known("state", TrialState),
    _known("verdict", Verdict),
    Index("ix_trials_proposed_at", "proposed_at", "study_id", "number"),
    Index("ix_trials_target_proposed_at", "target", "proposed_at", "study_id", "number"),
    Index("ix_trials_verdict_proposed_at", "verdict", "proposed_at", "study_id", "number"),
    Index("ix_trials_delay", "max_queue_delay_microseconds", "proposed_at"),
    Index("ix_trials_instances", "instance_count", "proposed_at"),
    Index("ix_trials_max_batch_size", "max_batch_size", "proposed_at"),
    Index("ix_trials_preferred", "preferred_batch_size", "proposed_at"),
    Index("ix_trials_capacity", text("coalesce(capacity_per_second, 0.0)"), "study_id", "number"),
    Index("ix_trials_harm", "harm_requests", "study_id", "number"),
    Index(
        "ix_trials_of_incumbent_or_winner",
        "target",
        "kind",
        "proposed_at",
        "study_id",
        "number",
        postgresql_where=text(f"kind <> '{TrialKind.CANDIDATE}'"),
    ),
    comment="Projection of studies.state: one configuration put on replicas each",
)


def _counts(side: str) -> list[Column[Any]]:
    return [
        _required(f"{side}_requests", BigInteger, "ended requests"),
        _required(f"{side}_bad_at_most", BigInteger, "slow or failed, upper bound from the histogram"),
        _required(f"{side}_bad_at_least", BigInteger, "slow or failed, lower bound from the histogram"),
        _required(f"{side}_failed", BigInteger),
    ]


steps = Table(
    "steps",
    METADATA,
    Column("study_id", Text, primary_key=True),
    Column("trial_number", Integer, primary_key=True, autoincrement=False),
    Column("position", Integer, primary_key=True, autoincrement=False, comment="place in the trial, from 0"),
    _required("level_number", Integer, "-1 while warming up"),
    _required("share", Double, "share of requests, 0 to 1, that the level gives the replica under test"),
    _required("attempt", Integer, "how often steps of this trial were void before"),
    _instant("started_at"),
    _instant("ended_at"),
    *_counts("candidate"),
    *_counts("control"),
    _required("rate_per_second", Double, "requests per second and replica under test"),
    _required("total_rate_per_second", Double, "requests per second over all replicas"),
    _optional("p50_seconds", Double),
    _optional("p95_seconds", Double),
    _optional("p99_seconds", Double),
    _optional("queue_seconds", Double, "mean per request"),
    _optional("compute_seconds", Double, "mean per request"),
    _optional("realised_batch", Double, "mean inferences per execution"),
    _optional("compute_seconds_per_inference", Double),
    _optional("device_utilisation", Double, "busy share of the device, 0 to 1"),
    _optional("memory_used_bytes", Double),
    _optional("memory_total_bytes", Double),
    _required("harm_requests", Double, "slow-or-failed requests above the allowed 1 %"),
    _required("verdict", Text),
    _required("estimate", Double, "share of slow-or-failed requests, 0 to 1"),
    _required("interval_low", Double, "lower 95 % limit of the estimate"),
    _required("interval_high", Double, "upper 95 % limit of the estimate"),
    _required("dispersion", Double, "factor the evidence was divided by"),
    _required("log_e_accept", Double, "natural log of the evidence for below the allowed share"),
    _required("log_e_reject", Double, "natural log of the evidence for above the allowed share"),
    _required("reason", Text),
    ForeignKeyConstraint(["study_id", "trial_number"], ["trials.study_id", "trials.number"]),
    _known("verdict", Verdict),
    comment="Projection of studies.state: one judged load level each",
)

leases = Table(
    "leases",
    METADATA,
    Column("target", Text, ForeignKey("targets.name"), primary_key=True),
    _optional("holder", Text, "who drives the target; none after a release"),
    _optional("session", Text, "the process of the holder: another one with its name gets a new token"),
    _required("token", BigInteger, "grows with every grant; writes with an older one are refused"),
    _instant("expires_at", "in the database's time"),
    CheckConstraint("token >= 1", name="token_positive"),
    CheckConstraint("(holder IS NULL) = (session IS NULL)", name="holder_has_session"),
    comment="Who drives which target",
)

workers = Table(
    "workers",
    METADATA,
    Column("holder", Text, primary_key=True, comment="name of the process, as in leases"),
    _instant("alive_until", "in the database's time; a worker that says nothing by then is taken to be gone"),
    comment="Which workers are alive: they share the unfinished studies",
)

schedules = Table(
    "schedules",
    METADATA,
    Column("target", Text, ForeignKey("targets.name"), primary_key=True),
    _required("cron", Text, "minute, hour, day of month, month, day of week"),
    _required("time_zone", Text, "an IANA name"),
    _required("window_seconds", Double, "how long after its time a night may still start"),
    _required("jitter_seconds", Double, "nights of different targets start spread over so long"),
    _required("blackout_dates", ARRAY(Text), "dates of its own clock, as 2026-12-24"),
    _required("paused", Boolean),
    _required("set_by", Text),
    _instant("set_at", "nights before this are nobody's"),
    CheckConstraint("window_seconds >= 60 AND window_seconds <= 86400", name="window_in_a_day"),
    CheckConstraint("jitter_seconds >= 0 AND jitter_seconds < window_seconds", name="jitter_in_window"),
    comment="When a target is tuned without anybody asking",
)

nights = Table(
    "nights",
    METADATA,
    Column("target", Text, ForeignKey("targets.name"), primary_key=True),
    Column("name", Text, primary_key=True, comment="its time by the schedule's clock, as 2026-03-29T02:30"),
    _instant("due_at"),
    _required("state", Text),
    _optional("study_id", Text, "the study that it started"),
    _optional("outcome", Text, "of the study, once that has ended"),
    _required("reason", Text, "why it was missed"),
    _instant("settled_at"),
    ForeignKeyConstraint(["study_id"], ["studies.id"]),
    UniqueConstraint("study_id"),
    _known("state", NightState),
    _known("outcome", Outcome),
    CheckConstraint("(state = 'missed') = (study_id IS NULL)", name="started_has_study"),
    CheckConstraint("(state = 'ended') = (outcome IS NOT NULL)", name="ended_has_outcome"),
    Index("ix_nights_due_at", "due_at"),
    Index("ix_nights_target_due_at", "target", "due_at"),
    Index("ix_nights_started", "target", postgresql_where=text("state = 'started'")),
    comment="Every night that was settled, once: its key is what keeps it from starting twice",
)

freezes = Table(
    "freezes",
    METADATA,
    Column("number", BigInteger, Identity(always=True), primary_key=True),
    Column("target", Text, ForeignKey("targets.name"), nullable=True, comment="none: every target"),
    _instant("begins_at"),
    _instant("ends_at"),
    _required("reason", Text),
    CheckConstraint("ends_at > begins_at", name="ends_later"),
    Index("ix_freezes_ends_at", "ends_at"),
    comment="Times in which nothing starts and nothing is promoted",
)

line = Table(
    "line",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=False, comment="always 1: there is one line"),
    _instant("stopped_at", "none: the line runs", nullable=True),
    _required("reason", Text),
    _required("actor", Text),
    CheckConstraint("id = 1", name="only_one"),
    comment="The switch that stops everything",
)

scheduler_jobs = Table(
    "scheduler_jobs",
    METADATA,
    Column("id", String(191), primary_key=True),
    Column("next_run_time", Double, nullable=True, comment="seconds since 1970, UTC"),
    _required("job_state", LargeBinary, "as APScheduler writes it"),
    Index("ix_scheduler_jobs_next_run_time", "next_run_time"),
    comment="APScheduler's own: when the leading scheduler wakes for which target; made anew from schedules",
)

notifications = Table(
    "notifications",
    METADATA,
    Column("number", BigInteger, Identity(always=True), primary_key=True),
    _required("kind", Text),
    _required("target", Text),
    _required("subject", Text, "id of a study, or a night as target/name"),
    _instant("at"),
    _required("text", Text, "a sentence for people"),
    _required("details", JSON),
    _required("state", Text),
    _required("attempts", Integer),
    _instant("next_attempt_at"),
    _required("delivered_to", ARRAY(Text), "the webhooks that took it, by the first digits of their digest"),
    _required("error", Text, "what the last attempt came to"),
    _known("kind", NoticeKind),
    _known("state", MessageState),
    CheckConstraint("attempts >= 0", name="attempts_not_negative"),
    Index("ix_notifications_pending", "next_attempt_at", postgresql_where=text("state = 'pending'")),
    Index("ix_notifications_state_number", "state", "number"),
    comment="What people are told, written with what it tells of and delivered afterwards",
)

audit = Table(
    "audit",
    METADATA,
    Column("number", BigInteger, Identity(always=True), primary_key=True),
    _instant("at"),
    _required("actor", Text),
    _required("action", Text),
    _required("subject", Text, "name of a target or id of a study"),
    _required("reason", Text),
    _required("details", JSON),
    _required("previous_hash", Text, "hash of the record before, 64 zeros before the first"),
    _required("hash", Text, "SHA-256 over previous_hash and the record"),
    UniqueConstraint("previous_hash"),
    _known("action", AuditAction),
    Index("ix_audit_subject_number", "subject", "number"),
    Index("ix_audit_at", "at", "number"),
    Index("ix_audit_actor_at", "actor", "at", "number"),
    Index("ix_audit_action_at", "action", "at", "number"),
    comment="Who did what and why; never changed, only added to",
)

tokens = Table(
    "tokens",
    METADATA,
    Column("id", Text, primary_key=True, comment="public: to list and revoke it by"),
    _required("digest", Text, "SHA-256 of the secret, hexadecimal; the secret itself is nowhere"),
    _required("actor", Text, "who acts when it is shown"),
    _required("scopes", ARRAY(Text)),
    _required("note", Text),
    _instant("created_at"),
    _required("created_by", Text),
    _instant("expires_at"),
    _instant("last_used_at", "to the minute", nullable=True),
    _instant("revoked_at", nullable=True),
    UniqueConstraint("digest"),
    CheckConstraint("digest ~ '^[0-9a-f]{64}$'", name="digest_is_sha256"),
    CheckConstraint("cardinality(scopes) > 0", name="scopes_not_empty"),
    CheckConstraint(f"scopes <@ ARRAY[{_listed(Scope)}]", name="scopes_valid"),
    CheckConstraint("expires_at > created_at", name="expires_later"),
    Index("ix_tokens_created_at_id", "created_at", "id"),
    comment="Bearer tokens of the REST API",
)

allowances = Table(
    "allowances",
    METADATA,
    Column("whose", Text, primary_key=True, comment="SHA-256 of the caller, hexadecimal"),
    _required("left_over", Double, "requests that were left"),
    _required("granted", Integer, "requests that the last draw was given"),
    _instant("at", "of the last draw, in the database's time"),
    prefixes=["UNLOGGED"],
    comment="How often each caller of the REST API may still ask; unlogged: lost with a crash, and full again",
)

request_keys = Table(
    "request_keys",
    METADATA,
    Column("actor", Text, primary_key=True, comment="who asked"),
    Column("key", Text, primary_key=True, comment="the Idempotency-Key they chose"),
    _required("digest", Text, "SHA-256 of what was asked for, hexadecimal"),
    _required("study_id", Text),
    _instant("created_at"),
    ForeignKeyConstraint(["study_id"], ["studies.id"]),
    comment="Which study was started under which request key, so that a repeated request starts none",
)

request_spans = Table(
    "request_spans",
    METADATA,
    Column("number", BigInteger, Identity(always=True), primary_key=True),
    Column("target", Text, ForeignKey("targets.name"), nullable=False),
    _required(
        "trace_id", Text, "32 hexadecimal digits; several rows where several processes were sent parts"
    ),
    _instant("ended_at", "when the request ended, by the sender's clock"),
    _instant("received_at"),
    _required("spans", JSON, "what its parts are computed from, and nothing else of its spans"),
    Index("ix_request_spans_target_ended_at", "target", "ended_at"),
    Index("ix_request_spans_target_number", "target", "number"),
    Index("ix_request_spans_received_at", "received_at"),
    comment="Spans of slow requests that were sent to this service: an hour of them at most",
)

"""The tables: targets, budgets, studies with their journal, trials and steps, leases, and the audit.

Revision 0001, the first.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

KIND = "expand"

INSTANT = sa.DateTime(timezone=True)


def _known(name: str, column: str, *values: str) -> sa.CheckConstraint:
    listed = ", ".join(f"'{value}'" for value in values)
    return sa.CheckConstraint(f"{column} IN ({listed})", name=op.f(name))


def upgrade() -> None:
    _create_targets()
    _create_slo_budgets()
    _create_studies()
    _create_journal()
    _create_trials()
    _create_steps()
    _create_leases()
    _create_audit()


def downgrade() -> None:
    for table in ("audit", "leases", "steps", "trials", "journal", "studies", "slo_budgets", "targets"):
        op.drop_table(table)


def _create_targets() -> None:
    op.create_table(
        "targets",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False, comment="the model's name in Triton"),
        sa.Column("objective", sa.Text(), nullable=False, comment="what a study maximises"),
        sa.Column("record", sa.JSON(), nullable=False, comment="the whole target"),
        sa.Column("created_at", INSTANT, nullable=False),
        sa.Column("changed_at", INSTANT, nullable=False),
        sa.Column("changed_by", sa.Text(), nullable=False),
        _known("ck_targets_objective_known", "objective", "capacity", "efficiency"),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_targets")),
        comment="One model on one Triton deployment, as it is reached and tuned today",
    )


def _create_slo_budgets() -> None:
    op.create_table(
        "slo_budgets",
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column(
            "p99_ceiling_seconds",
            sa.Double(),
            nullable=False,
            comment="latency that at most 1 % of requests may exceed",
        ),
        sa.Column(
            "error_ratio_ceiling",
            sa.Double(),
            nullable=False,
            comment="share of requests, 0 to 1, that may fail",
        ),
        sa.Column(
            "max_canary_share",
            sa.Double(),
            nullable=False,
            comment="largest share of requests, 0 to 1, on the canary",
        ),
        sa.Column(
            "harm_budget_requests",
            sa.BigInteger(),
            nullable=False,
            comment="slow-or-failed requests above the allowed 1 % a study may cause",
        ),
        sa.Column(
            "loosened",
            sa.Boolean(),
            nullable=False,
            comment="whether users are promised less than in the version before",
        ),
        sa.Column("loosened_fields", sa.ARRAY(sa.Text()), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("created_at", INSTANT, nullable=False),
        sa.CheckConstraint(
            "NOT loosened OR btrim(reason) <> ''", name=op.f("ck_slo_budgets_loosened_says_why")
        ),
        sa.CheckConstraint(
            "error_ratio_ceiling > 0 AND error_ratio_ceiling <= 1",
            name=op.f("ck_slo_budgets_error_ratio_is_share"),
        ),
        sa.CheckConstraint("harm_budget_requests >= 1", name=op.f("ck_slo_budgets_harm_budget_positive")),
        sa.CheckConstraint(
            "loosened = (cardinality(loosened_fields) > 0)", name=op.f("ck_slo_budgets_loosened_says_what")
        ),
        sa.CheckConstraint(
            "max_canary_share > 0 AND max_canary_share <= 1",
            name=op.f("ck_slo_budgets_canary_share_is_share"),
        ),
        sa.CheckConstraint("p99_ceiling_seconds > 0", name=op.f("ck_slo_budgets_p99_ceiling_positive")),
        sa.CheckConstraint("version >= 1", name=op.f("ck_slo_budgets_version_positive")),
        sa.ForeignKeyConstraint(["target"], ["targets.name"], name=op.f("fk_slo_budgets_target_targets")),
        sa.PrimaryKeyConstraint("target", "version", name=op.f("pk_slo_budgets")),
        comment="Every version of every budget; never changed, only added to",
    )


def _create_studies() -> None:
    op.create_table(
        "studies",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column(
            "ordinal", sa.BigInteger(), sa.Identity(always=True), nullable=False, comment="order of creation"
        ),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column(
            "slo_version", sa.Integer(), nullable=False, comment="the budget version the study is judged by"
        ),
        sa.Column("phase", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("wish", sa.Text(), nullable=False, comment="what an operator last asked for"),
        sa.Column(
            "sequence",
            sa.BigInteger(),
            nullable=False,
            comment="number of the newest journal entry, 0 before the first",
        ),
        sa.Column("initial", sa.JSON(), nullable=False, comment="the study as it was created"),
        sa.Column(
            "state",
            sa.JSON(),
            nullable=False,
            comment="the study as it stands after the newest journal entry",
        ),
        sa.Column("created_at", INSTANT, nullable=False),
        sa.Column("ended_at", INSTANT, nullable=True),
        _known("ck_studies_outcome_known", "outcome", "promoted", "kept", "inconclusive", "aborted"),
        _known(
            "ck_studies_phase_known",
            "phase",
            "created",
            "baseline",
            "search",
            "confirmation",
            "approval",
            "promotion",
            "watch",
            "restoration",
            "ended",
        ),
        _known("ck_studies_wish_known", "wish", "run", "pause", "cancel", "approve", "disapprove"),
        sa.CheckConstraint("sequence >= 0", name=op.f("ck_studies_sequence_not_negative")),
        sa.ForeignKeyConstraint(
            ["target", "slo_version"],
            ["slo_budgets.target", "slo_budgets.version"],
            name=op.f("fk_studies_target_slo_version_slo_budgets"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_studies")),
        sa.UniqueConstraint("ordinal", name=op.f("uq_studies_ordinal")),
        comment="One tuning run over a target each",
    )
    op.create_index("ix_studies_created_at_ordinal", "studies", ["created_at", "ordinal"], unique=False)
    op.create_index(
        "uq_studies_unfinished_target",
        "studies",
        ["target"],
        unique=True,
        postgresql_where=sa.text("phase <> 'ended'"),
    )


def _create_journal() -> None:
    op.create_table(
        "journal",
        sa.Column("study_id", sa.Text(), nullable=False),
        sa.Column("sequence", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False, comment="decision or outcome"),
        sa.Column("at", INSTANT, nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("observed", sa.JSON(), nullable=False, comment="what was seen"),
        sa.Column("action", sa.JSON(none_as_null=True), nullable=True, comment="what was decided"),
        sa.Column("state", sa.Text(), nullable=False, comment="digest of the study afterwards"),
        _known("ck_journal_kind_known", "kind", "decision", "outcome"),
        sa.CheckConstraint("sequence >= 1", name=op.f("ck_journal_sequence_positive")),
        sa.ForeignKeyConstraint(["study_id"], ["studies.id"], name=op.f("fk_journal_study_id_studies")),
        sa.PrimaryKeyConstraint("study_id", "sequence", name=op.f("pk_journal")),
        comment="Every decision and outcome of every study; never changed, only added to",
    )


def _create_trials() -> None:
    op.create_table(
        "trials",
        sa.Column("study_id", sa.Text(), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("replicas", sa.ARRAY(sa.Text()), nullable=False, comment="the replicas under test"),
        sa.Column("max_queue_delay_microseconds", sa.BigInteger(), nullable=False),
        sa.Column(
            "preferred_batch_size",
            sa.ARRAY(sa.Integer()),
            nullable=False,
            comment="a set, ascending; empty means none",
        ),
        sa.Column("instance_count", sa.Integer(), nullable=False),
        sa.Column("max_batch_size", sa.Integer(), nullable=False),
        sa.Column("verdict", sa.Text(), nullable=True),
        sa.Column(
            "limited_by",
            sa.Text(),
            nullable=False,
            comment="what ended the ramp; empty while it has not ended",
        ),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column(
            "capacity_per_second",
            sa.Double(),
            nullable=True,
            comment="highest accepted rate of one replica, requests per second",
        ),
        sa.Column(
            "harm_requests",
            sa.Double(),
            nullable=False,
            comment="slow-or-failed requests above the allowed 1 %",
        ),
        sa.Column("proposed_at", INSTANT, nullable=False),
        sa.Column("ended_at", INSTANT, nullable=True),
        _known(
            "ck_trials_kind_known",
            "kind",
            "production",
            "baseline",
            "candidate",
            "confirmation",
            "control",
            "stage",
            "watch",
        ),
        _known(
            "ck_trials_state_known",
            "state",
            "proposed",
            "applied",
            "warming",
            "routed",
            "measuring",
            "retreating",
            "judged",
        ),
        _known("ck_trials_verdict_known", "verdict", "accept", "reject", "inconclusive", "void"),
        sa.ForeignKeyConstraint(["study_id"], ["studies.id"], name=op.f("fk_trials_study_id_studies")),
        sa.PrimaryKeyConstraint("study_id", "number", name=op.f("pk_trials")),
        comment="Projection of studies.state: one configuration put on replicas each",
    )


def _create_steps() -> None:
    op.create_table(
        "steps",
        sa.Column("study_id", sa.Text(), nullable=False),
        sa.Column("trial_number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column(
            "position",
            sa.Integer(),
            autoincrement=False,
            nullable=False,
            comment="place in the trial, from 0",
        ),
        sa.Column("level_number", sa.Integer(), nullable=False, comment="-1 while warming up"),
        sa.Column(
            "share",
            sa.Double(),
            nullable=False,
            comment="share of requests, 0 to 1, that the level gives the replica under test",
        ),
        sa.Column(
            "attempt", sa.Integer(), nullable=False, comment="how often steps of this trial were void before"
        ),
        sa.Column("started_at", INSTANT, nullable=False),
        sa.Column("ended_at", INSTANT, nullable=False),
        sa.Column("candidate_requests", sa.BigInteger(), nullable=False, comment="ended requests"),
        sa.Column(
            "candidate_bad_at_most",
            sa.BigInteger(),
            nullable=False,
            comment="slow or failed, upper bound from the histogram",
        ),
        sa.Column(
            "candidate_bad_at_least",
            sa.BigInteger(),
            nullable=False,
            comment="slow or failed, lower bound from the histogram",
        ),
        sa.Column("candidate_failed", sa.BigInteger(), nullable=False),
        sa.Column("control_requests", sa.BigInteger(), nullable=False, comment="ended requests"),
        sa.Column(
            "control_bad_at_most",
            sa.BigInteger(),
            nullable=False,
            comment="slow or failed, upper bound from the histogram",
        ),
        sa.Column(
            "control_bad_at_least",
            sa.BigInteger(),
            nullable=False,
            comment="slow or failed, lower bound from the histogram",
        ),
        sa.Column("control_failed", sa.BigInteger(), nullable=False),
        sa.Column(
            "rate_per_second",
            sa.Double(),
            nullable=False,
            comment="requests per second and replica under test",
        ),
        sa.Column(
            "total_rate_per_second",
            sa.Double(),
            nullable=False,
            comment="requests per second over all replicas",
        ),
        sa.Column("p50_seconds", sa.Double(), nullable=True),
        sa.Column("p95_seconds", sa.Double(), nullable=True),
        sa.Column("p99_seconds", sa.Double(), nullable=True),
        sa.Column("queue_seconds", sa.Double(), nullable=True, comment="mean per request"),
        sa.Column("compute_seconds", sa.Double(), nullable=True, comment="mean per request"),
        sa.Column("realised_batch", sa.Double(), nullable=True, comment="mean inferences per execution"),
        sa.Column("compute_seconds_per_inference", sa.Double(), nullable=True),
        sa.Column(
            "device_utilisation", sa.Double(), nullable=True, comment="busy share of the device, 0 to 1"
        ),
        sa.Column("memory_used_bytes", sa.Double(), nullable=True),
        sa.Column("memory_total_bytes", sa.Double(), nullable=True),
        sa.Column(
            "harm_requests",
            sa.Double(),
            nullable=False,
            comment="slow-or-failed requests above the allowed 1 %",
        ),
        sa.Column("verdict", sa.Text(), nullable=False),
        sa.Column(
            "estimate", sa.Double(), nullable=False, comment="share of slow-or-failed requests, 0 to 1"
        ),
        sa.Column("interval_low", sa.Double(), nullable=False, comment="lower 95 % limit of the estimate"),
        sa.Column("interval_high", sa.Double(), nullable=False, comment="upper 95 % limit of the estimate"),
        sa.Column("dispersion", sa.Double(), nullable=False, comment="factor the evidence was divided by"),
        sa.Column(
            "log_e_accept",
            sa.Double(),
            nullable=False,
            comment="natural log of the evidence for below the allowed share",
        ),
        sa.Column(
            "log_e_reject",
            sa.Double(),
            nullable=False,
            comment="natural log of the evidence for above the allowed share",
        ),
        sa.Column("reason", sa.Text(), nullable=False),
        _known("ck_steps_verdict_known", "verdict", "accept", "reject", "inconclusive", "void"),
        sa.ForeignKeyConstraint(
            ["study_id", "trial_number"],
            ["trials.study_id", "trials.number"],
            name=op.f("fk_steps_study_id_trial_number_trials"),
        ),
        sa.PrimaryKeyConstraint("study_id", "trial_number", "position", name=op.f("pk_steps")),
        comment="Projection of studies.state: one judged load level each",
    )


def _create_leases() -> None:
    op.create_table(
        "leases",
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("holder", sa.Text(), nullable=True, comment="who drives the target; none after a release"),
        sa.Column(
            "session",
            sa.Text(),
            nullable=True,
            comment="the process of the holder: another one with its name gets a new token",
        ),
        sa.Column(
            "token",
            sa.BigInteger(),
            nullable=False,
            comment="grows with every grant; writes with an older one are refused",
        ),
        sa.Column("expires_at", INSTANT, nullable=False, comment="in the database's time"),
        sa.CheckConstraint("(holder IS NULL) = (session IS NULL)", name=op.f("ck_leases_holder_has_session")),
        sa.CheckConstraint("token >= 1", name=op.f("ck_leases_token_positive")),
        sa.ForeignKeyConstraint(["target"], ["targets.name"], name=op.f("fk_leases_target_targets")),
        sa.PrimaryKeyConstraint("target", name=op.f("pk_leases")),
        comment="Who drives which target",
    )


def _create_audit() -> None:
    op.create_table(
        "audit",
        sa.Column("number", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("at", INSTANT, nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False, comment="name of a target or id of a study"),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("details", sa.JSON(), nullable=False),
        sa.Column(
            "previous_hash",
            sa.Text(),
            nullable=False,
            comment="hash of the record before, 64 zeros before the first",
        ),
        sa.Column("hash", sa.Text(), nullable=False, comment="SHA-256 over previous_hash and the record"),
        _known(
            "ck_audit_action_known",
            "action",
            "target_saved",
            "budget_set",
            "budget_loosened",
            "study_started",
            "wish_set",
            "load_decided",
            "restore_decided",
            "weights_decided",
            "trial_judged",
            "winner_chosen",
            "winner_rejected",
            "phase_entered",
            "replica_promoted",
            "replica_restored",
            "study_ended",
        ),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_audit")),
        sa.UniqueConstraint("previous_hash", name=op.f("uq_audit_previous_hash")),
        comment="Who did what and why; never changed, only added to",
    )
    op.create_index("ix_audit_subject_number", "audit", ["subject", "number"], unique=False)

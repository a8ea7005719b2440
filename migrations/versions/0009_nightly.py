"""Schedules, freezes, the line and the nights that were settled, and what the audit says of them.

Revision 0009, after 0008. The audit learns eight more actions; the check that lists them is replaced by a wider one, so
the previous release works on. Taking the step back is refused once the audit tells of nights: its rows stay.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

KIND = "expand"

INSTANT = sa.DateTime(timezone=True)

ACTIONS = (
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
    "target_retired",
)
OF_NIGHTS = (
    "schedule_set",
    "schedule_removed",
    "freeze_set",
    "freeze_removed",
    "line_stopped",
    "line_released",
    "night_started",
    "night_missed",
)
OF_TOKENS = ("token_created", "token_revoked")


def upgrade() -> None:
    _know_actions(*ACTIONS, *OF_NIGHTS, *OF_TOKENS)
    op.create_table(
        "line",
        sa.Column(
            "id", sa.Integer(), autoincrement=False, nullable=False, comment="always 1: there is one line"
        ),
        sa.Column("stopped_at", INSTANT, nullable=True, comment="none: the line runs"),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.CheckConstraint("id = 1", name=op.f("ck_line_only_one")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_line")),
        comment="The switch that stops everything",
    )
    op.create_table(
        "freezes",
        sa.Column("number", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("target", sa.Text(), nullable=True, comment="none: every target"),
        sa.Column("begins_at", INSTANT, nullable=False),
        sa.Column("ends_at", INSTANT, nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.CheckConstraint("ends_at > begins_at", name=op.f("ck_freezes_ends_later")),
        sa.ForeignKeyConstraint(["target"], ["targets.name"], name=op.f("fk_freezes_target_targets")),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_freezes")),
        comment="Times in which nothing starts and nothing is promoted",
    )
    op.create_index("ix_freezes_ends_at", "freezes", ["ends_at"], unique=False)
    op.create_table(
        "schedules",
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column(
            "cron", sa.Text(), nullable=False, comment="minute, hour, day of month, month, day of week"
        ),
        sa.Column("time_zone", sa.Text(), nullable=False, comment="an IANA name"),
        sa.Column(
            "window_seconds",
            sa.Double(),
            nullable=False,
            comment="how long after its time a night may still start",
        ),
        sa.Column(
            "jitter_seconds",
            sa.Double(),
            nullable=False,
            comment="nights of different targets start spread over so long",
        ),
        sa.Column(
            "blackout_dates",
            sa.ARRAY(sa.Text()),
            nullable=False,
            comment="dates of its own clock, as 2026-12-24",
        ),
        sa.Column("paused", sa.Boolean(), nullable=False),
        sa.Column("set_by", sa.Text(), nullable=False),
        sa.Column("set_at", INSTANT, nullable=False, comment="nights before this are nobody's"),
        sa.CheckConstraint(
            "jitter_seconds >= 0 AND jitter_seconds < window_seconds",
            name=op.f("ck_schedules_jitter_in_window"),
        ),
        sa.CheckConstraint(
            "window_seconds >= 60 AND window_seconds <= 86400", name=op.f("ck_schedules_window_in_a_day")
        ),
        sa.ForeignKeyConstraint(["target"], ["targets.name"], name=op.f("fk_schedules_target_targets")),
        sa.PrimaryKeyConstraint("target", name=op.f("pk_schedules")),
        comment="When a target is tuned without anybody asking",
    )
    op.create_table(
        "nights",
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column(
            "name", sa.Text(), nullable=False, comment="its time by the schedule's clock, as 2026-03-29T02:30"
        ),
        sa.Column("due_at", INSTANT, nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("study_id", sa.Text(), nullable=True, comment="the study that it started"),
        sa.Column("outcome", sa.Text(), nullable=True, comment="of the study, once that has ended"),
        sa.Column("reason", sa.Text(), nullable=False, comment="why it was missed"),
        sa.Column("settled_at", INSTANT, nullable=False),
        sa.CheckConstraint(
            "(state = 'ended') = (outcome IS NOT NULL)", name=op.f("ck_nights_ended_has_outcome")
        ),
        sa.CheckConstraint(
            "(state = 'missed') = (study_id IS NULL)", name=op.f("ck_nights_started_has_study")
        ),
        sa.CheckConstraint(
            "outcome IN ('promoted', 'kept', 'inconclusive', 'aborted')", name=op.f("ck_nights_outcome_known")
        ),
        sa.CheckConstraint("state IN ('started', 'ended', 'missed')", name=op.f("ck_nights_state_known")),
        sa.ForeignKeyConstraint(["study_id"], ["studies.id"], name=op.f("fk_nights_study_id_studies")),
        sa.ForeignKeyConstraint(["target"], ["targets.name"], name=op.f("fk_nights_target_targets")),
        sa.PrimaryKeyConstraint("target", "name", name=op.f("pk_nights")),
        sa.UniqueConstraint("study_id", name=op.f("uq_nights_study_id")),
        comment="Every night that was settled, once: its key is what keeps it from starting twice",
    )
    op.create_index("ix_nights_due_at", "nights", ["due_at"], unique=False)
    op.create_index(
        "ix_nights_started", "nights", ["target"], unique=False, postgresql_where=sa.text("state = 'started'")
    )
    op.create_index("ix_nights_target_due_at", "nights", ["target", "due_at"], unique=False)


def downgrade() -> None:
    for table in ("nights", "schedules", "freezes", "line"):
        op.drop_table(table)
    _know_actions(*ACTIONS, *OF_TOKENS)


def _know_actions(*actions: str) -> None:
    """Check lines written from now on; those that a later release wrote stay, and nobody may change them."""
    listed = ", ".join(f"'{action}'" for action in actions)
    op.execute(
        "ALTER TABLE audit DROP CONSTRAINT ck_audit_action_known, "
        f"ADD CONSTRAINT ck_audit_action_known CHECK (action IN ({listed})) NOT VALID"
    )
    op.execute(
        "DO $$ BEGIN ALTER TABLE audit VALIDATE CONSTRAINT ck_audit_action_known; "
        "EXCEPTION WHEN check_violation THEN NULL; END $$"
    )

"""What people are told, kept until it is delivered.

Revision 0011, after 0010.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

KIND = "expand"

INSTANT = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.create_table(
        "notifications",
        sa.Column("number", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False, comment="id of a study, or a night as target/name"),
        sa.Column("at", INSTANT, nullable=False),
        sa.Column("text", sa.Text(), nullable=False, comment="a sentence for people"),
        sa.Column("details", sa.JSON(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("next_attempt_at", INSTANT, nullable=False),
        sa.Column(
            "delivered_to",
            sa.ARRAY(sa.Text()),
            nullable=False,
            comment="the webhooks that took it, by the first digits of their digest",
        ),
        sa.Column("error", sa.Text(), nullable=False, comment="what the last attempt came to"),
        sa.CheckConstraint(
            "kind IN ('promoted', 'rolled_back', 'harm_budget_spent', 'night_missed', 'nights_inconclusive')",
            name=op.f("ck_notifications_kind_known"),
        ),
        sa.CheckConstraint(
            "state IN ('pending', 'delivered', 'dead')", name=op.f("ck_notifications_state_known")
        ),
        sa.CheckConstraint("attempts >= 0", name=op.f("ck_notifications_attempts_not_negative")),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_notifications")),
        comment="What people are told, written with what it tells of and delivered afterwards",
    )
    op.create_index(
        "ix_notifications_pending",
        "notifications",
        ["next_attempt_at"],
        unique=False,
        postgresql_where=sa.text("state = 'pending'"),
    )
    op.create_index("ix_notifications_state_number", "notifications", ["state", "number"], unique=False)


def downgrade() -> None:
    op.drop_table("notifications")

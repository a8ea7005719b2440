"""Bearer tokens, and what the audit says of them.

Revision 0003, after 0002. The audit learns two more actions; the check that lists them is replaced by a wider one, so
the previous release works on. Taking the step back is refused once the audit tells of tokens: its rows are never
removed, and a check that they break cannot be had.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
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
)
OF_TOKENS = ("token_created", "token_revoked")


def upgrade() -> None:
    _know_actions(*ACTIONS, *OF_TOKENS)
    op.create_table(
        "tokens",
        sa.Column("id", sa.Text(), nullable=False, comment="public: to list and revoke it by"),
        sa.Column(
            "digest",
            sa.Text(),
            nullable=False,
            comment="SHA-256 of the secret, hexadecimal; the secret itself is nowhere",
        ),
        sa.Column("actor", sa.Text(), nullable=False, comment="who acts when it is shown"),
        sa.Column("scopes", sa.ARRAY(sa.Text()), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("created_at", INSTANT, nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("expires_at", INSTANT, nullable=False),
        sa.Column("last_used_at", INSTANT, nullable=True, comment="to the minute"),
        sa.Column("revoked_at", INSTANT, nullable=True),
        sa.CheckConstraint("digest ~ '^[0-9a-f]{64}$'", name=op.f("ck_tokens_digest_is_sha256")),
        sa.CheckConstraint("cardinality(scopes) > 0", name=op.f("ck_tokens_scopes_not_empty")),
        sa.CheckConstraint(
            "scopes <@ ARRAY['viewer', 'operator', 'approver', 'admin']", name=op.f("ck_tokens_scopes_valid")
        ),
        sa.CheckConstraint("expires_at > created_at", name=op.f("ck_tokens_expires_later")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tokens")),
        sa.UniqueConstraint("digest", name=op.f("uq_tokens_digest")),
        comment="Bearer tokens of the REST API",
    )
    op.create_index("ix_tokens_created_at_id", "tokens", ["created_at", "id"], unique=False)


def downgrade() -> None:
    op.drop_table("tokens")
    _know_actions(*ACTIONS)


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

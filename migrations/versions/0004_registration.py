"""What is registered of a target beside its budget: its studies' defaults, and whether it is retired.

Revision 0004, after 0003. The previous release leaves both columns empty, which means the product's defaults and not
retired. The check that lists the audit's actions is replaced by a wider one; taking the step back is refused once the
audit tells of a retirement.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

KIND = "expand"

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
    _know_actions(*ACTIONS, "target_retired", *OF_TOKENS)
    op.add_column(
        "targets",
        sa.Column(
            "defaults",
            sa.JSON(none_as_null=True),
            nullable=True,
            comment="how its studies go about it; none: as the product has it",
        ),
    )
    op.add_column(
        "targets",
        sa.Column(
            "retired_at",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="since when no study of it may start",
        ),
    )


def downgrade() -> None:
    op.drop_column("targets", "retired_at")
    op.drop_column("targets", "defaults")
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

"""Promotions that are taken back, and the ledger of what each was worth.

Revision 0012, after 0011. The previous release writes neither; promotions that it made have no line in the ledger.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

KIND = "expand"

OUTCOMES = ("promoted", "kept", "inconclusive", "aborted")
ROLLED_BACK = "rolled_back"
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
    "schedule_set",
    "schedule_removed",
    "freeze_set",
    "freeze_removed",
    "line_stopped",
    "line_released",
    "night_started",
    "night_missed",
    "token_created",
    "token_revoked",
)


def upgrade() -> None:
    op.add_column(
        "studies",
        sa.Column(
            "reverses",
            sa.Text(),
            nullable=True,
            comment="the study whose promotion it takes back; none for one that tunes",
        ),
    )
    op.create_index(
        "ix_studies_reverses",
        "studies",
        ["reverses"],
        unique=False,
        postgresql_where=sa.text("reverses IS NOT NULL"),
    )
    op.create_table(
        "ledger",
        sa.Column("study_id", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("promoted_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False, comment="why it was promoted"),
        sa.Column("currency", sa.Text(), nullable=False, comment="of the costs"),
        sa.Column(
            "worth",
            sa.JSON(),
            nullable=False,
            comment="incumbent against winner, and what finding out cost",
        ),
        sa.ForeignKeyConstraint(["study_id"], ["studies.id"], name=op.f("fk_ledger_study_id_studies")),
        sa.PrimaryKeyConstraint("study_id", name=op.f("pk_ledger")),
        comment="What every promotion was worth; never changed, only added to",
    )
    op.create_index("ix_ledger_promoted_at", "ledger", ["promoted_at", "study_id"], unique=False)
    op.create_index(
        "ix_ledger_target_promoted_at", "ledger", ["target", "promoted_at", "study_id"], unique=False
    )
    op.execute(
        "CREATE TRIGGER ledger_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON ledger "
        "FOR EACH STATEMENT EXECUTE FUNCTION autotuner_refuse_change()"
    )
    _know("studies", "outcome", *OUTCOMES, ROLLED_BACK)
    _know("nights", "outcome", *OUTCOMES, ROLLED_BACK)
    _know("audit", "action", *ACTIONS, "rollback_started")


def downgrade() -> None:
    op.execute("UPDATE studies SET outcome = 'aborted' WHERE outcome = 'rolled_back'")
    op.execute("UPDATE nights SET outcome = 'aborted' WHERE outcome = 'rolled_back'")
    _know("studies", "outcome", *OUTCOMES)
    _know("nights", "outcome", *OUTCOMES)
    _know_from_now_on("audit", "action", *ACTIONS)
    op.drop_table("ledger")
    op.drop_index("ix_studies_reverses", "studies")
    op.drop_column("studies", "reverses")


def _know(table: str, column: str, *values: str) -> None:
    op.execute(f"{_knowing(table, column, *values)})")


def _know_from_now_on(table: str, column: str, *values: str) -> None:
    """Keep the check to rows that are written from now on, where others were written: nobody may change those."""
    op.execute(f"{_knowing(table, column, *values)}) NOT VALID")
    op.execute(
        f"DO $$ BEGIN ALTER TABLE {table} VALIDATE CONSTRAINT ck_{table}_{column}_known; "
        "EXCEPTION WHEN check_violation THEN NULL; END $$"
    )


def _knowing(table: str, column: str, *values: str) -> str:
    listed = ", ".join(f"'{value}'" for value in values)
    name = f"ck_{table}_{column}_known"
    return f"ALTER TABLE {table} DROP CONSTRAINT {name}, ADD CONSTRAINT {name} CHECK ({column} IN ({listed})"

"""What lists are read by: the target of a trial beside it, and an index for each filter and sort.

Revision 0006, after 0005. The previous release writes trials without their target; a trigger fills it in.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

KIND = "expand"

FILL = """
CREATE FUNCTION autotuner_fill_trial_target() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.target IS NULL THEN
        NEW.target := (SELECT target FROM studies WHERE id = NEW.study_id);
    END IF;
    RETURN NEW;
END
$$
"""

INDEXES: tuple[tuple[str, str, list[Any]], ...] = (
    ("trials", "proposed_at", ["proposed_at", "study_id", "number"]),
    ("trials", "target_proposed_at", ["target", "proposed_at", "study_id", "number"]),
    ("trials", "verdict_proposed_at", ["verdict", "proposed_at", "study_id", "number"]),
    ("trials", "delay", ["max_queue_delay_microseconds", "proposed_at"]),
    ("trials", "instances", ["instance_count", "proposed_at"]),
    ("trials", "max_batch_size", ["max_batch_size", "proposed_at"]),
    ("trials", "preferred", ["preferred_batch_size", "proposed_at"]),
    ("trials", "capacity", [sa.text("coalesce(capacity_per_second, 0.0)"), "study_id", "number"]),
    ("trials", "harm", ["harm_requests", "study_id", "number"]),
    ("studies", "target_created_at", ["target", "created_at", "ordinal"]),
    ("audit", "at", ["at", "number"]),
    ("audit", "actor_at", ["actor", "at", "number"]),
    ("audit", "action_at", ["action", "at", "number"]),
)


def upgrade() -> None:
    op.add_column("trials", sa.Column("target", sa.Text(), nullable=True))
    op.execute("UPDATE trials SET target = studies.target FROM studies WHERE studies.id = trials.study_id")
    op.alter_column("trials", "target", nullable=False)
    op.execute(FILL)
    op.execute(
        "CREATE TRIGGER trials_fill_target BEFORE INSERT ON trials "
        "FOR EACH ROW EXECUTE FUNCTION autotuner_fill_trial_target()"
    )
    for table, name, columns in INDEXES:
        op.create_index(f"ix_{table}_{name}", table, columns, unique=False)


def downgrade() -> None:
    for table, name, _ in reversed(INDEXES):
        op.drop_index(f"ix_{table}_{name}", table)
    op.execute("DROP TRIGGER trials_fill_target ON trials")
    op.execute("DROP FUNCTION autotuner_fill_trial_target()")
    op.drop_column("trials", "target")

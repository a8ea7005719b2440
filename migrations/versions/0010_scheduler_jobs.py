"""The jobs of APScheduler, in a table of ours so that it need not make one.

Revision 0010, after 0009.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

KIND = "expand"


def upgrade() -> None:
    op.create_table(
        "scheduler_jobs",
        sa.Column("id", sa.String(length=191), nullable=False),
        sa.Column("next_run_time", sa.Double(), nullable=True, comment="seconds since 1970, UTC"),
        sa.Column("job_state", sa.LargeBinary(), nullable=False, comment="as APScheduler writes it"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_scheduler_jobs")),
        comment="APScheduler's own: when the leading scheduler wakes for which target; made anew from schedules",
    )
    op.create_index("ix_scheduler_jobs_next_run_time", "scheduler_jobs", ["next_run_time"], unique=False)


def downgrade() -> None:
    op.drop_table("scheduler_jobs")

"""Which workers are alive, so that they can share the unfinished studies.

Revision 0007, after 0006.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

KIND = "expand"


def upgrade() -> None:
    op.create_table(
        "workers",
        sa.Column("holder", sa.Text(), nullable=False, comment="name of the process, as in leases"),
        sa.Column(
            "alive_until",
            sa.DateTime(timezone=True),
            nullable=False,
            comment="in the database's time; a worker that says nothing by then is taken to be gone",
        ),
        sa.PrimaryKeyConstraint("holder", name=op.f("pk_workers")),
        comment="Which workers are alive: they share the unfinished studies",
    )


def downgrade() -> None:
    op.drop_table("workers")

"""How often each caller may still ask, shared between the processes of the API.

Revision 0017, after 0016.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

KIND = "expand"


def upgrade() -> None:
    op.create_table(
        "allowances",
        sa.Column("whose", sa.Text(), nullable=False, comment="SHA-256 of the caller, hexadecimal"),
        sa.Column("left_over", sa.Double(), nullable=False, comment="requests that were left"),
        sa.Column("granted", sa.Integer(), nullable=False, comment="requests that the last draw was given"),
        sa.Column(
            "at",
            sa.DateTime(timezone=True),
            nullable=False,
            comment="of the last draw, in the database's time",
        ),
        sa.PrimaryKeyConstraint("whose", name=op.f("pk_allowances")),
        prefixes=["UNLOGGED"],
        comment="How often each caller of the REST API may still ask; unlogged: lost with a crash, and full again",
    )


def downgrade() -> None:
    op.drop_table("allowances")

"""Which study was started under which request key (Idempotency-Key).

Revision 0005, after 0004.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

KIND = "expand"


def upgrade() -> None:
    op.create_table(
        "request_keys",
        sa.Column("actor", sa.Text(), nullable=False, comment="who asked"),
        sa.Column("key", sa.Text(), nullable=False, comment="the Idempotency-Key they chose"),
        sa.Column("digest", sa.Text(), nullable=False, comment="SHA-256 of what was asked for, hexadecimal"),
        sa.Column("study_id", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["study_id"], ["studies.id"], name=op.f("fk_request_keys_study_id_studies")),
        sa.PrimaryKeyConstraint("actor", "key", name=op.f("pk_request_keys")),
        comment="Which study was started under which request key, so that a repeated request starts none",
    )


def downgrade() -> None:
    op.drop_table("request_keys")

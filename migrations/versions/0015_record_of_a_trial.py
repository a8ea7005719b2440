"""The record of each trial beside it, so that one can be looked at without reading through its whole study.

Revision 0015, after 0014. The previous release writes none; its trials are read from their study as before.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

KIND = "expand"


def upgrade() -> None:
    op.add_column(
        "trials",
        sa.Column(
            "record",
            sa.Text(),
            nullable=True,
            comment="as in studies.state, once it is final; none where an earlier release saw to it",
        ),
    )


def downgrade() -> None:
    op.drop_column("trials", "record")

"""The trials of incumbents and winners are found without reading the candidates between them: a target's history.

Revision 0014, after 0013.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

KIND = "expand"

NAME = "ix_trials_of_incumbent_or_winner"


def upgrade() -> None:
    op.create_index(
        NAME,
        "trials",
        ["target", "kind", "proposed_at", "study_id", "number"],
        postgresql_where=sa.text("kind <> 'candidate'"),
    )


def downgrade() -> None:
    op.drop_index(NAME, "trials")

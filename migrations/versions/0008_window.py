"""The open window of a study beside the rest of it: a look that leads to nothing yet writes that alone.

Revision 0008, after 0007. Studies written before have their window in `state`, where it is still found.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

KIND = "expand"

BEFORE = "the study as it stands after the newest journal entry"
AFTER = "the study after the newest journal entry, without the open window"
WINDOW_COMMENT = "the open window of the newest trial, if it has one"


def upgrade() -> None:
    op.add_column("studies", sa.Column("window", sa.JSON(), nullable=True, comment=WINDOW_COMMENT))
    op.alter_column("studies", "state", existing_type=sa.JSON(), existing_nullable=False, comment=AFTER)


def downgrade() -> None:
    op.execute(
        "UPDATE studies SET state = jsonb_set(state::jsonb, "
        "ARRAY['trials', (json_array_length(state->'trials') - 1)::text, 'window'], \"window\"::jsonb)::json "
        'WHERE "window" IS NOT NULL'
    )
    op.alter_column("studies", "state", existing_type=sa.JSON(), existing_nullable=False, comment=BEFORE)
    op.drop_column("studies", "window")

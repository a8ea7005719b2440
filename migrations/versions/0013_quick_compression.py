"""What is written at every look is compressed with lz4 where the server knows it: a fraction of the processor time.

Revision 0013, after 0012. Rows keep the compression they were written with; either is read.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

KIND = "expand"

WRITTEN_OFTEN = (("studies", "window"), ("studies", "state"), ("journal", "observed"))

KNOWN = "SELECT 'lz4' = ANY (enumvals) FROM pg_settings WHERE name = 'default_toast_compression'"


def upgrade() -> None:
    if op.get_bind().scalar(sa.text(KNOWN)):
        _compress_with("lz4")


def downgrade() -> None:
    _compress_with("default")


def _compress_with(method: str) -> None:
    for table, column in WRITTEN_OFTEN:
        op.execute(f'ALTER TABLE {table} ALTER COLUMN "{column}" SET COMPRESSION {method}')

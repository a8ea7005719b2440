"""Winners that are proposed to whoever owns production's configuration, and the notice that says so.

Revision 0018, after 0017. Workers of this release alone write such a notice; a scheduler of the previous release cannot
read one.
"""

from __future__ import annotations

from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

KIND = "expand"

KINDS = ("promoted", "rolled_back", "harm_budget_spent", "night_missed", "nights_inconclusive")
PROPOSED = "proposed"


def upgrade() -> None:
    _know(*KINDS, PROPOSED)


def downgrade() -> None:
    op.execute("UPDATE notifications SET kind = 'promoted' WHERE kind = 'proposed'")
    _know(*KINDS)


def _know(*kinds: str) -> None:
    values = ", ".join(f"'{kind}'" for kind in kinds)
    op.execute(
        "ALTER TABLE notifications DROP CONSTRAINT ck_notifications_kind_known, "
        f"ADD CONSTRAINT ck_notifications_kind_known CHECK (kind IN ({values}))"
    )

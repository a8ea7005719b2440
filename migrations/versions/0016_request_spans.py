"""Spans of slow requests that gateways and servers send here, and the scope of tokens that may send them.

Revision 0016, after 0015.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

KIND = "expand"

INSTANT = sa.DateTime(timezone=True)
SCOPES = "ck_tokens_scopes_valid"
KNOWN = "scopes <@ ARRAY['viewer', 'operator', 'approver', 'admin'{}]"


def upgrade() -> None:
    op.create_table(
        "request_spans",
        sa.Column("number", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column(
            "trace_id",
            sa.Text(),
            nullable=False,
            comment="32 hexadecimal digits; several rows where several processes were sent parts",
        ),
        sa.Column(
            "ended_at", INSTANT, nullable=False, comment="when the request ended, by the sender's clock"
        ),
        sa.Column("received_at", INSTANT, nullable=False),
        sa.Column(
            "spans",
            sa.JSON(),
            nullable=False,
            comment="what its parts are computed from, and nothing else of its spans",
        ),
        sa.ForeignKeyConstraint(["target"], ["targets.name"], name=op.f("fk_request_spans_target_targets")),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_request_spans")),
        comment="Spans of slow requests that were sent to this service: an hour of them at most",
    )
    op.create_index("ix_request_spans_target_ended_at", "request_spans", ["target", "ended_at"], unique=False)
    op.create_index("ix_request_spans_target_number", "request_spans", ["target", "number"], unique=False)
    op.create_index("ix_request_spans_received_at", "request_spans", ["received_at"], unique=False)
    _scopes(", 'tracer'")


def downgrade() -> None:
    op.execute("DELETE FROM tokens WHERE scopes = ARRAY['tracer']::text[]")
    op.execute("UPDATE tokens SET scopes = array_remove(scopes, 'tracer') WHERE 'tracer' = ANY (scopes)")
    _scopes("")
    op.drop_table("request_spans")


def _scopes(more: str) -> None:
    op.drop_constraint(op.f(SCOPES), "tokens", type_="check")
    op.create_check_constraint(op.f(SCOPES), "tokens", KNOWN.format(more))

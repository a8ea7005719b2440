"""How often somebody may ask, shared between processes: buckets in an unlogged table, filled by the database's clock.

One statement takes what there is and says how much that was, so two processes never both take the last of it. What
somebody is called stays out of the table: only a digest is kept. After a crash of the server the table is empty, and
every bucket full.
"""

from __future__ import annotations

import hashlib
from itertools import count

from sqlalchemy import Engine, text

from autotuner.adapters.postgres.engine import transaction
from autotuner.domain.allowance import Drawn, Rate, next_seconds

SWEPT_EVERY = 500
"""After so many draws of one process, buckets that are full again are removed."""

DRAW = text(
    """
    INSERT INTO allowances AS kept (whose, left_over, granted, at)
    VALUES (:whose, CAST(:holds AS float) - least(:wanted, floor(:holds)), least(:wanted, floor(:holds)), now())
    ON CONFLICT (whose) DO UPDATE SET (left_over, granted, at) = (
        SELECT filled - least(:wanted, floor(filled)), least(:wanted, floor(filled)), greatest(kept.at, now())
        FROM (
            SELECT least(
                CAST(:holds AS float),
                kept.left_over + :per_second * greatest(0.0, extract(epoch FROM now() - kept.at))
            ) AS filled
        ) AS bucket
    )
    RETURNING left_over, granted
    """
)

SWEEP = text(
    """
    DELETE FROM allowances WHERE whose IN (
        SELECT whose FROM allowances WHERE at < now() - make_interval(secs => :full_after)
        LIMIT 10000 FOR UPDATE SKIP LOCKED
    )
    """
)


class PostgresAllowances:
    """Buckets in the table `allowances`. Safe to share between threads."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._draws = count(1)
        self._slowest_seconds = 0.0

    def draw(self, whose: str, wanted: int, rate: Rate) -> Drawn:
        """Take at most `wanted` requests out of a bucket; see `ports.Allowances`."""
        self._slowest_seconds = max(self._slowest_seconds, rate.holds / rate.per_second)
        if next(self._draws) % SWEPT_EVERY == 0:
            with transaction(self._engine) as connection:
                connection.execute(SWEEP, {"full_after": self._slowest_seconds})
        asked = {
            "whose": hashlib.sha256(whose.encode(errors="replace")).hexdigest(),
            "wanted": wanted,
            "holds": rate.holds,
            "per_second": rate.per_second,
        }
        with transaction(self._engine) as connection:
            row = connection.execute(DRAW, asked).one()
        return Drawn(int(row.granted), next_seconds(float(row.left_over), rate))

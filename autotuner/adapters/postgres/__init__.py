"""PostgreSQL: the single source of truth. Every query and every table definition is in this package.

`open_engine` makes the connection pool, the classes named Postgres… use it, `upgrade` brings the
schema up to date.
"""

from sqlalchemy import Engine

from autotuner.adapters.postgres.allowances import PostgresAllowances
from autotuner.adapters.postgres.catalogue import PostgresCatalogue
from autotuner.adapters.postgres.engine import open_engine
from autotuner.adapters.postgres.leadership import PostgresLeadership
from autotuner.adapters.postgres.lease import PostgresLeases
from autotuner.adapters.postgres.migrate import downgrade, is_current, upgrade
from autotuner.adapters.postgres.nights import PostgresNights
from autotuner.adapters.postgres.outbox import PostgresOutbox
from autotuner.adapters.postgres.registry import PostgresRegistry
from autotuner.adapters.postgres.spans import PostgresSpans
from autotuner.adapters.postgres.store import PostgresStore
from autotuner.adapters.postgres.tokens import PostgresTokens

__all__ = [
    "Engine",
    "PostgresAllowances",
    "PostgresCatalogue",
    "PostgresLeadership",
    "PostgresLeases",
    "PostgresNights",
    "PostgresOutbox",
    "PostgresRegistry",
    "PostgresSpans",
    "PostgresStore",
    "PostgresTokens",
    "downgrade",
    "is_current",
    "open_engine",
    "upgrade",
]

"""The composition root: the only place that chooses implementations."""

from autotuner.bootstrap.doors import (
    Counted,
    access_of,
    counted_by,
    observer_of,
    preflight_of,
    proposer_for,
    secrets_of,
    target_observer,
    world_of,
)
from autotuner.bootstrap.process import (
    THREADS,
    Application,
    application,
    canaries_past_their_time,
    collected_rarely,
    database_url,
    pools_of,
    terms_of,
    ticks_of,
    upgrade_database,
)

__all__ = [
    "THREADS",
    "Application",
    "Counted",
    "access_of",
    "application",
    "canaries_past_their_time",
    "collected_rarely",
    "counted_by",
    "database_url",
    "observer_of",
    "pools_of",
    "preflight_of",
    "proposer_for",
    "secrets_of",
    "target_observer",
    "terms_of",
    "ticks_of",
    "upgrade_database",
    "world_of",
]

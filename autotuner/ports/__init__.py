"""What the controller needs of the outside world: one small protocol a door, in domain types.

Adapters implement these; each has an in-memory twin that passes the same contract suite.
"""

from autotuner.ports.keeping import (
    Issuer,
    Leadership,
    Leases,
    Nights,
    Outbox,
    Registry,
    Store,
    Tokens,
    Webhook,
)
from autotuner.ports.kept import (
    AuditRecord,
    Grant,
    JournalEntry,
    Message,
    MessageState,
    Muster,
    NightRecord,
    NightState,
    RequestKey,
    StartedBefore,
    StudySummary,
)
from autotuner.ports.target import (
    Canary,
    Clock,
    MetricsSource,
    Observer,
    Proposer,
    Route,
    ServerApi,
    Serving,
    World,
)

__all__ = [
    "AuditRecord",
    "Canary",
    "Clock",
    "Grant",
    "Issuer",
    "JournalEntry",
    "Leadership",
    "Leases",
    "Message",
    "MessageState",
    "MetricsSource",
    "Muster",
    "NightRecord",
    "NightState",
    "Nights",
    "Observer",
    "Outbox",
    "Proposer",
    "Registry",
    "RequestKey",
    "Route",
    "ServerApi",
    "Serving",
    "StartedBefore",
    "Store",
    "StudySummary",
    "Tokens",
    "Webhook",
    "World",
]

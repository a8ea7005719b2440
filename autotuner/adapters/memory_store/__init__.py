"""Everything that is remembered, in memory: complete, for tests, simulation and trying things out.

It keeps the same rules as PostgreSQL and passes the same contract suite. `MemoryStore` holds the tables, the others
work on the same ones.
"""

from autotuner.adapters.memory_store.allowances import MemoryAllowances
from autotuner.adapters.memory_store.catalogue import MemoryCatalogue
from autotuner.adapters.memory_store.leases import MemoryLeases
from autotuner.adapters.memory_store.nights import MemoryNights
from autotuner.adapters.memory_store.outbox import MemoryLeadership, MemoryOutbox
from autotuner.adapters.memory_store.registry import MemoryRegistry
from autotuner.adapters.memory_store.spans import MemorySpans
from autotuner.adapters.memory_store.store import MemoryStore
from autotuner.adapters.memory_store.tables import Memory
from autotuner.adapters.memory_store.tokens import MemoryTokens

__all__ = [
    "Memory",
    "MemoryAllowances",
    "MemoryCatalogue",
    "MemoryLeadership",
    "MemoryLeases",
    "MemoryNights",
    "MemoryOutbox",
    "MemoryRegistry",
    "MemorySpans",
    "MemoryStore",
    "MemoryTokens",
]

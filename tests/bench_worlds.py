"""A workload small enough that everything about it is known within a second."""

from __future__ import annotations

from autotuner.benchmark.workloads import BenchWorkload

SMALL = BenchWorkload(
    name="small",
    fixed_ms=8.0,
    item_ms=1.0,
    interference=0.4,
    ceiling_ms=50.0,
    max_instances=2,
    max_batch_size=4,
    requests_per_second=80.0,
    preferred_batch_size=(2,),
)

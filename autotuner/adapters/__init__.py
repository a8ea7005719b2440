"""One outside system each, behind a Protocol of `autotuner.ports`; adapters never import one another."""

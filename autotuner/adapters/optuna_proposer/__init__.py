"""Optuna behind the Proposer port: a sampler suggests, the search space decides."""

from autotuner.adapters.optuna_proposer.proposer import OptunaProposer, seed_of
from autotuner.adapters.optuna_proposer.told import value, violation

__all__ = ["OptunaProposer", "seed_of", "value", "violation"]

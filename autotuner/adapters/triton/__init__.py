"""The door to Triton's model control."""

from autotuner.adapters.triton.serving import TritonServing

__all__ = ["TritonServing"]

"""The door to Triton's model control, and the text form of its configurations."""

from autotuner.adapters.triton.pbtxt import config_pbtxt, patch
from autotuner.adapters.triton.serving import TritonServing

__all__ = ["TritonServing", "config_pbtxt", "patch"]

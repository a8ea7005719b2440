"""Closed-loop autotuner for NVIDIA Triton Inference Server.

Tunes dynamic batching on production traffic under a p99 ceiling that is fixed before tuning starts, and can show
afterwards why it did what it did. Imports point inward: cli and api know everything, `stats` and `errors` nothing.
"""

__version__ = "0.1.0"

"""A study as one self-contained HTML page: what it found, why, and how anybody can check it."""

from __future__ import annotations

from autotuner.report.page import render, write_report

__all__ = ["render", "write_report"]

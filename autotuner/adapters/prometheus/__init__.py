"""The metrics source that reads raw counter samples from a Prometheus, or from what answers like one."""

from autotuner.adapters.prometheus.source import PrometheusMetrics, PrometheusPages
from autotuner.instruments.series import Measured

__all__ = ["Measured", "PrometheusMetrics", "PrometheusPages"]

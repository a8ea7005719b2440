"""The metrics source that reads raw counter samples from a Prometheus, or from what answers like one."""

from autotuner.adapters.prometheus.series import Measured
from autotuner.adapters.prometheus.source import PrometheusMetrics, PrometheusPages

__all__ = ["Measured", "PrometheusMetrics", "PrometheusPages"]

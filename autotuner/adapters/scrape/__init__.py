"""The metrics source that reads Envoy and every Triton directly, without a metrics server in between."""

from autotuner.adapters.scrape.source import ScrapedMetrics
from autotuner.adapters.scrape.statistics import ScrapedStatistics

__all__ = ["ScrapedMetrics", "ScrapedStatistics"]

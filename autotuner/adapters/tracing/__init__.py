"""The door to the spans of requests: a Jaeger, a Tempo, or what was sent to this service by OTLP."""

from autotuner.adapters.tracing.jaeger import JaegerTraces
from autotuner.adapters.tracing.otlp import spans_of_export
from autotuner.adapters.tracing.sent import SentTraces
from autotuner.adapters.tracing.tempo import TempoTraces

__all__ = ["JaegerTraces", "SentTraces", "TempoTraces", "spans_of_export"]

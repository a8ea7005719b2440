"""Grafana dashboards, recording rules and alerts, from one source."""

"""Dashboards in Grafana's JSON, drawn from panels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from scripts.monitoring.panels import Panel

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
GRAFANA_SCHEMA = 39
COLUMNS = 24


def dashboard(uid: str, title: str, panels: Iterable[Panel]) -> dict[str, Any]:
    """Return a dashboard in Grafana's JSON."""
    return {
        "uid": f"autotuner-{uid}",
        "title": title,
        "tags": ["autotuner"],
        "timezone": "browser",
        "schemaVersion": GRAFANA_SCHEMA,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [_datasource_variable()]},
        "panels": list(_placed(panels)),
    }


def _datasource_variable() -> dict[str, Any]:
    return {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}


def _placed(panels: Iterable[Panel]) -> Iterable[dict[str, Any]]:
    """Panels from left to right, in rows that are as high as everybody's."""
    column, row = 0, 0
    for number, panel in enumerate(panels, start=1):
        if column + panel.width > COLUMNS:
            column, row = 0, row + 8
        yield _panel(number, panel, {"x": column, "y": row, "w": panel.width, "h": 8})
        column += panel.width


def _panel(number: int, panel: Panel, place: Mapping[str, int]) -> dict[str, Any]:
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.about,
        "datasource": DATASOURCE,
        "gridPos": dict(place),
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        **_stat(panel),
        "targets": [
            {
                "refId": chr(ord("A") + position),
                "datasource": DATASOURCE,
                "expr": query,
                "legendFormat": legend,
            }
            for position, (legend, query) in enumerate(panel.queries)
        ],
    }


def _stat(panel: Panel) -> dict[str, Any]:
    """What a single number shows: its newest value, or the name of its series where that is the answer."""
    if panel.kind != "stat":
        return {}
    return {"options": {"textMode": panel.text, "reduceOptions": {"calcs": ["lastNotNull"]}}}

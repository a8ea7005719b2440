"""Dashboards and rules are what their one source says, fit Grafana's schema, and ask for metrics that there are."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

from autotuner.instruments import envoy, triton
from autotuner.instruments.presets import preset_names
from autotuner.telemetry.metrics import METRICS
from scripts.monitoring.dashboards import COLUMNS
from scripts.monitoring.files import FOLDER, files
from scripts.monitoring.panels import target_panels
from scripts.monitoring.queries import TargetQueries
from scripts.monitoring.rules import target_rules
from tests.unit.test_metrics_section import FULL, URL, target_file

FILES = files()
PLAIN = {"prometheus": {"url": URL}, "labels": {"cluster": "prod"}}
DASHBOARDS = sorted(name for name in FILES if name.startswith("dashboards/"))
RULES = sorted(name for name in FILES if name.startswith("rules/"))
OURS = re.compile(r"\bautotuner_\w+")
OTHERS = re.compile(r"\b(?:envoy|nv)_\w+")


def dashboard(name: str) -> Any:
    return json.loads(FILES[name])


def queries(content: Any) -> list[str]:
    return [target["expr"] for panel in content["panels"] for target in panel["targets"]]


def rules(name: str) -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(FILES[name])["groups"] for rule in group["rules"]]


def test_the_files_are_what_their_source_says() -> None:
    assert {name: (FOLDER / name).read_text("utf-8") for name in FILES} == FILES, "run make docs"


@pytest.mark.parametrize("name", DASHBOARDS)
def test_a_dashboard_has_nothing_that_grafanas_schema_does_not_know(name: str) -> None:
    given = dashboard(name)
    read = json.loads(JSONEncoder().encode(Dashboard.from_json(given)))
    assert list(lost(given, read)) == []


def lost(given: Any, read: Any, path: str = "") -> Any:
    """Yield what was given and is not there, or is another, after it was read as Grafana's schema has it."""
    if isinstance(given, dict):
        for key, value in given.items():
            yield from lost(value, read.get(key) if isinstance(read, dict) else None, f"{path}.{key}")
    elif isinstance(given, list):
        for number, value in enumerate(given):
            yield from lost(value, read[number] if number < len(read) else None, f"{path}.{number}")
    elif given != read:
        yield path


def test_what_the_schema_does_not_know_is_seen() -> None:
    given = dashboard(DASHBOARDS[0])
    given["panels"][0]["gridPosition"] = {"x": 0}
    read = json.loads(JSONEncoder().encode(Dashboard.from_json(given)))
    assert list(lost(given, read)) == [".panels.0.gridPosition.x"]


@pytest.mark.parametrize("name", DASHBOARDS)
def test_panels_have_numbers_of_their_own_a_description_and_do_not_overlap(name: str) -> None:
    panels = dashboard(name)["panels"]
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {(x, place["y"]) for x in range(place["x"], place["x"] + place["w"])}
        assert not cells & taken
        assert place["x"] + place["w"] <= COLUMNS
        assert panel["description"]
        taken |= cells
    assert len({panel["id"] for panel in panels}) == len(panels)


def known() -> set[str]:
    """Names of samples: ours with the suffixes of histograms, Envoy's and Triton's that are read anyway."""
    suffixes = ("", "_bucket", "_count", "_sum")
    return {f"{metric.name}{suffix}" for metric in METRICS for suffix in suffixes} | {
        *envoy.WANTED,
        envoy.CLUSTER + "upstream_rq_time_count",
        *triton.WANTED,
    }


@pytest.mark.parametrize("name", [*DASHBOARDS, *RULES])
def test_only_metrics_that_there_are_are_asked_for(name: str) -> None:
    text = FILES[name]
    assert {*OURS.findall(text), *OTHERS.findall(text)} - known() - {"envoy_cluster_name"} == set()


@pytest.mark.parametrize("name", RULES)
def test_every_alert_says_how_grave_it_is_what_happened_and_what_to_do(name: str) -> None:
    for rule in rules(name):
        if "alert" in rule:
            assert rule["labels"]["severity"] in ("warning", "critical")
            assert rule["annotations"]["summary"].endswith(".")
            assert rule["annotations"]["description"].endswith(".")


def test_every_alert_is_tested() -> None:
    tested = (FOLDER / "rules" / "tests.yaml").read_text("utf-8")
    alerts = [rule["alert"] for name in RULES for rule in rules(name) if "alert" in rule]
    assert [name for name in alerts if f"alertname: {name}\n" not in tested] == []


@pytest.mark.parametrize("preset", preset_names()[:-1])
def test_every_gateways_target_gets_rules_over_its_own_histogram(preset: str) -> None:
    asked = TargetQueries(target_file({"prometheus": {"url": URL}, "preset": preset}))
    text = yaml.safe_dump(target_rules(asked))
    assert asked.bad_share(["canary"], "5m") in {
        rule.get("expr") for group in target_rules(asked)["groups"] for rule in group["rules"]
    }
    assert "canary" in text


def test_a_custom_gateways_target_gets_them_too() -> None:
    asked = TargetQueries(target_file(FULL))
    assert 'proxy_ms_bucket{cluster="prod",backend=~"canary",le=~"100(\\\\.0)?"}' in asked.bad_share(
        ["canary"], "5m"
    )
    assert asked.unit == "ms"


def test_files_can_be_written_for_any_target(tmp_path: Path) -> None:
    target = tmp_path / "target.yaml"
    target.write_text((FOLDER.parents[1] / "examples" / "target.yaml").read_text("utf-8"), "utf-8")
    assert set(files(target)) == set(FILES)


@pytest.mark.parametrize(
    ("device", "used"),
    [
        ("triton", 'nv_gpu_memory_used_bytes{cluster="prod"}'),
        ("cpu", 'nv_cpu_memory_used_bytes{cluster="prod"}'),
        ("dcgm", 'DCGM_FI_DEV_FB_USED{cluster="prod"} * 1048576'),
    ],
)
def test_memory_is_asked_for_where_the_target_says(device: str, used: str) -> None:
    asked = TargetQueries(target_file({**PLAIN, "device": device}))
    assert asked.memory is not None
    assert asked.memory[0] == used
    assert used in [query for panel in target_panels(asked) for _, query in panel.queries]


def test_a_target_without_a_device_has_no_panel_of_its_memory() -> None:
    asked = TargetQueries(target_file({**PLAIN, "device": "none"}))
    assert "Device memory" not in [panel.title for panel in target_panels(asked)]


def test_every_series_of_a_target_has_its_labels_and_a_label_is_no_more_than_its_text() -> None:
    asked = TargetQueries(target_file({**PLAIN, "labels": {"cluster": 'a"} or up{b="'}}))
    scraped = [
        query
        for panel in target_panels(asked)
        for _, query in panel.queries
        if re.search(r"\b(?:envoy|nv)_", query)
    ]
    assert len(scraped) >= 10
    assert [query for query in scraped if r'cluster="a\"} or up{b=\""' not in query] == []

"""A drawn dashboard shows what its own JSON asks for: names, values in their unit, and that there is nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from scripts.monitoring.drawing import Span, picture, said, without_data
from scripts.monitoring.files import files
from tests.stub_server import Planned, StubServer

SPAN = Span(1_000.0, 1_600.0)
SERIES = [
    {
        "metric": {"state": "covers", "instance": "canary"},
        "values": [[1_000, "1"], [1_004, "NaN"], [1_300, "0.25"]],
    }
]


@pytest.fixture
def prometheus() -> Iterator[StubServer]:
    with StubServer({"/api/v1/query_range": answered(SERIES)}) as site:
        yield site


def answered(result: list[Any]) -> Planned:
    return Planned(json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}}))


def words(drawn: str) -> list[str]:
    return [each.text or "" for each in ET.fromstring(drawn).iter() if each.tag.endswith("}text")]


def dashboard(name: str) -> Any:
    return json.loads(files()[f"dashboards/{name}.json"])


@pytest.mark.parametrize("name", ["fleet", "study", "small-vision"])
def test_every_panel_is_drawn_with_its_title_and_what_it_is(prometheus: StubServer, name: str) -> None:
    told = words(picture(prometheus.url, dashboard(name), SPAN))
    for panel in dashboard(name)["panels"]:
        assert panel["title"] in told
        assert panel["description"] in told
    assert "no data" not in told


def test_a_certificate_is_told_by_its_name(prometheus: StubServer) -> None:
    drawn = words(picture(prometheus.url, dashboard("small-vision"), SPAN))
    assert "covers" in drawn[drawn.index("Certificate") :]


def test_a_line_is_interrupted_where_there_was_no_value(prometheus: StubServer) -> None:
    (batch,) = [each for each in dashboard("small-vision")["panels"] if each["title"] == "Realised batch"]
    drawn = picture(prometheus.url, {"title": "one", "panels": [batch]}, SPAN)
    assert drawn.count("<polyline") == 2


def test_what_shows_nothing_is_named(prometheus: StubServer) -> None:
    prometheus.answers["/api/v1/query_range"] = answered([])
    empty = without_data(prometheus.url, dashboard("study"), SPAN)
    assert empty == [panel["title"] for panel in dashboard("study")["panels"]]
    assert words(picture(prometheus.url, dashboard("study"), SPAN)).count("no data") == len(empty)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.0123, "percentunit", "1.23 %"),
        (0.0123, "s", "12.3 ms"),
        (2.5, "s", "2.5 s"),
        (99.5, "ms", "99.5 ms"),
        (3.2e9, "bytes", "3.2 GB"),
        (360.4, "reqps", "360"),
        (1234.0, "short", "1234"),
    ],
)
def test_a_value_has_its_unit(value: float, unit: str, text: str) -> None:
    assert said(value, unit) == text

"""A page of metrics is read exactly or not at all."""

from __future__ import annotations

import contextlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotuner.instruments.exposition import Page
from autotuner.instruments.readings import Unreadable

WANTED = frozenset({"requests_total", "depth"})


def page(text: str) -> Page:
    return Page(text, WANTED)


def test_samples_are_found_by_name_and_labels() -> None:
    read = page(
        "# HELP requests_total what it is\n"
        "# TYPE requests_total counter\n"
        'requests_total{model="a",version="1"} 3\n'
        'requests_total{model="a",version="2"} 4 1700000000000\n'
        'requests_total{model="b",version="1"} 5e1\n'
        "depth 0.5\n"
        'other{model="a"} 9\n'
    )
    assert read.total("requests_total", model="a") == 7
    assert read.total("requests_total", model="b", version="1") == 50
    assert read.total("depth") == 0.5
    assert read.samples("other") == []


def test_label_values_may_hold_anything() -> None:
    read = page('requests_total{a="x,y}{\\"z\\"",b="back\\\\slash",c="two\\nlines",} 1\n')
    [(labels, value)] = read.samples("requests_total")
    assert labels == {"a": 'x,y}{"z"', "b": "back\\slash", "c": "two\nlines"}
    assert value == 1


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("<!doctype html><html>sign in</html>\n", "web page"),
        ("\n  <html>\n", "web page"),
        ("", "empty"),
        ("\n\n", "empty"),
        ('requests_total{model="a"} 12', "cut off"),
        ('requests_total{model="a"} 1\nrequests_total{mod\n', "no metric"),
        ('{"error": "no"}\n', "no metric"),
        ("requests_total twelve\n", "no number"),
    ],
)
def test_what_is_not_a_whole_page_of_metrics_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(Unreadable, match=reason):
        page(text)


@pytest.mark.parametrize("value", ["NaN", "Nan", "+Inf", "-Inf", "-1"])
def test_a_value_that_no_counter_can_have_is_refused_where_it_is_asked_for(value: str) -> None:
    read = page(f"requests_total {value}\ndepth 1\n")
    with pytest.raises(Unreadable, match="requests_total"):
        read.total("requests_total")
    with pytest.raises(Unreadable):
        read.total_or_zero("requests_total")
    with pytest.raises(Unreadable):
        read.total_or_none(["requests_total"])
    assert read.total("depth") == 1


def test_a_missing_sample_is_an_error_a_zero_or_nothing_as_the_caller_says() -> None:
    read = page("depth 1\n")
    with pytest.raises(Unreadable, match="no requests_total for a"):
        read.total("requests_total", model="a")
    assert read.total_or_zero("requests_total") == 0
    assert read.total_or_none(["requests_total"]) is None
    assert read.total_or_none(["requests_total", "depth"]) == 1


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(Unreadable):
        assert page(text).samples("never wanted") == []


@given(st.text(max_size=30), st.floats(min_value=0, allow_infinity=False, allow_nan=False))
def test_every_label_value_and_number_is_read_back(label: str, value: float) -> None:
    escaped = label.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    [(labels, read)] = page(f'requests_total{{name="{escaped}"}} {value!r}\n').samples("requests_total")
    assert labels == {"name": label}
    assert math.isclose(read, value)


def test_a_line_of_megabytes_is_refused_before_it_is_matched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotuner.instruments.exposition.LINE", None)
    with pytest.raises(Unreadable, match="a line of 2,000,013 characters: 'depth"):
        page(f'depth{{n="{"x" * 2_000_000}"}} 1\n')

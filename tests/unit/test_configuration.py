"""A configuration has one spelling, and a fingerprint that stands for its meaning."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotuner.domain.configuration import (
    Configuration,
    fingerprint,
    misshapen_field,
    read_configuration,
    with_configuration,
)
from autotuner.errors import InvalidInput, Refused

READ_BACK: dict[str, Any] = json.loads(Path(__file__).with_name("triton_read_back.json").read_text())
INCUMBENT = Configuration(0, (4, 8), 1, 32)


def with_batcher(**fields: object) -> dict[str, Any]:
    config = copy.deepcopy(READ_BACK)
    config["dynamic_batching"].update(fields)
    return config


configurations = st.builds(
    lambda delay, count, largest, sizes: Configuration(
        delay, tuple(size for size in sizes if size <= largest), count, largest
    ),
    st.integers(0, 60_000_000),
    st.integers(1, 8),
    st.integers(1, 64),
    st.lists(st.integers(1, 64), max_size=4),
)


def test_the_tuned_fields_are_read_from_what_triton_says() -> None:
    assert read_configuration(READ_BACK) == INCUMBENT
    assert read_configuration(with_batcher(max_queue_delay_microseconds="5000")).queue_delay_seconds == 0.005


@given(configurations)
def test_what_is_written_is_read_and_nothing_else_is_touched(wanted: Configuration) -> None:
    written = with_configuration(READ_BACK, wanted)
    assert read_configuration(written) == wanted
    assert with_configuration(written, INCUMBENT) == READ_BACK


@given(configurations, configurations)
def test_fingerprints_are_equal_exactly_when_configurations_are(
    one: Configuration, other: Configuration
) -> None:
    same = fingerprint(with_configuration(READ_BACK, one)) == fingerprint(
        with_configuration(READ_BACK, other)
    )
    assert same == (one == other)


def test_sizes_are_a_set_and_the_largest_alone_means_none() -> None:
    assert Configuration(0, (8, 4, 8), 1, 32).preferred_batch_size == (4, 8)
    assert Configuration(0, (32,), 1, 32) == Configuration(0, (), 1, 32)
    assert Configuration(0, (16, 32), 1, 32).preferred_batch_size == (16, 32)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"preferred_batch_size": []}, {"preferred_batch_size": [32]}),
        ({"preferred_batch_size": [8, 4]}, {"preferred_batch_size": [4, 4, 8]}),
        ({"max_queue_delay_microseconds": 5000}, {"max_queue_delay_microseconds": "5000"}),
        ({"priority_levels": 0}, {"priority_levels": "0"}),
    ],
)
def test_spellings_that_mean_the_same_have_one_fingerprint(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    assert fingerprint(with_batcher(**one)) == fingerprint(with_batcher(**other))


@pytest.mark.parametrize(
    ("one", "other"), [("7", "007"), ("1", "one"), ("5", "-5"), ("2", "²"), ("-", "--5")]
)
def test_texts_that_only_look_alike_have_two(one: str, other: str) -> None:
    first, second = copy.deepcopy(READ_BACK), copy.deepcopy(READ_BACK)
    first["parameters"]["curve"], second["parameters"]["curve"] = (
        {"string_value": one},
        {"string_value": other},
    )
    assert fingerprint(first) != fingerprint(second)


def test_any_field_is_part_of_the_fingerprint() -> None:
    changed = [
        with_batcher(preserve_ordering=True),
        READ_BACK | {"default_model_filename": "other.py"},
        READ_BACK | {"instance_group": [READ_BACK["instance_group"][0] | {"kind": "KIND_GPU"}]},
        READ_BACK | {"max_batch_size": 31},
    ]
    assert len({fingerprint(config) for config in [READ_BACK, *changed]}) == 1 + len(changed)


@pytest.mark.parametrize(
    "change",
    [
        {"dynamic_batching": None},
        {"sequence_batching": {"direct": {}}},
        {"ensemble_scheduling": {"step": []}},
        {"model_transaction_policy": {"decoupled": True}},
        {"instance_group": []},
        {"instance_group": READ_BACK["instance_group"] * 2},
    ],
)
def test_a_model_whose_batcher_is_not_tuned_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(Refused):
        read_configuration(READ_BACK | change)


@pytest.mark.parametrize(
    ("delay", "sizes", "count", "largest", "field"),
    [
        (-1, (), 1, 8, "max_queue_delay_microseconds"),
        (60_000_001, (), 1, 8, "max_queue_delay_microseconds"),
        (0, (9,), 1, 8, "preferred_batch_size"),
        (0, (0,), 1, 8, "preferred_batch_size"),
        (0, (), 0, 8, "instance_count"),
        (0, (), 1, 0, "max_batch_size"),
    ],
)
def test_a_value_that_triton_refuses_or_silently_changes_is_refused_by_name(
    delay: int, sizes: tuple[int, ...], count: int, largest: int, field: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        Configuration(delay, sizes, count, largest)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({"dynamic_batching": []}, "dynamic_batching"),
        ({"model_transaction_policy": None}, "model_transaction_policy"),
        ({"ensemble_scheduling": 5}, "ensemble_scheduling"),
        ({"ensemble_scheduling": {"step": ["a"]}}, "ensemble_scheduling"),
        ({"instance_group": None}, "instance_group"),
        ({"instance_group": [{"count": "x"}]}, "instance_group"),
        ({"max_batch_size": "many"}, "max_batch_size"),
        ({"max_batch_size": float("nan")}, "max_batch_size"),
        ({"dynamic_batching": {"preferred_batch_size": None}}, "preferred_batch_size"),
        ({"dynamic_batching": {"preferred_batch_size": [True]}}, "preferred_batch_size"),
        ({"dynamic_batching": {"max_queue_delay_microseconds": "9" * 5000}}, "max_queue_delay_microseconds"),
    ],
)
def test_a_field_in_a_form_that_triton_never_gives_is_named(config: dict[str, Any], field: str) -> None:
    assert misshapen_field({**READ_BACK, **config}) == field


@pytest.mark.parametrize("config", [READ_BACK, {}, with_batcher(max_queue_delay_microseconds="5000")])
def test_what_triton_says_has_its_form(config: dict[str, Any]) -> None:
    assert misshapen_field(config) == ""

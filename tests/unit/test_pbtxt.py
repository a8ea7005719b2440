"""The text form of a configuration means the same as its JSON, checked against Triton's own schema."""

from __future__ import annotations

import importlib.util
import json
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import tritonclient

from autotuner.domain.configuration import Configuration, fingerprint, read_configuration, with_configuration
from autotuner.domain.pbtxt import (
    ENUM_FIELDS,
    NUMBER_MAPS,
    STRING_MAPS,
    TEXT_FIELDS,
    config_pbtxt,
    patch,
)
from autotuner.errors import InvalidInput

json_format: Any = pytest.importorskip("google.protobuf.json_format")
text_format: Any = pytest.importorskip("google.protobuf.text_format")

READ_BACK: dict[str, Any] = json.loads(Path(__file__).with_name("triton_read_back.json").read_text())
TYPE_MESSAGE, TYPE_STRING, TYPE_ENUM = 11, 9, 14

EVERYTHING: dict[str, Any] = {
    **READ_BACK,
    "version_policy": {"specific": {"versions": ["1", "3"]}},
    "optimization": {
        "priority": "PRIORITY_MAX",
        "cuda": {
            "graphs": True,
            "graph_spec": [{"batch_size": 1, "input": {"IN": {"dim": ["3", "-1"]}}}],
        },
        "execution_accelerators": {"gpu_execution_accelerator": [{"name": "trt", "parameters": {"a": "1"}}]},
    },
    "dynamic_batching": {
        "preferred_batch_size": [4],
        "max_queue_delay_microseconds": "12345678901",
        "priority_levels": "2",
        "default_queue_policy": {
            "timeout_action": "DELAY",
            "default_timeout_microseconds": "7",
            "max_queue_size": 3,
        },
        "priority_queue_policy": {"1": {"allow_timeout_override": True}, "2": {}},
    },
    "parameters": {
        "007": {"string_value": "42"},
        "text": {"string_value": 'quo"te \\ back\nline ü {}'},
        "empty": {"string_value": ""},
    },
    "model_warmup": [
        {
            "name": "w",
            "batch_size": 1,
            "inputs": {"IN": {"data_type": "TYPE_FP32", "dims": ["3"], "zero_data": True}},
        }
    ],
    "metric_tags": {"team": "a"},
    "cc_model_filenames": {"7.5": "model75"},
    "instance_group": [
        {"count": 2, "kind": "KIND_GPU", "gpus": [0, 1], "profile": ["1"], "host_policy": "h"}
    ],
}


@pytest.fixture(scope="module")
def schema() -> ModuleType:
    """Triton's protobuf schema, loaded by itself: its package wants gRPC."""
    path = Path(tritonclient.__path__[0]) / "grpc" / "model_config_pb2.py"
    specification = importlib.util.spec_from_file_location("model_config_pb2", path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def messages(descriptor: Any, seen: dict[str, Any]) -> dict[str, Any]:
    """Every message type under one, by full name."""
    if descriptor.full_name not in seen:
        seen[descriptor.full_name] = descriptor
        for field in descriptor.fields:
            if field.message_type is not None:
                messages(field.message_type, seen)
    return seen


@pytest.mark.parametrize("config", [READ_BACK, EVERYTHING], ids=["read back", "everything"])
def test_the_text_means_what_the_json_means(schema: ModuleType, config: dict[str, Any]) -> None:
    expected = json_format.ParseDict(config, schema.ModelConfig())
    assert text_format.Parse(config_pbtxt(config), schema.ModelConfig()) == expected


def test_the_lists_of_fields_are_those_of_the_schema(schema: ModuleType) -> None:
    found = messages(schema.ModelConfig.DESCRIPTOR, {}).values()
    entries = {m.full_name for m in found if m.GetOptions().map_entry}
    fields = [field for m in found if m.full_name not in entries for field in m.fields]
    maps = [f for f in fields if f.message_type is not None and f.message_type.full_name in entries]
    key_is_text = {f.name: f.message_type.fields_by_name["key"].type == TYPE_STRING for f in maps}
    assert {f.name for f in fields if f.type == TYPE_ENUM} == ENUM_FIELDS
    assert {f.name for f in fields if f.type == TYPE_STRING} == TEXT_FIELDS
    assert {name for name, text in key_is_text.items() if text} == STRING_MAPS
    assert {name for name, text in key_is_text.items() if not text} == NUMBER_MAPS


def test_fields_at_their_default_are_left_out() -> None:
    text = config_pbtxt({"name": "m", "platform": "", "max_batch_size": 0, "input": [], "metric_tags": {}})
    assert text == 'name: "m"\n'


def test_a_name_that_is_no_field_is_refused() -> None:
    with pytest.raises(InvalidInput, match="maxBatchSize"):
        config_pbtxt({"maxBatchSize": 8})


def test_a_patch_changes_the_tuned_fields_and_nothing_else(tmp_path: Path) -> None:
    old = read_configuration(READ_BACK)
    new = Configuration(5000, (), 2, old.max_batch_size)
    changes = patch(READ_BACK, new, "models/m/config.pbtxt")
    marked = [
        line for line in changes.splitlines() if line[0] in "+-" and not line.startswith(("+++", "---"))
    ]
    assert marked == [
        "-  preferred_batch_size: [4, 8]",
        "+  max_queue_delay_microseconds: 5000",
        "-  count: 1",
        "+  count: 2",
    ]
    file = tmp_path / "models" / "m" / "config.pbtxt"
    file.parent.mkdir(parents=True)
    file.write_text(config_pbtxt(READ_BACK))
    subprocess.run(["git", "apply", "-"], input=changes, text=True, cwd=tmp_path, check=True)
    assert file.read_text() == config_pbtxt(with_configuration(READ_BACK, new))


def test_nothing_to_change_is_an_empty_patch() -> None:
    assert patch(READ_BACK, read_configuration(READ_BACK)) == ""


def test_the_text_of_a_configuration_has_its_meaning_not_its_spelling(schema: ModuleType) -> None:
    wanted = with_configuration(READ_BACK, Configuration(5000, (2, 8), 3, 16))
    parsed = text_format.Parse(config_pbtxt(wanted), schema.ModelConfig())
    again = json_format.MessageToDict(
        parsed, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    assert fingerprint(again["dynamic_batching"]) == fingerprint(wanted["dynamic_batching"])
    assert read_configuration(again) == read_configuration(wanted)

"""One Triton configuration: the few fields that are tuned, and how they sit in a complete model configuration.

A load with an override replaces the server's whole configuration, so an override is always the complete
configuration read from that server with only the tuned fields changed (guards rule 5: only our own fields).
"""

from __future__ import annotations

import copy
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from autotuner.errors import InvalidInput, Refused

ModelConfig = Mapping[str, Any]
"""A complete model configuration as Triton's JSON gives it (64-bit integers may arrive as strings)."""

MAX_DELAY_MICROSECONDS = 60_000_000
"""A minute: no inference request waits longer on purpose; guards against a unit mistake."""

WRITTEN_NUMBER = re.compile(r"0|-?[1-9][0-9]*")
"""How JSON spells a 64-bit integer inside a string; `007` is a text, not a number."""

LONGEST_NUMBER = 20
"""Characters of the longest 64-bit integer, its sign included."""


@dataclass(frozen=True, order=True)
class Configuration:
    """The tuned fields of one model configuration, in canonical form.

    `preferred_batch_size` is a sorted set; empty means the same to Triton as `(max_batch_size,)`, and is
    stored as empty so that one configuration has one spelling. Raises InvalidInput for values that cannot load.
    """

    max_queue_delay_microseconds: int
    preferred_batch_size: tuple[int, ...]
    instance_count: int
    max_batch_size: int

    def __post_init__(self) -> None:
        _whole("max_queue_delay_microseconds", self.max_queue_delay_microseconds, 0, MAX_DELAY_MICROSECONDS)
        _whole("max_batch_size", self.max_batch_size, 1, 1_000_000)
        _whole("instance_count", self.instance_count, 1, 1_000)
        for size in self.preferred_batch_size:
            _whole("preferred_batch_size", size, 1, self.max_batch_size)
        sizes = tuple(sorted(set(self.preferred_batch_size)))
        object.__setattr__(self, "preferred_batch_size", () if sizes == (self.max_batch_size,) else sizes)

    @property
    def queue_delay_seconds(self) -> float:
        """The configured maximum queue delay, in seconds."""
        return self.max_queue_delay_microseconds / 1e6

    def describe(self) -> str:
        """A short spelling for people: `delay 5 ms, preferred 4+8, 2 instances`."""
        preferred = "+".join(map(str, self.preferred_batch_size)) or "none"
        plural = "" if self.instance_count == 1 else "s"
        delay = f"{self.max_queue_delay_microseconds / 1000:g} ms"
        return f"delay {delay}, preferred {preferred}, {self.instance_count} instance{plural}"

    def complexity(self) -> tuple[int, int, int]:
        """Orders configurations from simple to elaborate: fewer preferred sizes, no delay, fewer instances."""
        return (
            self.instance_count,
            len(self.preferred_batch_size),
            int(self.max_queue_delay_microseconds > 0),
        )


def _whole(field: str, value: object, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InvalidInput(field, value, f"a whole number from {low} to {high}")


def misshapen_field(config: ModelConfig) -> str:
    """Return the first field whose form Triton never gives it, of those that are read here; empty when there is none.

    Whoever brings a configuration in asks this once, so that nobody else has to be prepared for any form.
    """
    sections = (
        "dynamic_batching",
        "sequence_batching",
        "ensemble_scheduling",
        "model_transaction_policy",
        "response_cache",
    )
    for name in sections:
        if not isinstance(config.get(name, {}), Mapping):
            return name
    batcher, groups = config.get("dynamic_batching", {}), config.get("instance_group", [])
    if not _listed(groups, Mapping):
        return "instance_group"
    if not _listed(config.get("ensemble_scheduling", {}).get("step", []), Mapping):
        return "ensemble_scheduling"
    if not _listed(batcher.get("preferred_batch_size", []), int | str):
        return "preferred_batch_size"
    numbers = {
        "max_batch_size": [config.get("max_batch_size", 0)],
        "max_queue_delay_microseconds": [batcher.get("max_queue_delay_microseconds", 0)],
        "preferred_batch_size": batcher.get("preferred_batch_size", []),
        "instance_group": [group.get("count", 1) for group in groups],
    }
    return next((name for name, values in numbers.items() if not all(map(_is_number, values))), "")


def _listed(value: object, kind: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(item, kind) for item in value)


def _is_number(value: object) -> bool:
    """Whether this is a whole number of 64 bits, or spells one."""
    if isinstance(value, str):
        return len(value) <= LONGEST_NUMBER and WRITTEN_NUMBER.fullmatch(value) is not None
    return isinstance(value, int) and not isinstance(value, bool)


def read_configuration(config: ModelConfig) -> Configuration:
    """Return the tuned fields of a complete model configuration.

    Raises Refused when the model has no dynamic batcher or more than one instance group: what cannot be
    expressed as a `Configuration` is not tuned.
    """
    if config.get("sequence_batching") or config.get("ensemble_scheduling"):
        raise Refused(
            "the model uses sequence batching or is an ensemble: its batcher is not tuned by this service"
        )
    if config.get("model_transaction_policy", {}).get("decoupled"):
        raise Refused(
            "the model is decoupled (it may answer a request many times): use continuous batching instead"
        )
    batcher = config.get("dynamic_batching")
    if batcher is None:
        raise Refused("the model has no dynamic_batching section: add an empty one to its config.pbtxt first")
    return Configuration(
        max_queue_delay_microseconds=int(batcher.get("max_queue_delay_microseconds", 0)),
        preferred_batch_size=tuple(int(size) for size in batcher.get("preferred_batch_size", [])),
        instance_count=int(_instance_group(config).get("count", 1)),
        max_batch_size=int(config.get("max_batch_size", 0)),
    )


def _instance_group(config: ModelConfig) -> Mapping[str, Any]:
    groups = config.get("instance_group", [])
    if len(groups) != 1:
        raise Refused(f"the model has {len(groups)} instance groups: exactly one can be tuned")
    group: Mapping[str, Any] = groups[0]
    return group


def with_configuration(config: ModelConfig, configuration: Configuration) -> dict[str, Any]:
    """Return a complete copy of `config` in which only the tuned fields are changed to `configuration`."""
    if read_configuration(config) == configuration:
        return copy.deepcopy(dict(config))
    changed = copy.deepcopy(dict(config))
    batcher = changed["dynamic_batching"]
    batcher["max_queue_delay_microseconds"] = configuration.max_queue_delay_microseconds
    batcher["preferred_batch_size"] = list(configuration.preferred_batch_size)
    changed["instance_group"][0]["count"] = configuration.instance_count
    changed["max_batch_size"] = configuration.max_batch_size
    return changed


def fingerprint(config: ModelConfig) -> str:
    """Return a digest of everything a model configuration means; equal digests mean equal behaviour.

    Numbers and numeric strings are the same (Triton prints 64-bit integers as strings), and the two
    spellings of "no preferred size" are the same.
    """
    plain = _normal(config)
    batcher = plain.get("dynamic_batching")
    if isinstance(batcher, dict):
        sizes = sorted({int(size) for size in batcher.get("preferred_batch_size", [])})
        batcher["preferred_batch_size"] = [] if sizes == [int(plain.get("max_batch_size", 0))] else sizes
        batcher["max_queue_delay_microseconds"] = int(batcher.get("max_queue_delay_microseconds", 0))
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@lru_cache(maxsize=16_384)
def configured_fingerprint(config_text: str, configuration: Configuration) -> str:
    """Return what the complete configuration `config_text` (JSON) means with the tuned fields of `configuration`.

    Every look at a study asks this of every replica, with the same answer: it is remembered.
    """
    return fingerprint(with_configuration(json.loads(config_text), configuration))


def _normal(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _normal(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_normal(item) for item in value]
    if isinstance(value, str) and WRITTEN_NUMBER.fullmatch(value):
        return int(value)
    return value

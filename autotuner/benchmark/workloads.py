"""Workloads of the benchmark: what the model costs, what it is promised, and what runs today.

One workload a file, written and checked like every file of this project. Six come with the package; any number of
others are drawn from a seed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, Self

import numpy as np
import yaml
from pydantic import Field, StrictInt, model_validator

from autotuner.errors import InvalidInput
from autotuner.sections import NAME_PATTERN, Section, parse_yaml, read_file, validated

SUFFIX = ".yaml"
BUILTIN = "builtin"
RANDOM = re.compile(r"^random:(\d+):(\d+)$")
ALLOWED = "a folder of workload files, builtin, or random:SEED:NUMBER with a number from 1 to 200"
MOST_RANDOM = 200

RATES = (40.0, 2500.0)
"""Rates of random workloads, in requests per second."""

MISTAKEN_SHARE = 0.75


class BenchWorkload(Section):
    """One workload. A batch of n items takes fixed_ms + n · item_ms milliseconds on an idle device.

    interference: each other instance that is busy makes a batch slower by this share. requests_per_second: today's
    rate on one replica. preferred_batch_size: the incumbent's; it has no delay and one instance.
    """

    name: str = Field(pattern=NAME_PATTERN, description="lower-case letters, digits and hyphens")
    fixed_ms: float = Field(gt=0, le=10_000, description="milliseconds above 0, up to 10000")
    item_ms: float = Field(gt=0, le=10_000, description="milliseconds above 0, up to 10000")
    interference: float = Field(ge=0, le=1, description="a share, 0 to 1")
    ceiling_ms: float = Field(gt=0, le=600_000, description="milliseconds above 0, up to 600000")
    max_instances: int = Field(ge=1, le=16, description="a whole number, 1 to 16")
    max_batch_size: int = Field(ge=2, le=256, description="a whole number, 2 to 256")
    requests_per_second: float = Field(gt=0, le=20_000, description="a number above 0, up to 20000")
    preferred_batch_size: tuple[StrictInt, ...] = Field(
        default=(), strict=False, description="a list of whole batch sizes, 1 to max_batch_size; [] for none"
    )
    overhead_ms: float = Field(default=0.8, ge=0, le=1000, description="milliseconds, 0 to 1000")

    @model_validator(mode="after")
    def _checked_together(self) -> Self:
        for size in self.preferred_batch_size:
            if not 1 <= size <= self.max_batch_size:
                allowed = f"whole batch sizes, 1 to max_batch_size, {self.max_batch_size}"
                raise InvalidInput("preferred_batch_size", size, allowed)
        alone_ms = self.fixed_ms + self.item_ms + self.overhead_ms
        if self.ceiling_ms < 1.5 * alone_ms:
            allowed = f"at least {1.5 * alone_ms:g} ms: one request alone takes {alone_ms:g} ms"
            raise InvalidInput("ceiling_ms", self.ceiling_ms, allowed)
        return self


def load(source: str) -> tuple[BenchWorkload, ...]:
    """Return the workloads that a folder, `builtin` or `random:SEED:NUMBER` means. Raises InvalidInput."""
    if source == BUILTIN:
        return builtin()
    if drawn := RANDOM.match(source):
        seed, number = int(drawn[1]), int(drawn[2])
        if not 1 <= number <= MOST_RANDOM:
            raise InvalidInput("--workloads", source, ALLOWED)
        return random_workloads(seed, number)
    folder = Path(source)
    found = sorted(folder.glob(f"*{SUFFIX}")) if folder.is_dir() else []
    if not found:
        raise InvalidInput("--workloads", source, ALLOWED)
    return _distinct([parse(read_file(path, "workload"), str(path)) for path in found])


def builtin() -> tuple[BenchWorkload, ...]:
    """Return the six workloads that come with the package."""
    folder = files("autotuner.benchmark").joinpath("workloads")
    entries = sorted((e for e in folder.iterdir() if e.name.endswith(SUFFIX)), key=lambda entry: entry.name)
    return _distinct([parse(entry.read_text("utf-8"), entry.name) for entry in entries])


def parse(text: str, name: str) -> BenchWorkload:
    """Return the workload of a file's text. name: where it came from. Raises InvalidInput."""
    return validated(BenchWorkload, parse_yaml(text, "workload", name), "workload")


def as_yaml(workload: BenchWorkload) -> str:
    """Return the workload as the text of a file that `parse` reads."""
    content: dict[str, Any] = workload.model_dump(mode="json")
    return yaml.safe_dump(content, sort_keys=False, default_flow_style=None)


def random_workloads(seed: int, number: int) -> tuple[BenchWorkload, ...]:
    """Return workloads drawn from ranges that span the six; the same seed gives the same ones, on every machine."""
    dice = np.random.default_rng(np.random.SeedSequence([seed, 0xBA7C]))
    return tuple(_random(dice, f"random-{seed}-{index + 1:02}") for index in range(number))


def _random(dice: np.random.Generator, name: str) -> BenchWorkload:
    """Draw sizes and ratios first, then a rate; draw anew where that is outside of what the six span.

    The rate is a share of what one instance carries in batches of the size whose compute takes a third of the ceiling:
    about where the six lie. Three incumbents in four prefer a size that caps them well above that rate, where there
    is one.
    """
    while True:
        most = int(dice.choice([16, 32, 64]))
        fixed = float(np.exp(dice.uniform(math.log(1.0), math.log(35.0))))
        item = fixed * float(np.exp(dice.uniform(math.log(0.02), math.log(0.5))))
        ceiling = (fixed + item) * float(np.exp(dice.uniform(math.log(4.5), math.log(24.0))))
        usable = min(most, max(1.0, (ceiling / 3.0 - fixed) / item))
        rate = usable / (fixed + usable * item) * 1e3 * float(dice.uniform(0.3, 0.55))
        mistaken = dice.uniform() < MISTAKEN_SHARE
        if RATES[0] <= rate <= RATES[1]:
            break
    enough = [
        2**k for k in range(1, most.bit_length() - 1) if 2**k / (fixed + 2**k * item) * 1e3 > 2.0 * rate
    ]
    return BenchWorkload(
        name=name,
        fixed_ms=_rounded(fixed),
        item_ms=_rounded(item),
        interference=round(float(dice.uniform(0.15, 0.8)), 2),
        ceiling_ms=_rounded(ceiling),
        max_instances=int(dice.integers(2, 9)),
        max_batch_size=most,
        requests_per_second=_rounded(rate),
        preferred_batch_size=tuple(enough[:1]) if mistaken else (),
    )


def _rounded(value: float) -> float:
    """Three digits that matter."""
    return float(f"{value:.3g}")


def _distinct(workloads: Sequence[BenchWorkload]) -> tuple[BenchWorkload, ...]:
    names = [workload.name for workload in workloads]
    for name in names:
        if names.count(name) > 1:
            raise InvalidInput("name", name, "a name that no other workload of the folder has")
    return tuple(workloads)

"""What is built for an installation without a checkout holds everything the program reads beside its code."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).parents[2]
MIGRATIONS = "autotuner/adapters/postgres/migrations"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[zipfile.ZipFile]:
    """A wheel built from this checkout."""
    builder = WheelBuilder(str(ROOT))
    (built,) = builder.build(directory=str(tmp_path_factory.mktemp("wheel")), versions=["standard"])
    with zipfile.ZipFile(built) as opened:
        yield opened


def _files(folder: Path) -> set[str]:
    found = {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}
    return {path.as_posix() for path in found if "__pycache__" not in path.parts}


def test_every_file_of_the_package_is_in_the_wheel(wheel: zipfile.ZipFile) -> None:
    names = set(wheel.namelist())

    assert {f"autotuner/{name}" for name in _files(ROOT / "autotuner")} - names == set()


def test_the_migrations_are_inside_the_package_and_nowhere_else(wheel: zipfile.ZipFile) -> None:
    names = wheel.namelist()

    assert {name for name in names if "migrations" in name} == {
        f"{MIGRATIONS}/{name}" for name in _files(ROOT / "migrations")
    }


def test_the_attribution_of_the_trace_travels_as_a_licence(wheel: zipfile.ZipFile) -> None:
    (metadata,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    told = wheel.read(metadata).decode()

    assert "License-Expression: Apache-2.0 AND CC-BY-4.0" in told
    assert "License-File: autotuner/sandbox/traces/README.md" in told

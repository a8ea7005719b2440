"""One control plane for the whole run, a namespace for each test that wants one."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kubernetes.plane import ControlPlane, NoGo, program, version
from tests.kubernetes.schemas import install_schemas


@pytest.fixture(scope="session")
def control_plane() -> Iterator[ControlPlane]:
    """A real control plane with the schemas of the routes installed."""
    try:
        built = program()
    except NoGo as reason:
        if os.environ.get("CI"):
            pytest.fail(str(reason))
        pytest.skip(str(reason))
    folder = tempfile.TemporaryDirectory(prefix="autotuner-kubernetes-")
    with folder as name, ControlPlane(Path(name), built) as running:
        assert running.api.get("/version")["gitVersion"] == version()
        install_schemas(running.api)
        yield running

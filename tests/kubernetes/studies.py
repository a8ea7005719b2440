"""Studies of a town, and the product's own processes that carry them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from pydantic import SecretStr

from autotuner.bootstrap import application, upgrade_database
from autotuner.domain.dispersion import REHEARSAL_LIMIT
from autotuner.domain.registration import Wanted
from autotuner.operations import start_study
from autotuner.settings import Settings
from autotuner.target_file import load_target_file
from autotuner.targets import Asked, register
from tests.kubernetes.plane import ControlPlane
from tests.kubernetes.town import Town

LIMIT_SECONDS = 420


def settings(control_plane: ControlPlane, database: str) -> dict[str, str]:
    """Settings of every process of the product, as environment variables."""
    return {"AUTOTUNER_DATABASE_URL": database, "AUTOTUNER_KUBECONFIG": str(control_plane.kubeconfig)}


def started(town: Town, database: str, **study: Any) -> str:
    """Register the town's target and start a study of it; return its id.

    As in a rehearsal the dispersion factor is limited: without a limit a level needs minutes of traffic.
    """
    asked = load_target_file(town.write_target(**study))
    chosen = Settings(database_url=SecretStr(database))
    upgrade_database(chosen)
    with application(chosen) as app:
        defaults = replace(asked.study.defaults(), max_dispersion=REHEARSAL_LIMIT)
        wanted = Wanted(asked.target(), asked.budget("test"), defaults)
        slo = register(app.registry, app.clock, wanted, Asked("test", "a rehearsal")).slo
        return start_study(app.store, app.clock, defaults.plan(asked.target(), slo), "test").id


def command(environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    """Run one command of the product to its end."""
    return subprocess.run(
        [sys.executable, "-m", "autotuner", *words],
        env=_whole(environment),
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )


def _whole(environment: dict[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AUTOTUNER_")}
    return {**kept, **environment, "COLUMNS": "200"}


@contextmanager
def worker(environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A worker that runs until the test kills it, or the context ends."""
    process = subprocess.Popen(
        [sys.executable, "-m", "autotuner", "worker"],
        env=_whole(environment),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()

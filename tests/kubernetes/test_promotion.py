"""The promise for Kubernetes: a study of a Deployment behind an HTTPRoute leaves nothing behind but the winner."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from autotuner.bootstrap import application, upgrade_database
from autotuner.domain.configuration import read_configuration
from autotuner.domain.registration import Wanted
from autotuner.domain.study import Outcome, Study, TrialKind
from autotuner.operations import start_study
from autotuner.sandbox.stack import BRISK_DISPERSION
from autotuner.settings import Settings
from autotuner.target_file import load_target_file
from autotuner.targets import Asked, register
from tests.kubernetes.plane import ControlPlane
from tests.kubernetes.town import CONFIG, Town
from tests.postgres_server import PostgresServer

LIMIT_SECONDS = 420


@pytest.fixture
def town(control_plane: ControlPlane, tmp_path: Path) -> Iterator[Town]:
    with Town(control_plane.api, tmp_path).running() as running:
        yield running


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
        defaults = replace(asked.study.defaults(), max_dispersion=BRISK_DISPERSION)
        wanted = Wanted(asked.target(), asked.budget("test"), defaults)
        slo = register(app.registry, app.clock, wanted, Asked("test", "a rehearsal")).slo
        return start_study(app.store, app.clock, defaults.plan(asked.target(), slo), "test").id


def command(environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    """Run one command of the product to its end."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AUTOTUNER_")}
    return subprocess.run(
        [sys.executable, "-m", "autotuner", *words],
        env={**kept, **environment, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )


def test_one_worker_tunes_confirms_and_promotes_and_only_the_configuration_is_left_changed(
    town: Town, control_plane: ControlPlane, postgres_server: PostgresServer
) -> None:
    before = town.snapshot()
    with postgres_server.database() as database:
        ended, told = _studied(town, control_plane, database)
        if ended.outcome is Outcome.INCONCLUSIVE:
            # A machine that is busy at the wrong moment gives no evidence: an honest answer, asked for once more.
            assert town.snapshot() == before
            ended, told = _studied(town, control_plane, database)
    assert ended.outcome is Outcome.PROMOTED, told
    stages = [trial.replicas for trial in ended.trials if trial.kind is TrialKind.STAGE]
    assert stages == [("stable-0",), ("stable-1",)]

    after = town.snapshot()
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    assert changed == {f"ConfigMap/{CONFIG}"}
    text = after[f"ConfigMap/{CONFIG}"]["data"]["config.pbtxt"]
    assert text != before[f"ConfigMap/{CONFIG}"]["data"]["config.pbtxt"]
    assert _served(town) == [_served(town)[0]] * 2
    assert town.kubelet.faults == []


def _studied(town: Town, control_plane: ControlPlane, database: str) -> tuple[Study, str]:
    """Carry one study to its end with a worker; return it, and what the worker said."""
    environment = settings(control_plane, database)
    study = started(town, database)
    worked = command(environment, "worker", "--until-idle")
    assert worked.returncode == 0, worked.stderr[-6000:]
    replayed = command(environment, "replay", study)
    assert replayed.returncode == 0, replayed.stdout
    with application(Settings(database_url=SecretStr(database))) as app:
        return app.store.study(study), worked.stderr[-6000:]


def _served(town: Town) -> list[object]:
    servers = [town.kubelet.pod(pod["metadata"]["name"]).server for pod in town.ready()]
    return [read_configuration(server.configuration()) for server in servers if server is not None]

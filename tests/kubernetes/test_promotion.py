"""The promise for Kubernetes: a study of a Deployment behind an HTTPRoute leaves nothing behind but the winner."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import SecretStr

from autotuner.bootstrap import application
from autotuner.domain.configuration import read_configuration
from autotuner.domain.study import Outcome, Study, TrialKind
from autotuner.settings import Settings
from tests.cluster.team import CONFIG
from tests.kubernetes.plane import ControlPlane
from tests.kubernetes.studies import command, settings, started
from tests.kubernetes.town import Town
from tests.postgres_server import PostgresServer


@pytest.fixture
def town(control_plane: ControlPlane, tmp_path: Path) -> Iterator[Town]:
    with Town(control_plane.api, tmp_path).running() as running:
        yield running


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

"""The promise for Kubernetes: a study of a Deployment behind an HTTPRoute leaves nothing behind but the winner."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import SecretStr

from autotuner.bootstrap import application
from autotuner.domain.configuration import read_configuration
from autotuner.domain.study import Outcome, Study, TrialKind
from autotuner.settings import Settings
from tests.cluster.team import CONFIG
from tests.kubernetes.account import installed
from tests.kubernetes.plane import ControlPlane
from tests.kubernetes.studies import command
from tests.kubernetes.town import Town, a_workload
from tests.postgres_server import PostgresServer


@pytest.fixture
def town(control_plane: ControlPlane, tmp_path: Path) -> Iterator[Town]:
    with Town(control_plane.api, tmp_path, a_workload(preferred=[4])).running() as running:
        yield running


def test_one_command_tunes_confirms_and_promotes_and_only_the_configuration_is_left_changed(
    town: Town, control_plane: ControlPlane, postgres_server: PostgresServer, tmp_path: Path
) -> None:
    """Under the chart's service account, with users' traffic through the data plane."""
    account = installed(control_plane, tmp_path)
    before = town.snapshot()
    with postgres_server.database() as database:
        shell = {"AUTOTUNER_DATABASE_URL": database, "AUTOTUNER_KUBECONFIG": str(account.kubeconfig)}
        assert command(shell, "db", "upgrade").returncode == 0
        ended, told = _studied(town, shell)
        if ended.outcome is Outcome.INCONCLUSIVE:
            # A machine that is busy at the wrong moment gives no evidence: an honest answer, asked for once more.
            assert town.snapshot() == before
            ended, told = _studied(town, shell)
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


def _studied(town: Town, shell: dict[str, str]) -> tuple[Study, str]:
    """Carry one study to its end with one command; return it, and what the command said."""
    tuned = command(shell, "tune", str(town.write_target()), "--rehearsal", "--json")
    told = tuned.stderr[-6000:]
    assert tuned.stdout, told
    name = json.loads(tuned.stdout.splitlines()[-1])["study"]
    replayed = command(shell, "replay", name)
    assert replayed.returncode == 0, replayed.stdout
    with application(Settings(database_url=SecretStr(shell["AUTOTUNER_DATABASE_URL"]))) as app:
        return app.store.study(name), told


def _served(town: Town) -> list[object]:
    servers = [town.kubelet.pod(pod["metadata"]["name"]).server for pod in town.ready()]
    return [read_configuration(server.configuration()) for server in servers if server is not None]

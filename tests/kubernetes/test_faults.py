"""What goes wrong under a study on a cluster: users are given back what they had, and nothing is left."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pydantic import SecretStr

from autotuner.bootstrap import application
from autotuner.domain.study import Outcome, Study
from autotuner.settings import Settings
from tests.cluster.team import APPS, CANARY, NAME, ROUTES
from tests.kubernetes.plane import ControlPlane
from tests.kubernetes.studies import command, settings, started, worker
from tests.kubernetes.town import Town, until
from tests.postgres_server import PostgresServer

APPEARS_WITHIN_SECONDS = 120


@pytest.fixture(scope="module")
def town(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    with Town(control_plane.api, tmp_path_factory.mktemp("town")).running() as running:
        yield running


def exposed(town: Town) -> bool:
    """Whether users are sent to a canary."""
    backends = town.api.get(f"{ROUTES}/{NAME}")["spec"]["rules"][0]["backendRefs"]
    return any(each["name"] == CANARY and each["weight"] > 0 for each in backends)


def as_recorded(database: str, study: str) -> Study:
    with application(Settings(database_url=SecretStr(database))) as app:
        return app.store.study(study)


def test_leaving_after_a_worker_was_killed_restores_everything_before_anything_is_uninstalled(
    town: Town, control_plane: ControlPlane, postgres_server: PostgresServer
) -> None:
    before = town.snapshot()
    with postgres_server.database() as database:
        environment = settings(control_plane, database)
        study = started(town, database)
        with worker(environment) as running:
            until(lambda: exposed(town), "users are sent to the canary", APPEARS_WITHIN_SECONDS)
            running.kill()
        assert exposed(town)
        left = command(environment, "kubernetes", "leave")
        ended = as_recorded(database, study)
    assert left.returncode == 0, left.stderr[-3000:]
    assert left.stdout.strip() == "1 studies are cancelled, 0 have not ended"
    assert ended.outcome is Outcome.ABORTED
    assert ended.canary_since is None
    assert town.snapshot() == before


def test_a_canary_that_is_killed_for_memory_and_a_rollout_by_somebody_end_restored(
    town: Town, control_plane: ControlPlane, postgres_server: PostgresServer
) -> None:
    before = town.snapshot()
    with postgres_server.database() as database:
        environment = settings(control_plane, database)
        study = started(town, database)
        with worker(environment):
            until(lambda: exposed(town), "users are sent to the canary", APPEARS_WITHIN_SECONDS)
            town.kubelet.kill_out_of_memory(CANARY)
            until(lambda: not exposed(town), "the traffic is taken off it", 30)
            note = {"spec": {"template": {"metadata": {"annotations": {"rolled": "out"}}}}}
            town.api.merge(f"{APPS}/deployments/{NAME}", note)
            until(lambda: as_recorded(database, study).outcome is not None, "the study has ended", 120)
        ended = as_recorded(database, study)
    assert ended.outcome is Outcome.ABORTED
    assert "rolled out another pod template" in ended.reason
    after = town.snapshot()
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    assert changed == {f"Deployment/{NAME}"}

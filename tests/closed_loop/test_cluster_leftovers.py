"""What an earlier release left half done, and a route that cannot be given back while its canary still stands."""

from __future__ import annotations

import pytest

from autotuner.domain.manifests import WRITTEN
from autotuner.domain.study import Outcome, Study, TrialKind, TrialState, Wish
from autotuner.errors import Refused
from autotuner.operations import ask
from tests.closed_loop.endings import at
from tests.cluster import team
from tests.cluster.loop import ClusterLoop, a_cluster_loop, check_ending
from tests.cluster.server import Answer, Request


def between_stages(study: Study) -> bool:
    return len(study.promoted) == 1 and at(TrialKind.STAGE, TrialState.PROPOSED)(study)


@pytest.fixture
def half_promoted() -> ClusterLoop:
    """A promotion that a release began which did not note what it wrote."""
    loop = a_cluster_loop()
    loop.run(until=between_stages)
    kept = f"{team.CORE}/configmaps/{team.CANARY}"
    assert loop.api.get(kept)["metadata"]["annotations"][WRITTEN]
    loop.api.merge(kept, {"metadata": {"annotations": {WRITTEN: None}}})
    return loop


def test_what_a_release_wrote_that_noted_nothing_is_taken_back(half_promoted: ClusterLoop) -> None:
    ask(half_promoted.store, half_promoted.clock, half_promoted.study_id, Wish.CANCEL, "tester", "enough")
    assert half_promoted.run().outcome is Outcome.ABORTED
    check_ending(half_promoted)


def test_what_a_release_began_that_noted_nothing_is_promoted_to_its_end(half_promoted: ClusterLoop) -> None:
    assert half_promoted.run().outcome is Outcome.PROMOTED
    check_ending(half_promoted)


def test_a_route_that_cannot_be_given_back_keeps_the_canary_that_it_still_sends_users_to() -> None:
    loop = a_cluster_loop()
    world = loop.world()
    assert world.canary is not None
    world.canary.put_up()
    world.route.set_weights({"stable": 500, "canary": 500})
    loop.api.delete(f"{team.CORE}/services/{team.CANARY}")

    def forbidden(request: Request) -> Answer | None:
        """Routes may be read alone."""
        if request.verb != "patch" or request.place.plural != "httproutes":
            return None
        return 403, {"kind": "Status", "message": "forbidden", "reason": "Forbidden", "code": 403}

    loop.server.between.append(forbidden)
    with pytest.raises(Refused, match="not permitted: patch on httproutes"):
        world.canary.take_down()
    assert loop.api.find(f"{team.APPS}/deployments/{team.CANARY}") is not None

    loop.server.between.clear()
    world.canary.take_down()
    assert loop.api.find(f"{team.APPS}/deployments/{team.CANARY}") is None
    assert world.route.weights().keys() == {"stable"}

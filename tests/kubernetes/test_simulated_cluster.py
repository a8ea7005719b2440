"""The API server in memory, which closed-loop tests run on, answers the product as the real one does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from autotuner.adapters.clock import ManualClock
from autotuner.adapters.kubernetes import Cluster
from autotuner.domain.manifests import Manifest
from autotuner.domain.permissions import Need
from autotuner.errors import AutotunerError
from tests.builders import START
from tests.cluster import team
from tests.cluster.client import ACCOUNT, SimulatedApi, SimulatedCluster
from tests.cluster.controllers import START as PODS_START
from tests.cluster.controllers import Controllers
from tests.cluster.loop import EVERYTHING, NODES
from tests.cluster.server import Place, SimulatedApiServer
from tests.kubernetes.account import Account
from tests.kubernetes.api import Api, ApiError
from tests.kubernetes.plane import ControlPlane
from tests.kubernetes.site import RealSite

MINE = {"app.kubernetes.io/managed-by": "autotuner"}
SPACE = team.NAMESPACE


@dataclass
class Side:
    """One of the two. rest: lets it do what there is to do; without: takes a permission of the product away."""

    api: Api
    cluster: Cluster
    rest: Callable[[], None]
    without: Callable[[Need], None]
    with_all: Callable[[Need], None]


@pytest.fixture(scope="module")
def sides(
    control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Side, Side]]:
    folder: Path = tmp_path_factory.mktemp("both")
    with RealSite(control_plane, folder).standing() as standing:
        account: Account = standing.account
        real = Side(standing.api, account.cluster(), standing.rest, account.without, account.with_all)
        yield _simulated(), real


def _simulated() -> Side:
    clock = ManualClock(START)
    server = SimulatedApiServer(clock)
    Controllers(server, dict(NODES))
    server.make(Place("", "namespaces", "", SPACE), {"kind": "Namespace"})
    server.roles[ACCOUNT, SPACE] = EVERYTHING

    def without(need: Need) -> None:
        plural = f"{need.kind.lower()}s"
        rules = [{**rule, "resources": [r for r in rule["resources"] if r != plural]} for rule in EVERYTHING]
        others = [verb for verb in EVERYTHING[0]["verbs"] if verb != need.verb]
        rest = [{**rule, "resources": [plural], "verbs": others} for rule in EVERYTHING]
        server.roles[ACCOUNT, SPACE] = rules + rest

    def with_all(need: Need) -> None:
        server.roles[ACCOUNT, SPACE] = EVERYTHING

    def rest() -> None:
        clock.advance(2 * PODS_START)

    return Side(SimulatedApi(server), SimulatedCluster(server=server), rest, without, with_all)


def config_map(name: str = "ours", **data: str) -> Manifest:
    metadata = {"name": name, "namespace": SPACE, "labels": MINE}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def essence(answer: Any) -> Any:
    """What both sides must agree on of an answer."""
    if isinstance(answer, list):
        return [each["metadata"]["name"] for each in answer]
    if isinstance(answer, dict):
        kept = {key: answer[key] for key in ("data",) if key in answer}
        return {**kept, "name": answer["metadata"]["name"], "labels": answer["metadata"].get("labels", {})}
    return answer


def outcome(ask: Callable[[], Any]) -> tuple[str, Any]:
    """What a question comes to: an answer, or the kind of the refusal and the part of it that people read."""
    try:
        return "answer", essence(ask())
    except ApiError as error:
        return "ApiError", error.status
    except AutotunerError as error:
        return type(error).__name__, str(error).partition(";")[0].partition(":")[0]


def both(sides: tuple[Side, Side], ask: Callable[[Side], Any]) -> tuple[str, Any]:
    """Ask both; they must come to the same."""
    simulated, real = (outcome(lambda side=side: ask(side)) for side in sides)  # type: ignore[misc]
    assert simulated == real
    return simulated


def test_objects_are_made_changed_found_and_removed_alike(sides: tuple[Side, Side]) -> None:
    assert both(sides, lambda side: side.cluster.get("ConfigMap", SPACE, "ours"))[0] == "NotFound"
    assert both(sides, lambda side: side.cluster.find("ConfigMap", SPACE, "ours")) == ("answer", None)
    both(sides, lambda side: side.cluster.apply(config_map(a="1", b="2")))
    _kind, answer = both(sides, lambda side: side.cluster.apply(config_map(a="3")))
    assert answer["data"] == {"a": "3"}
    both(sides, lambda side: side.cluster.listed("ConfigMap", SPACE, MINE))
    both(sides, lambda side: side.cluster.listed("ConfigMap", SPACE, {"no": "such"}))
    wrong = {**config_map(), "metadata": {**config_map()["metadata"], "uid": "another"}}
    assert both(sides, lambda side: side.cluster.delete(wrong))[0] == "Conflict"
    both(sides, lambda side: side.cluster.delete(side.cluster.get("ConfigMap", SPACE, "ours")))
    both(sides, lambda side: side.cluster.find("ConfigMap", SPACE, "ours"))


def test_a_field_that_somebody_took_over_is_a_conflict_alike(sides: tuple[Side, Side]) -> None:
    path = f"{team.CORE}/configmaps/ours"
    both(sides, lambda side: side.cluster.apply(config_map(a="1")))
    both(sides, lambda side: side.api.merge(path, {"data": {"a": "theirs", "c": "theirs"}}))
    assert both(sides, lambda side: side.cluster.apply(config_map(a="1")))[0] == "Conflict"
    _kind, answer = both(sides, lambda side: side.cluster.apply(config_map(b="2")))
    assert answer["data"] == {"a": "theirs", "b": "2", "c": "theirs"}
    for side in sides:
        side.api.delete(path)


def test_a_patch_whose_test_fails_changes_nothing_alike(sides: tuple[Side, Side]) -> None:
    path = f"{team.CORE}/configmaps/ours"
    both(sides, lambda side: side.cluster.apply(config_map(a="1")))
    wrong = [
        {"op": "test", "path": "/data/a", "value": "2"},
        {"op": "replace", "path": "/data/a", "value": "3"},
    ]
    right = [
        {"op": "test", "path": "/data/a", "value": "1"},
        {"op": "add", "path": "/data/c", "value": "3"},
    ]
    assert both(sides, lambda side: side.cluster.patch("ConfigMap", SPACE, "ours", wrong))[0] == "Conflict"
    _kind, answer = both(sides, lambda side: side.cluster.patch("ConfigMap", SPACE, "ours", right))
    assert answer["data"] == {"a": "1", "c": "3"}
    assert both(sides, lambda side: side.cluster.patch("ConfigMap", SPACE, "none", right))[0] == "NotFound"
    for side in sides:
        side.api.delete(path)


@pytest.mark.parametrize("verb", ["get", "list", "create", "patch", "delete"])
def test_what_is_not_permitted_is_refused_in_the_same_words(sides: tuple[Side, Side], verb: str) -> None:
    need = Need(verb, "ConfigMap", "")
    for side in sides:
        if verb in ("patch", "delete"):
            side.api.create(f"{team.CORE}/configmaps", config_map(a="1"))
        side.without(need)
    asked: dict[str, Callable[[Side], Any]] = {
        "get": lambda side: side.cluster.get("ConfigMap", SPACE, "ours"),
        "list": lambda side: side.cluster.listed("ConfigMap", SPACE),
        "create": lambda side: side.cluster.apply(config_map(a="1")),
        "patch": lambda side: side.cluster.apply(config_map(a="1")),
        "delete": lambda side: side.cluster.delete(
            {**config_map(), "metadata": side.api.get(f"{team.CORE}/configmaps/ours")["metadata"]}
        ),
    }
    try:
        assert both(sides, lambda side: side.cluster.lacks(verb, "ConfigMap", SPACE))[1].startswith("not per")
        assert both(sides, lambda side: side.cluster.lacks("get", "Service", SPACE)) == ("answer", "")
        assert both(sides, asked[verb])[0] == "Refused"
        messages = {_message(asked[verb], side) for side in sides}
        assert messages == {f"not permitted: {verb} on configmaps in namespace {SPACE}"}
    finally:
        for side in sides:
            side.with_all(need)
            side.api.delete(f"{team.CORE}/configmaps/ours")


def _message(ask: Callable[[Side], Any], side: Side) -> str:
    with pytest.raises(AutotunerError) as refusal:
        ask(side)
    return str(refusal.value).partition(";")[0]


def test_pods_are_made_replaced_and_removed_alike(sides: tuple[Side, Side], tmp_path: Path) -> None:
    def names(side: Side) -> list[str]:
        side.rest()
        return sorted(pod["metadata"]["name"] for pod in team.ready(side.api))

    def evicted(side: Side) -> tuple[int, int]:
        before = names(side)
        team.evict(side.api, before[0])
        after = names(side)
        return len(after), len({*before, *after})

    def scaled(side: Side) -> int:
        side.api.merge(f"{team.APPS}/deployments/{team.NAME}", {"spec": {"replicas": 3}})
        return len(names(side))

    def owned(side: Side) -> Any:
        stable = side.cluster.get("Deployment", SPACE, team.NAME)
        owner = {key: stable[key] for key in ("apiVersion", "kind")}
        owner |= {key: stable["metadata"][key] for key in ("name", "uid")}
        metadata = {**config_map()["metadata"], "ownerReferences": [owner]}
        return side.cluster.apply({**config_map(a="1"), "metadata": metadata})

    def deleted(side: Side) -> list[str]:
        side.api.delete(f"{team.APPS}/deployments/{team.NAME}")
        return names(side)

    for side in sides:
        team.found(side.api, tmp_path, "text")
    assert both(sides, lambda side: len(names(side))) == ("answer", 2)
    assert both(sides, evicted) == ("answer", (2, 3))
    assert both(sides, scaled) == ("answer", 3)
    both(sides, owned)
    both(sides, deleted)
    assert both(sides, lambda side: side.cluster.find("Deployment", SPACE, team.NAME)) == ("answer", None)


def test_nothing_can_be_made_in_a_namespace_that_is_going(sides: tuple[Side, Side]) -> None:
    """The last one: neither namespace comes back."""
    held = {**config_map("held"), "metadata": {**config_map("held")["metadata"], "finalizers": ["test/hold"]}}
    for side in sides:
        side.api.create(f"{team.CORE}/configmaps", held)
        side.api.delete(f"/api/v1/namespaces/{SPACE}")
    try:
        late = f"{team.CORE}/configmaps"
        assert both(sides, lambda side: side.api.create(late, config_map("late"))) == ("ApiError", 403)
    finally:
        sides[1].api.merge(f"{team.CORE}/configmaps/held", {"metadata": {"finalizers": None}})

"""The door to the API server: every answer that is not an object becomes an error that says what to do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from autotuner.adapters.kubernetes import client
from autotuner.adapters.kubernetes.client import Cluster
from autotuner.errors import AutotunerError, Conflict, InvalidInput, NotFound, Refused, Unavailable
from tests.stub_server import Planned, StubServer

SERVICES = "/api/v1/namespaces/prod/services"
ONE = f"{SERVICES}/vision"
MANIFEST = {"kind": "Service", "metadata": {"name": "vision", "namespace": "prod", "uid": "0-1"}}


@pytest.fixture
def server() -> Iterator[StubServer]:
    with StubServer() as stub:
        yield stub


@pytest.fixture
def cluster(server: StubServer, tmp_path: Path) -> Cluster:
    path = tmp_path / "kubeconfig"
    named = {"name": "x", "context": {"cluster": "x", "user": "x"}}
    path.write_text(
        yaml.safe_dump(
            {
                "clusters": [{"name": "x", "cluster": {"server": server.url}}],
                "users": [{"name": "x", "user": {"token": "secret-token"}}],
                "contexts": [named],
                "current-context": "x",
            }
        )
    )
    return Cluster(str(path))


def status(code: int, message: str = "no", **more: Any) -> Planned:
    return Planned(json.dumps({"kind": "Status", "code": code, "message": message, **more}), code)


def test_an_object_is_returned_as_it_is_and_asked_for_where_it_is(
    cluster: Cluster, server: StubServer
) -> None:
    server.answers = {
        ONE: Planned(json.dumps(MANIFEST)),
        SERVICES: Planned(json.dumps({"items": [MANIFEST]})),
    }
    assert cluster.get("Service", "prod", "vision") == MANIFEST
    assert cluster.listed("Service", "prod", {"a": "b", "c": "d"}) == [MANIFEST]
    assert server.requests == [f"GET {ONE}", f"GET {SERVICES}?labelSelector=a%3Db%2Cc%3Dd"]


def test_an_object_is_applied_under_our_name_and_without_force(cluster: Cluster, server: StubServer) -> None:
    server.answers = {ONE: Planned(json.dumps(MANIFEST))}
    cluster.apply(MANIFEST)
    assert server.requests == [f"PATCH {ONE}?fieldManager=autotuner&force=false&fieldValidation=Strict"]


def test_what_is_not_there_is_not_found_or_none_and_gone_when_it_is_deleted(cluster: Cluster) -> None:
    with pytest.raises(NotFound, match="prod/vision"):
        cluster.get("Service", "prod", "vision")
    assert cluster.find("Service", "prod", "vision") is None
    cluster.delete(MANIFEST)


@pytest.mark.parametrize("code", [408, 410, 429, 500, 502, 503, 504])
def test_what_may_go_away_by_itself_is_unavailable(cluster: Cluster, server: StubServer, code: int) -> None:
    server.answers = {ONE: status(code, "too many requests")}
    with pytest.raises(Unavailable, match=f"HTTP {code}: too many requests"):
        cluster.get("Service", "prod", "vision")


@pytest.mark.parametrize(
    ("answer", "kind", "says"),
    [
        (status(409, "conflict with manager team on .spec.rules"), Conflict, "conflict with manager team"),
        (status(422, "the test failed"), Conflict, "somebody else changed it"),
        (
            status(422, "bad", details={"causes": [{"field": "spec"}]}),
            Refused,
            "refuses to patch Service prod/vision",
        ),
        (status(403, "forbidden"), Refused, "patch on services in namespace prod"),
        (
            status(403, 'user "x" cannot create resource "services"'),
            Refused,
            "create on services in namespace prod",
        ),
        (status(401, "who?"), Refused, "patch on services in namespace prod"),
        (status(403, "namespace prod is being terminated"), Refused, "is being deleted"),
        (Planned("<html>"), Unavailable, "not an object"),
        (Planned("<html>", 502), Unavailable, "HTTP 502: <html>"),
    ],
)
def test_what_needs_somebody_says_who_and_what(
    cluster: Cluster, server: StubServer, answer: Planned, kind: type[AutotunerError], says: str
) -> None:
    server.answers = {ONE: answer}
    with pytest.raises(kind, match=says):
        cluster.patch("Service", "prod", "vision", [])


def test_a_server_that_hangs_or_is_not_there_is_unavailable_and_no_secret_is_told(
    cluster: Cluster, server: StubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "LIMIT", client.LIMIT / 20)
    server.answers = {ONE: Planned(hang=True)}
    with pytest.raises(Unavailable, match="no answer from the API server") as hung:
        cluster.get("Service", "prod", "vision")
    assert "secret-token" not in str(hung.value)


def test_a_kubeconfig_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="AUTOTUNER_KUBECONFIG"):
        Cluster(str(tmp_path / "nowhere")).get("Service", "prod", "vision")

"""Weights at a real Envoy: read from wherever they are in force, set in one call, read back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import httpx
import pytest

from autotuner.adapters.envoy import EnvoyRoute
from autotuner.domain.target import Gateway, Replica, Target
from autotuner.errors import Refused, Unavailable
from autotuner.sandbox.envoy import EnvoyProcess, Topology
from tests.builders import a_target, changed
from tests.stub_server import Planned, StubServer

NOWHERE = "http://127.0.0.1:9"
STABLE, CANARY = Replica("stable-0", NOWHERE, NOWHERE), Replica("canary", NOWHERE, NOWHERE)
STATIC_LAYER = {"name": "static", "static_layer": {}}
INITIAL = {"stable-0": 900, "canary": 100}


def target(gateway: Gateway) -> Target:
    return replace(a_target(), stable=(STABLE,), canary=CANARY, gateway=gateway)


@pytest.fixture(scope="module")
def envoy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EnvoyProcess]:
    process = EnvoyProcess(
        Topology((STABLE, CANARY), timedelta(milliseconds=100), INITIAL),
        run_directory=tmp_path_factory.mktemp("envoy"),
    )
    process.start()
    try:
        yield process
    finally:
        process.stop()


def test_weights_are_the_routes_own_until_they_are_set_and_again_after_a_restart(envoy: EnvoyProcess) -> None:
    route = EnvoyRoute(target(envoy.gateway))
    assert route.weights() == INITIAL
    for weights in (
        {"stable-0": 1000, "canary": 0},
        {"stable-0": 1, "canary": 999},
        {"stable-0": 1, "canary": 999},
    ):
        route.set_weights(weights)
        assert route.weights() == weights
    envoy.restart()
    assert route.weights() == INITIAL


def test_weights_that_are_the_routes_own_again_leave_no_override_behind(envoy: EnvoyProcess) -> None:
    route = EnvoyRoute(target(envoy.gateway))
    prefix = envoy.gateway.runtime_prefix

    def overrides() -> list[str]:
        entries = httpx.get(f"{envoy.admin_url}/runtime?format=json").json().get("entries", {})
        return [key for key, entry in entries.items() if key.startswith(prefix) and entry["final_value"]]

    route.set_weights({"stable-0": 1000, "canary": 0})
    assert len(overrides()) == len(INITIAL)
    for _ in range(2):
        route.set_weights(INITIAL)
        assert overrides() == []
        assert route.weights() == INITIAL


def test_a_prefix_that_no_route_reads_is_refused_and_nothing_is_changed(envoy: EnvoyProcess) -> None:
    wrong = EnvoyRoute(target(changed(envoy.gateway, runtime_prefix="another")))
    before = EnvoyRoute(target(envoy.gateway)).weights()
    with pytest.raises(Refused, match=r"no route .* runtime_key_prefix another"):
        wrong.weights()
    with pytest.raises(Refused, match="another"):
        wrong.set_weights({"stable-0": 0, "canary": 1000})
    assert EnvoyRoute(target(envoy.gateway)).weights() == before


def test_a_replica_that_the_route_does_not_have_is_refused(envoy: EnvoyProcess) -> None:
    more = changed(target(envoy.gateway), stable=(STABLE, Replica("stable-1", NOWHERE, NOWHERE)))
    with pytest.raises(Refused, match="lacks stable-1"):
        EnvoyRoute(more).weights()
    with pytest.raises(Refused, match="lacks stable-1"):
        EnvoyRoute(more).set_weights({"stable-0": 1, "stable-1": 1, "canary": 1})


@pytest.mark.parametrize(
    "weights",
    [
        {"stable-0": 1000},
        {"stable-0": 1, "canary": 1, "x": 1},
        {"stable-0": 0, "canary": 0},
        {"stable-0": 2, "canary": -1},
    ],
)
def test_weights_that_mean_nothing_are_refused(envoy: EnvoyProcess, weights: dict[str, int]) -> None:
    route = EnvoyRoute(target(envoy.gateway))
    before = route.weights()
    with pytest.raises(Refused, match="weights"):
        route.set_weights(weights)
    assert route.weights() == before


def test_an_envoy_without_an_admin_layer_says_what_it_needs(tmp_path: Path) -> None:
    process = EnvoyProcess(
        Topology((STABLE, CANARY), timedelta(milliseconds=100), INITIAL), run_directory=tmp_path
    )
    process.start()
    process.stop()
    file = tmp_path / "envoy.json"
    file.write_text(
        json.dumps(json.loads(file.read_text()) | {"layered_runtime": {"layers": [STATIC_LAYER]}})
    )
    process.process.start()
    try:
        route = EnvoyRoute(target(process.gateway))
        while not process.is_ready():
            assert process.process.alive, process.process.log_tail()
        assert route.weights() == INITIAL
        with pytest.raises(Refused, match="admin_layer"):
            route.set_weights({"stable-0": 1000, "canary": 0})
    finally:
        process.stop()


def test_a_gateway_that_is_gone_is_unavailable(envoy: EnvoyProcess) -> None:
    with StubServer() as gone:
        url = gone.url
    route = EnvoyRoute(target(Gateway(url, "p")))
    with pytest.raises(Unavailable, match="gateway is unavailable: nothing accepts connections"):
        route.weights()
    with pytest.raises(Unavailable):
        route.set_weights(INITIAL)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Planned("<html/>"), "not answer as an Envoy"),
        (Planned("[]"), "not answer as an Envoy"),
        (Planned("no", 500), "HTTP 500"),
        (Planned("{}", promised=1000), "broke off"),
        (Planned(hang=True), "no answer within"),
    ],
)
def test_what_is_no_envoy_is_unavailable(
    answer: Planned, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autotuner.adapters.envoy.LIMIT_SECONDS", 0.3)
    answers = {"/runtime": answer, "/config_dump": answer}
    with StubServer(dict(answers)) as server, pytest.raises(Unavailable, match=words):
        EnvoyRoute(target(Gateway(server.url, "p"))).weights()


def test_a_gateway_that_takes_other_weights_than_given_is_found_out() -> None:
    clusters = [{"name": name, "weight": weight} for name, weight in INITIAL.items()]
    dump = {"configs": [{"route": {"weighted_clusters": {"runtime_key_prefix": "p", "clusters": clusters}}}]}
    held = {"entries": {"p.stable-0": {"final_value": "900"}, "p.canary": {"final_value": "100"}}}
    answers = {
        "/runtime": Planned(json.dumps(held)),
        "/config_dump": Planned(json.dumps(dump)),
        "/runtime_modify": Planned("OK\n"),
    }
    with StubServer(dict(answers)) as server, pytest.raises(Refused, match="took other weights"):
        EnvoyRoute(target(Gateway(server.url, "p"))).set_weights({"stable-0": 0, "canary": 1000})

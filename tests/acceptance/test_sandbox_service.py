"""`autotuner serve --sandbox`: one command gives a newcomer the service over real servers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import httpx
import pytest

from tests.acceptance.demonstration import Demonstration, processes_with, running

READY = "Ctrl-C stops everything."


@dataclass(frozen=True)
class Served:
    """What was seen of a sandbox while it ran, and after it was stopped."""

    said: str
    address: str
    commands: str
    """The command lines of its processes while it ran."""
    targets: str
    """The page of targets, as the token opens it."""
    checked: str
    """What the check of the target's connections said."""
    code: int
    left: list[str]

    @property
    def secret(self) -> str:
        """The token that was told."""
        return secret_in(self.said)


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with running(lambda place: ["serve", "--sandbox", "--port", "0"]) as sandbox:
        sandbox.until(sandbox.says(READY), "it is ready")
        yield seen(sandbox)


def secret_in(said: str) -> str:
    found = re.search(r"autotuner_[\w-]{43}", said)
    assert found is not None, said
    return found[0]


def seen(sandbox: Demonstration) -> Served:
    found = re.search(r"the web UI at (http://\S+)/ui", sandbox.said)
    assert found is not None, sandbox.said
    with httpx.Client(base_url=found[1], follow_redirects=True) as client:
        targets = client.post("/ui/sign-in", data={"token": secret_in(sandbox.said)}).text
        token = re.search(r'name="form_token" value="(\w+)"', client.get("/ui/targets/small-vision").text)
        assert token is not None
        checked = client.post(
            "/ui/targets/small-vision/check", data={"form_token": token[1]}, timeout=30
        ).text
    commands = " ".join(command for _, command in processes_with(str(sandbox.temporary)))
    sandbox.interrupt()
    return Served(
        said=sandbox.said,
        address=found[1],
        commands=commands,
        targets=targets,
        checked=checked,
        code=sandbox.process.returncode,
        left=sandbox.left(),
    )


def test_it_tells_an_address_a_token_and_what_to_do_next(served: Served) -> None:
    assert served.address.startswith("http://127.0.0.1:")
    assert "set the target's SLO budget" in served.said
    assert "small-vision" in served.targets
    assert served.said.count(served.secret) == 1


def test_the_targets_servers_gateway_and_metrics_are_real(served: Served) -> None:
    assert "Everything that a study reads can be read" in served.checked
    for program in ("tritonserver", "envoy", "postgres"):
        assert program in served.commands


def test_a_worker_and_a_scheduler_run_beside_it(served: Served) -> None:
    assert re.search(r"-m autotuner worker", served.commands)
    assert re.search(r"-m autotuner scheduler", served.commands)


def test_ctrl_c_stops_everything_and_leaves_nothing(served: Served) -> None:
    assert (served.code, served.left) == (0, [])

"""Both sides of the API server in memory: as the product asks it, and as the cluster's administrator does."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from autotuner.adapters.kubernetes import Cluster
from autotuner.errors import Unavailable
from tests.cluster.server import Away, SimulatedApiServer
from tests.kubernetes.api import Api, ApiError

ACCOUNT = "system:serviceaccount:autotuner:autotuner"


@dataclass
class SimulatedCluster(Cluster):
    """The product's own client; only the wire is another one."""

    server: SimulatedApiServer | None = None
    user: str = ACCOUNT

    def _exchange(self, method: str, path: str, body: Any, media: str) -> tuple[int, bytes]:
        assert self.server is not None
        try:
            sent = json.loads(json.dumps(body))
            status, answer = self.server.ask(method, path, sent, media, self.user)
        except Away as error:
            raise Unavailable("kubernetes", f"no answer from the API server ({error})") from error
        return status, json.dumps(answer).encode()


class SimulatedApi(Api):
    """The administrator."""

    def __init__(self, server: SimulatedApiServer) -> None:
        self.server = server

    def ask(
        self, method: str, path: str, body: Any = None, media: str = "application/json"
    ) -> dict[str, Any]:
        """Return the answer's JSON. Raises ApiError."""
        status, answer = self.server.ask(method, path, json.loads(json.dumps(body)), media)
        if status >= 300:
            raise ApiError(status, answer["message"])
        copied: dict[str, Any] = json.loads(json.dumps(answer))
        return copied

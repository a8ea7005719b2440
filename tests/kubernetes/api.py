"""The API server as tests speak to it: paths and JSON, as the cluster's administrator. The product has its own door."""

from __future__ import annotations

import http.client
import json
import ssl
import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
LIMIT_SECONDS = 10.0


class ApiError(Exception):
    """An answer that is not a success."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"HTTP {status}: {message}")
        self.status = status


class Api:
    """One API server; safe to use from several threads, each request has a connection of its own."""

    def __init__(self, url: str, tls: ssl.SSLContext, token: str = "") -> None:
        self._place = urlsplit(url)
        self._tls = tls
        self._token = token

    def ask(
        self, method: str, path: str, body: Any = None, media: str = "application/json"
    ) -> dict[str, Any]:
        """Return the answer's JSON. Raises ApiError, OSError."""
        headers = {"Accept": "application/json", "Content-Type": media}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        connection = http.client.HTTPSConnection(self._place.netloc, timeout=LIMIT_SECONDS, context=self._tls)
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            text = response.read()
        finally:
            connection.close()
        answer: dict[str, Any] = json.loads(text) if text.startswith(b"{") else {"text": text.decode()}
        if response.status >= 300:
            raise ApiError(response.status, answer.get("message", text.decode()[:300]))
        return answer

    def get(self, path: str) -> dict[str, Any]:
        """Return an object. Raises ApiError."""
        return self.ask("GET", path)

    def find(self, path: str) -> dict[str, Any] | None:
        """Return an object, None when there is none."""
        try:
            return self.get(path)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def items(self, path: str) -> list[dict[str, Any]]:
        """Return the objects of a list."""
        found: list[dict[str, Any]] = self.get(path)["items"]
        return found

    def create(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Create an object in the collection at `path`."""
        return self.ask("POST", f"{path}?fieldManager=team", body)

    def merge(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Change fields of an object by a merge patch."""
        return self.ask("PATCH", f"{path}?fieldManager=team", body, MERGE)

    def delete(self, path: str, grace_seconds: int | None = None) -> None:
        """Delete an object; one that is not there is fine."""
        options = {"apiVersion": "v1", "kind": "DeleteOptions"}
        body = options if grace_seconds is None else {**options, "gracePeriodSeconds": grace_seconds}
        try:
            self.ask("DELETE", path, body)
        except ApiError as error:
            if error.status != 404:
                raise

    def status(self, path: str) -> int:
        """Return the HTTP status of a GET; 0 when nobody answers."""
        try:
            self.get(path)
        except ApiError as error:
            return error.status
        except OSError:
            return 0
        return 200

    def wait_for(self, path: str, within: timedelta) -> dict[str, Any]:
        """Return an object once it is there."""
        give_up = time.monotonic() + within.total_seconds()
        while self.status(path) != 200:
            assert time.monotonic() < give_up, f"not within {within}: {path}"
            time.sleep(0.1)
        return self.get(path)

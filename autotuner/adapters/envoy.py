"""Weights at an Envoy gateway, through the runtime layer of its admin interface.

A route with `weighted_clusters` and a `runtime_key_prefix` takes the weight of cluster R from the runtime key
`<prefix>.R`, else from its own configuration. A key that no route looks at is accepted by Envoy without a word, so
the route is looked up before anything is changed. Weights that are the route's own again leave no key behind: an
override that stays would silently outlive every later change of the route.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator, Mapping
from typing import Any

import httpx

from autotuner.domain.target import Target
from autotuner.errors import Refused, Unavailable

SYSTEM = "gateway"
LIMIT_SECONDS = 2.0
NO_ADMIN_LAYER = "No admin layer"
REMOVED = ""
"""The value that takes a key out of Envoy's admin layer."""


class EnvoyRoute:
    """`Route` over the Envoy of one target. Safe to use from several threads at once."""

    def __init__(self, target: Target) -> None:
        self._gateway = target.gateway
        self._names = tuple(replica.name for replica in target.replicas)
        self._tls = ssl.create_default_context()

    def weights(self) -> Mapping[str, int]:
        """Return the weight of each replica as the gateway holds it now.

        Raises Unavailable; Refused when no route of the gateway is weighted by the target's runtime prefix, or a
        replica is not in it.
        """
        with self._client() as client:
            held = self._held(client)
            return held if len(held) == len(self._names) else self._route(client) | held

    def set_weights(self, weights: Mapping[str, int]) -> None:
        """Set all weights in one call and read them back; idempotent.

        weights: one for each replica of the route, from 0 up, not all 0. Raises Unavailable, Refused.
        """
        self._check(weights)
        keys = {self._key(name): str(weight) for name, weight in weights.items()}
        with self._client() as client:
            own = self._route(client)
            if own == weights:
                _ask(client, "POST", "/runtime_modify", dict.fromkeys(keys, REMOVED))
            if own != weights or own | self._held(client) != weights:
                _ask(client, "POST", "/runtime_modify", keys)
            held = own | self._held(client)
        if held != weights:
            raise Refused(
                f"the gateway took other weights than it was given: {_list(held)} for {_list(weights)}"
            )

    def _client(self) -> httpx.Client:
        return httpx.Client(
            base_url=self._gateway.admin_url, verify=self._tls, timeout=LIMIT_SECONDS, trust_env=False
        )

    def _check(self, weights: Mapping[str, int]) -> None:
        if set(weights) != set(self._names):
            raise Refused(
                f"the gateway's weights need one for each of {', '.join(self._names)}: {_list(weights)}"
            )
        if min(weights.values()) < 0 or sum(weights.values()) == 0:
            raise Refused(f"the gateway's weights must be 0 or more and not all 0: {_list(weights)}")

    def _key(self, name: str) -> str:
        return f"{self._gateway.runtime_prefix}.{name}"

    def _route(self, client: httpx.Client) -> dict[str, int]:
        """Weights by cluster in the configuration of the route that reads our runtime keys."""
        prefix = self._gateway.runtime_prefix
        for weighted in _weighted_clusters(_json(client, "/config_dump")):
            if weighted.get("runtime_key_prefix") != prefix:
                continue
            configured = {c.get("name", ""): int(c.get("weight", 0)) for c in weighted.get("clusters", [])}
            if missing := [name for name in self._names if name not in configured]:
                raise Refused(
                    f"the gateway's route with runtime_key_prefix {prefix} lacks {', '.join(missing)}"
                )
            return {name: configured[name] for name in self._names}
        raise Refused(f"no route of the gateway has weighted_clusters with runtime_key_prefix {prefix}")

    def _held(self, client: httpx.Client) -> dict[str, int]:
        """Weights by replica in the runtime; a key that is absent, or no whole number, is ignored as Envoy does."""
        entries = _json(client, "/runtime", {"format": "json"}).get("entries", {})
        found = {name: entries.get(self._key(name), {}).get("final_value", "") for name in self._names}
        return {name: int(value) for name, value in found.items() if value.isdecimal()}


def _weighted_clusters(value: Any) -> Iterator[Mapping[str, Any]]:
    """Every `weighted_clusters` anywhere in a configuration: static, in a listener, or from a control plane."""
    if isinstance(value, Mapping):
        if isinstance(found := value.get("weighted_clusters"), Mapping):
            yield found
        for item in value.values():
            yield from _weighted_clusters(item)
    elif isinstance(value, list):
        for item in value:
            yield from _weighted_clusters(item)


def _ask(client: httpx.Client, method: str, path: str, parameters: Mapping[str, str] | None = None) -> str:
    try:
        answer = client.request(method, path, params=parameters)
    except httpx.TimeoutException as error:
        raise Unavailable(SYSTEM, f"no answer within {LIMIT_SECONDS:g} s ({client.base_url})") from error
    except httpx.ConnectError as error:
        raise Unavailable(SYSTEM, f"nothing accepts connections at {client.base_url}") from error
    except httpx.HTTPError as error:
        raise Unavailable(SYSTEM, f"the answer broke off ({client.base_url}): {error}") from error
    if NO_ADMIN_LAYER in answer.text:
        raise Refused("the gateway's weights cannot be changed: its layered_runtime needs an admin_layer")
    if answer.status_code != httpx.codes.OK:
        raise Unavailable(SYSTEM, f"{path} answers with HTTP {answer.status_code} ({client.base_url})")
    return answer.text


def _json(client: httpx.Client, path: str, parameters: Mapping[str, str] | None = None) -> dict[str, Any]:
    try:
        found = json.loads(_ask(client, "GET", path, parameters))
    except (ValueError, RecursionError) as error:
        raise Unavailable(SYSTEM, f"{path} does not answer as an Envoy would ({client.base_url})") from error
    if not isinstance(found, dict):
        raise Unavailable(SYSTEM, f"{path} does not answer as an Envoy would ({client.base_url})")
    return found


def _list(weights: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {weight}" for name, weight in weights.items())

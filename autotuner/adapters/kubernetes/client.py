"""The API server: every object is plain JSON, every answer that is not one is an error that says what to do.

The client library brings what is hard: kubeconfig files, service accounts whose tokens change, certificates. Its typed
models are not used, because half of the objects here are custom resources that it has no models for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import urllib3
from kubernetes import client as library
from kubernetes import config as access
from kubernetes.config import ConfigException

from autotuner.adapters.kubernetes.kinds import Kind, kind_of
from autotuner.domain.manifests import FIELD_MANAGER, Manifest
from autotuner.errors import AutotunerError, Conflict, InvalidInput, NotFound, Refused, Unavailable

SYSTEM = "kubernetes"
LIMIT = timedelta(seconds=4)
FORBIDDEN = re.compile(r"cannot (\w+) resource")
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
"""Where everybody may ask what they themselves may do."""

JSON_PATCH, APPLY = "application/json-patch+json", "application/apply-patch+yaml"


@dataclass(frozen=True)
class Place:
    """Where an object is."""

    kind: Kind
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind.name} {self.namespace}/{self.name}"


@dataclass
class Cluster:
    """One API server, as one user. Safe to use from several threads at once.

    kubeconfig: a file; empty for the service account of the pod this runs in, or the usual file outside of one.
    """

    kubeconfig: str = ""
    context: str = ""
    _api: library.ApiClient | None = field(default=None, repr=False)

    def get(self, kind: str, namespace: str, name: str) -> Manifest:
        """Return an object. Raises NotFound, Refused, Unavailable."""
        place = Place(kind_of(kind), namespace, name)
        return self._ask("GET", place, "get")

    def find(self, kind: str, namespace: str, name: str) -> Manifest | None:
        """Return an object, None when there is none. Raises Refused, Unavailable."""
        try:
            return self.get(kind, namespace, name)
        except NotFound:
            return None

    def listed(self, kind: str, namespace: str, labels: Mapping[str, str] | None = None) -> list[Manifest]:
        """Return all objects of a kind that carry the labels. Raises Refused, Unavailable."""
        return self.selected(
            kind, namespace, ",".join(f"{key}={value}" for key, value in (labels or {}).items())
        )

    def selected(self, kind: str, namespace: str, selector: str, fields: str = "") -> list[Manifest]:
        """Return all objects of a kind that a label selector and a field selector pick."""
        query = [
            (name, text) for name, text in (("labelSelector", selector), ("fieldSelector", fields)) if text
        ]
        answer = self._ask("GET", Place(kind_of(kind), namespace, ""), "list", query=query)
        items: list[Manifest] = answer.get("items") or []
        return items

    def apply(self, manifest: Manifest) -> Manifest:
        """Make an object of ours, or make it as given, as the owner of just these fields (server-side apply).

        Raises Conflict naming the field that somebody else owns with another value, Refused, Unavailable.
        """
        query = [("fieldManager", FIELD_MANAGER), ("force", "false"), ("fieldValidation", "Strict")]
        return self._ask("PATCH", _place_of(manifest), "patch", body=manifest, query=query, media=APPLY)

    def patch(
        self, kind: str, namespace: str, name: str, operations: Sequence[Mapping[str, Any]]
    ) -> Manifest:
        """Change an object by a JSON patch. Raises Conflict when one of its tests fails, Refused, Unavailable."""
        place = Place(kind_of(kind), namespace, name)
        query = [("fieldManager", FIELD_MANAGER)]
        return self._ask("PATCH", place, "patch", body=list(operations), query=query, media=JSON_PATCH)

    def delete(self, manifest: Manifest) -> None:
        """Delete just this object, not a later one of the same name; nothing happens when it is gone."""
        place = _place_of(manifest)
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Background",
            "preconditions": {"uid": manifest["metadata"]["uid"]},
        }
        try:
            self._ask("DELETE", place, "delete", body=options)
        except NotFound:
            return

    def lacks(self, verb: str, kind: str, namespace: str) -> str:
        """Return why this user may not do this, in the words of a refusal; empty when it may. Raises Unavailable."""
        place = Place(kind_of(kind), namespace, "")
        wanted = {
            "namespace": namespace,
            "verb": verb,
            "group": place.kind.group,
            "resource": place.kind.plural,
        }
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": wanted},
        }
        answer = self._answer("POST", REVIEWS, place, verb, body=review)
        return "" if answer.get("status", {}).get("allowed") else _not_permitted(verb, place)

    def _ask(
        self,
        method: str,
        place: Place,
        verb: str,
        *,
        body: Any = None,
        query: Sequence[tuple[str, str]] = (),
        media: str = "application/json",
    ) -> Manifest:
        asked = f"?{urlencode(list(query))}" if query else ""
        path = f"{place.kind.path(place.namespace, place.name)}{asked}"
        return self._answer(method, path, place, verb, body=body, media=media)

    def _answer(
        self,
        method: str,
        path: str,
        place: Place,
        verb: str,
        *,
        body: Any = None,
        media: str = "application/json",
    ) -> Manifest:
        status, data = self._exchange(method, path, body, media)
        answer = _parsed(data)
        if status >= 300:
            raise _translated(status, place, verb, answer or {"message": data.decode(errors="replace")})
        if not answer:
            raise Unavailable(SYSTEM, "the API server's answer is not an object")
        return answer

    def _exchange(self, method: str, path: str, body: Any, media: str) -> tuple[int, bytes]:
        """Send one request and return status and text of the answer. Raises Unavailable."""
        headers = {"Accept": "application/json", "Content-Type": media}
        limit = LIMIT.total_seconds()
        try:
            api = self._client()
            api.update_params_for_auth(headers, None, ["BearerToken"])
            response = api.rest_client.pool_manager.request(
                method,
                f"{api.configuration.host}{path}",
                body=None if body is None else json.dumps(body),
                headers=headers,
                timeout=urllib3.Timeout(connect=limit / 2, read=limit),
                retries=False,
                redirect=False,
            )
        except urllib3.exceptions.HTTPError as error:
            raise Unavailable(
                SYSTEM, f"no answer from the API server within {limit:g} s ({_short(error)})"
            ) from error
        return response.status, response.data

    def _client(self) -> library.ApiClient:
        if self._api is None:
            self._api = library.ApiClient(self._configuration())
        return self._api

    def _configuration(self) -> library.Configuration:
        made = library.Configuration()
        made.connection_pool_maxsize = 32
        try:
            if self.kubeconfig or not Path(access.incluster_config.SERVICE_TOKEN_FILENAME).exists():
                access.load_kube_config(self.kubeconfig or None, self.context or None, made)
            else:
                access.load_incluster_config(made)
        except (ConfigException, OSError) as error:
            allowed = "a kubeconfig file that can be read, or a pod with a service account"
            raise InvalidInput("AUTOTUNER_KUBECONFIG", self.kubeconfig, f"{allowed} ({error})") from error
        return made


def _place_of(manifest: Manifest) -> Place:
    metadata = manifest["metadata"]
    return Place(kind_of(manifest["kind"]), metadata["namespace"], metadata["name"])


def _parsed(data: bytes) -> dict[str, Any]:
    """The object in an answer; empty when there is none in it."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _translated(status: int, place: Place, verb: str, answer: Manifest) -> AutotunerError:
    # A failed test of a JSON patch is a 422 like any invalid object, but names no field.
    said = _short(answer.get("message", "no reason given"))
    if status == 404:
        return NotFound(place.kind.name, f"{place.namespace}/{place.name}")
    if status == 403 and "is being terminated" in said:
        return Refused(f"the namespace {place.namespace} is being deleted")
    if status in (401, 403):
        # Applying what is not there yet takes two verbs; the API server says which one was missing.
        named = FORBIDDEN.search(said)
        need = _not_permitted(named[1] if named else verb, place)
        return Refused(f"{need}; grant the verb to the service account ({said})")
    if status == 409 or (status == 422 and not answer.get("details", {}).get("causes")):
        return Conflict(str(place), f"somebody else changed it or owns the field: {said}")
    if status in (408, 410, 429) or status >= 500:
        return Unavailable(SYSTEM, f"the API server answers with HTTP {status}: {said}")
    return Refused(f"the API server refuses to {verb} {place}: {said}")


def _not_permitted(verb: str, place: Place) -> str:
    return f"not permitted: {verb} on {place.kind.resource} in namespace {place.namespace}"


def _short(said: object, limit_characters: int = 300) -> str:
    text = " ".join(str(said).split())
    return text if len(text) <= limit_characters else text[: limit_characters - 1] + "…"

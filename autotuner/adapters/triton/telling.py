"""What a Triton tells of itself over gRPC; nothing that could load, unload or infer is ever called."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from tritonclient.grpc import InferenceServerClient
from tritonclient.utils import InferenceServerException

from autotuner.errors import AutotunerError, NotFound, Refused, Unavailable

RESTRICTED = re.compile(r"protocol is restricted", re.IGNORECASE)
UNKNOWN_MODEL = re.compile(r"unknown model|is not found", re.IGNORECASE)
DENIED = ("StatusCode.UNAUTHENTICATED", "StatusCode.PERMISSION_DENIED")
NOT_TRITON = ("StatusCode.UNIMPLEMENTED", "StatusCode.UNKNOWN", "StatusCode.INTERNAL")
LATE = ("StatusCode.DEADLINE_EXCEEDED",)


@dataclass(frozen=True)
class GrpcServing:
    """`ServerApi` of one Triton over gRPC.

    name: how it is called in messages; address: HOST:PORT; secure: with TLS, against the authorities of a PEM file or,
    without one, the usual ones.
    """

    name: str
    address: str
    secure: bool = False
    authorities: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    limit: timedelta = timedelta(seconds=5)

    def metadata(self) -> Mapping[str, Any]:
        """Return name, version and extensions. Raises Unavailable, Refused."""
        return self._ask("metadata", "", lambda client, how: client.get_server_metadata(**how))

    def model_config(self, model: str) -> Mapping[str, Any]:
        """Return a model's complete configuration. Raises Unavailable, Refused, NotFound."""
        told = self._ask(
            "model configuration", model, lambda client, how: client.get_model_config(model, **how)
        )
        config: Mapping[str, Any] = told.get("config", {})
        return config

    def statistics(self, model: str) -> Mapping[str, Any]:
        """Return a model's inference statistics, those of all models for an empty name. Raises as model_config does."""
        return self._ask(
            "inference statistics", model, lambda client, how: client.get_inference_statistics(model, **how)
        )

    def _ask(
        self, what: str, model: str, question: Callable[[InferenceServerClient, dict[str, Any]], Any]
    ) -> Mapping[str, Any]:
        how = {
            "as_json": True,
            "headers": {name.lower(): value for name, value in self.headers.items()},
            "client_timeout": self.limit.total_seconds(),
        }
        with self._client() as client:
            try:
                told = question(client, how)
            except InferenceServerException as error:
                raise self._translated(error, what, model) from error
        found: Mapping[str, Any] = told if isinstance(told, dict) else json.loads(told)
        return found

    @contextmanager
    def _client(self) -> Iterator[InferenceServerClient]:
        try:
            client = InferenceServerClient(self.address, ssl=self.secure, root_certificates=self.authorities)
        except (OSError, InferenceServerException) as error:
            raise Unavailable(f"triton {self.name}", f"no TLS connection ({error})") from error
        try:
            yield client
        finally:
            client.close()

    def _translated(self, error: InferenceServerException, what: str, model: str) -> AutotunerError:
        said, status = " ".join(str(error.message()).split())[:200], error.status() or ""
        if RESTRICTED.search(said):
            return Refused(f"{self.name} restricts its {what}: pass the header that it expects with --header")
        if status in DENIED:
            return Refused(
                f"{self.name} does not let us read its {what} ({said}): pass credentials with --header"
            )
        if model and UNKNOWN_MODEL.search(said):
            return NotFound("model", model)
        if status in LATE:
            return Unavailable(f"triton {self.name}", f"no answer within {self.limit.total_seconds():g} s")
        if status in NOT_TRITON:
            return Unavailable(
                f"triton {self.name}", f"{self.address} answers as no Triton would over gRPC: {said}"
            )
        if status == "StatusCode.UNAVAILABLE":
            return Unavailable(f"triton {self.name}", f"no gRPC connection to {self.address}: {said}")
        return Refused(f"{self.name} does not tell its {what}: {said}")

"""Model control over Triton's HTTP API: read, load, read back.

A load is believed only when the server reads back what was sent: Triton silently changes some values. A load
that timed out may still finish later, so `Unavailable` says nothing about what the server will serve.
Each call has a client of its own, because tritonclient's are bound to one thread.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import gevent  # type: ignore[import-untyped]
from gevent.ssl import create_default_context  # type: ignore[import-untyped]
from geventhttpclient.response import HTTPParseError
from tritonclient.http import InferenceServerClient
from tritonclient.utils import InferenceServerException

from autotuner.adapters.triton.refusals import explain
from autotuner.domain.configuration import ModelConfig, fingerprint, misshapen_field
from autotuner.domain.provenance import Provenance
from autotuner.domain.target import Replica, Target
from autotuner.errors import AutotunerError, InvalidInput, Refused, Unavailable

CONNECT_LIMIT = timedelta(seconds=2)
READ_LIMIT = timedelta(seconds=5)
READY_LIMIT = timedelta(seconds=2)
READY_POLL_SECONDS = 0.05
PROXY_FAILURES = frozenset({"502", "503", "504"})


@dataclass(frozen=True)
class TritonServing:
    """`Serving` of one target's servers. Safe to use from several threads at once."""

    target: Target

    def model_config(self, replica: str) -> ModelConfig:
        """Return the complete configuration the replica serves now. Raises Unavailable, Refused."""
        with _conversation(
            self.target.replica(replica), READ_LIMIT, "does not tell its configuration"
        ) as client:
            return _read(client, self.target.model)

    def is_ready(self, replica: str) -> bool:
        """Say whether the model is ready on the replica; False when the server does not answer."""
        try:
            with _conversation(
                self.target.replica(replica), READY_LIMIT, "does not tell its readiness"
            ) as client:
                return bool(client.is_server_ready()) and bool(client.is_model_ready(self.target.model))
        except (Unavailable, Refused):
            return False

    def provenance(self, replica: str) -> Provenance:
        """Return the server's own version. Raises Unavailable, Refused."""
        with _conversation(self.target.replica(replica), READ_LIMIT, "does not tell its version") as client:
            told = client.get_server_metadata()
        if not isinstance(told, dict) or not isinstance(told.get("version"), str):
            raise Unavailable(f"triton {replica}", "its metadata are not those of a Triton")
        return Provenance(triton=told["version"])

    def load(self, replica: str, config: ModelConfig, limit: timedelta) -> None:
        """Load the model with the complete configuration `config`; returns when it is ready and reads back the same.

        Raises Refused when the server will not load it (the old version serves on) or serves something else than
        was sent; Unavailable when it does not answer or has not finished within `limit`: the load may then still
        finish later, and later loads wait behind it.
        """
        model = self.target.model
        with _conversation(self.target.replica(replica), limit, f"refused to load {model}") as client:
            client.load_model(model, config=json.dumps(dict(config)))
            while not client.is_model_ready(model):
                gevent.sleep(READY_POLL_SECONDS)
            served = _read(client, model)
        if fingerprint(served) != fingerprint(config):
            changed = ", ".join(differing_fields(config, served))
            raise Refused(
                f"{replica} loaded {model} but serves other values than were sent ({changed}): read it again"
            )


def differing_fields(sent: ModelConfig, served: ModelConfig) -> list[str]:
    """Return the top-level fields in which two configurations differ in meaning, sorted."""
    return [key for key in sorted({*sent, *served}) if _meaning(sent, key) != _meaning(served, key)]


def _meaning(config: ModelConfig, key: str) -> str:
    # The largest batch is part of what the preferred sizes mean.
    context = {"max_batch_size": config.get("max_batch_size")} if key == "dynamic_batching" else {}
    return fingerprint({key: config.get(key), **context})


def _read(client: InferenceServerClient, model: str) -> dict[str, Any]:
    config = client.get_model_config(model)
    if not isinstance(config, dict) or "name" not in config:
        raise ValueError("the answer is not a model configuration")
    if field := misshapen_field(config):
        raise ValueError(f"{field} has no form that Triton gives it")
    return config


@contextmanager
def _conversation(replica: Replica, limit: timedelta, failure: str) -> Iterator[InferenceServerClient]:
    """A client for one server, closed at the end; all of it must be over within `limit`.

    failure: what a refusal means, as the rest of a sentence that begins with the replica's name.
    """
    system = f"triton {replica.name}"
    deadline = gevent.Timeout(limit.total_seconds())
    try:
        with _client(replica, limit) as client, deadline:
            yield client
    except gevent.Timeout as timeout:
        if timeout is not deadline:
            raise
        raise Unavailable(system, f"no answer within {limit.total_seconds():g} s") from None
    except InferenceServerException as error:
        raise _translated(replica, failure, error) from error
    except TimeoutError as error:
        raise Unavailable(system, f"no answer within {limit.total_seconds():g} s") from error
    except OSError as error:
        raise Unavailable(system, f"{error.strerror or error} ({replica.http_url})".lower()) from error
    except (HTTPParseError, ValueError) as error:
        raise Unavailable(
            system, f"answers with something that is not Triton's ({replica.http_url})"
        ) from error


@contextmanager
def _client(replica: Replica, limit: timedelta) -> Iterator[InferenceServerClient]:
    url = urlsplit(replica.http_url if "://" in replica.http_url else f"http://{replica.http_url}")
    if url.scheme not in {"http", "https"} or not url.hostname:
        raise InvalidInput(f"replicas.{replica.name}.http_url", replica.http_url, "http://HOST:PORT")
    client = InferenceServerClient(
        f"{url.netloc}{url.path.rstrip('/')}",
        connection_timeout=min(CONNECT_LIMIT, limit).total_seconds(),
        network_timeout=limit.total_seconds(),
        ssl=url.scheme == "https",
        ssl_context_factory=create_default_context if url.scheme == "https" else None,
    )
    try:
        yield client
    finally:
        client.close()
        if threading.current_thread() is not threading.main_thread():
            # The event loop that gevent made for this thread holds two descriptors until it is destroyed.
            gevent.get_hub().destroy(destroy_loop=True)


def _translated(replica: Replica, failure: str, error: InferenceServerException) -> AutotunerError:
    status = error.status() or ""
    if error.debug_details() is not None or status in PROXY_FAILURES:
        return Unavailable(f"triton {replica.name}", f"answers with HTTP {status} that is not Triton's own")
    return Refused(f"{replica.name} {failure}: {explain(error.message())}")

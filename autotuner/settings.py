"""All settings of the service, read once from the environment and passed on as plain values.

Each has a type, a unit, a default and a reason; settings that depend on one another are checked together here.
"""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass

from pydantic import Field, SecretStr, ValidationError, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from autotuner.addresses import AllowList
from autotuner.errors import InvalidInput
from autotuner.secret_shelf import SecretShelf

PREFIX = "AUTOTUNER_"

LONGEST_CALL_SECONDS = 5.0
"""No single call of an adapter within a tick takes longer than this (loads run beside the tick)."""


SHORTEST_KEY = 32
"""Characters of a key that sessions are sealed with: fewer could be tried out."""


def _person() -> str:
    """User and host name; a process whose user has no name is known by its number."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = f"uid-{os.getuid()}"
    return f"{user}@{socket.gethostname()}"


class Settings(BaseSettings):
    """Settings of one process, from environment variables that begin with `AUTOTUNER_`."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="ignore", frozen=True)

    database_url: SecretStr = Field(
        SecretStr(""),
        description="PostgreSQL ≥ 15 to remember everything in, as postgresql+psycopg://USER:PASSWORD@HOST/DATABASE. "
        "No default: a wrong guess would split the history.",
    )
    holder: str = Field(
        default_factory=lambda: f"{socket.gethostname()}:{os.getpid()}",
        min_length=1,
        description="Name of this process in leases and in the audit. Default: host name and process id.",
    )
    actor: str = Field(
        default_factory=_person,
        min_length=1,
        description="Who is recorded as having asked for what this process does. Default: user and host name.",
    )
    lease_seconds: float = Field(
        15.0,
        gt=0,
        description="Seconds after which another worker takes over a target whose worker went silent. "
        "Shorter is quicker after a crash, longer survives a slower database. "
        f"At least {2 * LONGEST_CALL_SECONDS:g}: a lease must outlive the slowest tick.",
    )
    threads: int = Field(
        16,
        ge=2,
        le=64,
        description="Ticks that one worker makes at the same time; each waits for servers. More carry more "
        "targets that answer slowly.",
    )
    kubeconfig: str = Field(
        "",
        description="A kubeconfig file for targets on Kubernetes. Default: the service account of the pod this runs "
        "in; outside of one, KUBECONFIG or the usual file of the user.",
    )
    kube_context: str = Field(
        "", description="The context of that file. Default: its current one. Not used inside a pod."
    )
    load_threads: int = Field(
        64,
        ge=1,
        le=1000,
        description="Loads of models that one worker waits for at the same time; a load takes seconds to minutes.",
    )
    studies: int = Field(
        1000,
        ge=1,
        le=10_000,
        description="Studies that one worker carries at most; what is beyond waits for another worker.",
    )
    canaries_per_site: int = Field(
        20,
        ge=1,
        le=100_000,
        description="Canaries under load at the same time on one site (`site` of a target); further studies wait in "
        "the order they came. Protects a cluster from too many experiments at once.",
    )
    database_connections: int = Field(
        10,
        ge=2,
        le=200,
        description="Connections to the database that this process opens at most. What needs one more waits up to 5 s.",
    )
    api_host: str = Field(
        "127.0.0.1",
        min_length=1,
        description="Address that `autotuner serve` listens on. Loopback by default: a proxy in front ends TLS.",
    )
    api_port: int = Field(
        8080, ge=0, le=65535, description="Port that `autotuner serve` listens on; 0 for any free one."
    )
    api_trusted_proxies: str = Field(
        "",
        description="Addresses of proxies, separated by commas, whose X-Forwarded-For names the client. "
        "Empty: none is believed.",
    )
    api_requests_per_minute: int = Field(
        600,
        ge=1,
        description="Requests a minute that one actor may make of all processes together, in bursts of up to a tenth. "
        "More are answered with 429.",
    )
    api_failures_per_minute: int = Field(
        30,
        ge=1,
        description="Requests a minute with an unknown token that one client address may make of all processes "
        "together. More are answered with 429 without a look into the database.",
    )
    api_streams: int = Field(
        100, ge=1, description="Event streams of running studies that one process serves at the same time."
    )
    ui_session_key: SecretStr = Field(
        SecretStr(""),
        description="What sessions of the web UI are sealed with: at least 32 characters, the same for every process "
        "that serves. Empty: a new one at each start, so that sessions end with the process.",
    )
    target_addresses: str = Field(
        "10.0.0.0/8,172.16.0.0/12,192.168.0.0/16,fd00::/8",
        description="Networks, addresses, names and domains (*.example) that a target registered over REST may name, "
        "separated by commas. Names are not resolved. Default: private networks, not this machine itself.",
    )
    oidc_issuer: str = Field(
        "",
        pattern=r"^(https?://\S+)?$",
        description="URL of the OpenID Connect issuer whose JWTs are believed as bearer tokens. Empty: none.",
    )
    oidc_audience: str = Field(
        "",
        description="Audience (aud) that a JWT must be for. Needed with an issuer: other tokens are no key.",
    )
    oidc_clock_skew_seconds: float = Field(
        60.0,
        ge=0,
        le=300,
        description="Seconds that the issuer's clock may differ from this machine's. Longer lets expired tokens live.",
    )
    oidc_actor_claim: str = Field(
        "sub",
        min_length=1,
        description="Claim of a JWT that names the actor in the audit, such as sub or email.",
    )
    oidc_scope_claim: str = Field(
        "scope",
        min_length=1,
        description="Claim of a JWT that holds the scopes viewer, operator, approver and admin, "
        "as a text with spaces or a list; each may begin with autotuner:.",
    )
    webhooks: SecretStr = Field(
        SecretStr(""),
        description="URLs that notices are posted to, separated by commas; slack+https://… for Slack's format. "
        "Never shown: they may hold a secret.",
    )
    webhook_secret: SecretStr = Field(
        SecretStr(""),
        description="What the bodies of notices are signed with (HMAC-SHA256). Needed with webhooks other than "
        "Slack's: without it a receiver could not tell who sent them.",
    )
    secrets: SecretStr = Field(
        SecretStr(""),
        description="Secrets that targets name, such as a token for a metrics server, as a JSON object: "
        '{"prometheus": "…"}. Never shown. A file in the secrets\' directory comes first.',
    )
    secrets_directory: str = Field(
        "",
        description="Folder with one file for each secret that targets name; a file is read at each use, so a changed "
        "one counts at once. Empty: none.",
    )
    inconclusive_nights: int = Field(
        3,
        ge=1,
        le=100,
        description="Inconclusive nights in a row of one target after which a notice is sent. "
        "One alone happens; several mean that nothing will come of it.",
    )
    metrics_host: str = Field(
        "127.0.0.1",
        min_length=1,
        description="Address on which a worker or a scheduler serves its metrics. Loopback by default: whoever reaches "
        "it may read them.",
    )
    metrics_port: int = Field(
        0,
        ge=0,
        le=65535,
        description="Port on which a worker or a scheduler serves its metrics, at /metrics; 0 for none. "
        "The REST API serves its own.",
    )
    otlp_endpoint: str = Field(
        "",
        pattern=r"^(https?://\S+)?$",
        description="URL of an OpenTelemetry collector that traces are sent to, by OTLP over HTTP, such as "
        "http://127.0.0.1:4318. Empty: nothing is traced, and tracing costs nothing.",
    )
    otlp_headers: SecretStr = Field(
        SecretStr(""),
        description="Headers for the collector, as name=value, separated by commas. Never shown: they may hold a key.",
    )
    traces_share: float = Field(
        1.0,
        ge=0,
        le=1,
        description="Part of all traces, 0 to 1, that is sent: a trial is sent whole or not at all, whichever worker "
        "carries it. Less than 1 where many studies run.",
    )
    trace_url: str = Field(
        "",
        pattern=r"^(https?://\S+\{trace_id\}\S*)?$",
        description="Where people look at a trace, with {trace_id} in it, such as "
        "http://127.0.0.1:16686/trace/{trace_id}. Empty: trials have no link.",
    )
    log_format: str = Field(
        "auto",
        pattern="^(auto|text|json)$",
        description="How logs are written: text, json, or auto (text on a terminal, json otherwise).",
    )
    log_level: str = Field(
        "WARNING",
        pattern="^(DEBUG|INFO|WARNING|ERROR)$",
        description="The least severe event that is logged: DEBUG, INFO, WARNING or ERROR.",
    )

    @model_validator(mode="after")
    def _lease_outlives_a_tick(self) -> Settings:
        least = 2 * LONGEST_CALL_SECONDS
        if self.lease_seconds < least:
            allowed = f"at least {least:g}: a lease must outlive the slowest tick of the worker that holds it"
            raise InvalidInput(variable("lease_seconds"), self.lease_seconds, allowed)
        return self

    @model_validator(mode="after")
    def _issuer_needs_an_audience(self) -> Settings:
        if self.oidc_issuer and not self.oidc_audience:
            allowed = f"the audience of this service's tokens, since {variable('oidc_issuer')} is set"
            raise InvalidInput(variable("oidc_audience"), "", allowed)
        return self

    @model_validator(mode="after")
    def _secrets_can_be_read(self) -> Settings:
        try:
            SecretShelf.read(self.secrets.get_secret_value(), self.secrets_directory)
        except InvalidInput as error:
            raise InvalidInput(variable("secrets"), "a secret", error.allowed) from error
        return self

    @model_validator(mode="after")
    def _session_key_cannot_be_guessed(self) -> Settings:
        key = self.ui_session_key.get_secret_value()
        if key and len(key) < SHORTEST_KEY:
            allowed = f"at least {SHORTEST_KEY} characters that nobody can guess, or nothing"
            raise InvalidInput(variable("ui_session_key"), "(not shown)", allowed)
        return self

    @model_validator(mode="after")
    def _addresses_can_be_read(self) -> Settings:
        try:
            AllowList.read(self.target_addresses)
        except InvalidInput as error:
            raise InvalidInput(variable("target_addresses"), error.value, error.allowed) from error
        return self


@dataclass(frozen=True)
class Variable:
    """One environment variable, for help and documentation. default: as text; empty when there is none."""

    name: str
    description: str
    default: str


def variable(field: str) -> str:
    """Return the environment variable of a setting."""
    return f"{PREFIX}{field.upper()}"


def variables() -> Iterator[Variable]:
    """Yield every environment variable that is read into `Settings`, in order."""
    for name, field in Settings.model_fields.items():
        told = (
            "" if field.default_factory is not None or isinstance(field.default, SecretStr) else field.default
        )
        yield Variable(variable(name), field.description or "", str(told))


def read_settings() -> Settings:
    """Return the settings of this process. Raises InvalidInput naming the variable, the value and what is allowed."""
    try:
        return Settings()
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = str(first["loc"][0])
        value = "a secret" if name == "database_url" else first.get("input")
        allowed = f"{Settings.model_fields[name].description} ({first['msg']})"
        raise InvalidInput(variable(name), value, allowed) from error

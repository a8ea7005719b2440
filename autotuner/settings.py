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

from autotuner.errors import InvalidInput

PREFIX = "AUTOTUNER_"

LONGEST_CALL_SECONDS = 5.0
"""No single call of an adapter within a tick takes longer than this (loads run beside the tick)."""


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
        16, ge=2, description="Threads that read servers and load models beside the ticks of this process."
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

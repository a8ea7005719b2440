"""All settings of the service, read once from the environment and passed on as plain values.

Each has a type, a unit, a default and a reason; settings that depend on one another are checked together here.
"""

from __future__ import annotations

import os
import socket

from pydantic import Field, SecretStr, ValidationError, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from autotuner.errors import InvalidInput

PREFIX = "AUTOTUNER_"

LONGEST_CALL_SECONDS = 5.0
"""No single call of an adapter within a tick takes longer than this (loads run beside the tick)."""


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
        description="Name of this process in leases and in the audit. Default: host name and process id.",
    )
    lease_seconds: float = Field(
        15.0,
        gt=0,
        description="Seconds after which another worker takes over a target whose worker went silent. "
        "Shorter is quicker after a crash, longer survives a slower database.",
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
        if self.lease_seconds < 2 * LONGEST_CALL_SECONDS:
            raise ValueError(
                f"lease_seconds must be at least {2 * LONGEST_CALL_SECONDS:g}: "
                "a lease must outlive the slowest tick of the worker that holds it"
            )
        return self


def read_settings() -> Settings:
    """Return the settings of this process. Raises InvalidInput naming the variable, the value and what is allowed."""
    try:
        return Settings()
    except ValidationError as error:
        first = error.errors()[0]
        name = PREFIX + "_".join(str(part) for part in first["loc"]).upper() if first["loc"] else PREFIX + "*"
        raise InvalidInput(name, first.get("input"), first["msg"]) from error

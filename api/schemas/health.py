"""Whether the service lives, and whether it can be used."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from api.schemas.wire import Answer


class Health(Answer):
    """The process answers."""

    status: Literal["ok"] = Field(description="Always `ok`: who does not live does not answer.")
    version: str = Field(description="The service's version.", examples=["0.1.0"])


class Check(Answer):
    """One thing the service cannot do without."""

    name: str = Field(description="What was checked: `database`, then `schema`.", examples=["database"])
    ready: bool = Field(description="Whether it can be used.")
    detail: str = Field(
        description="Why not, and what to do; empty when it is ready.",
        examples=["postgres is unavailable: connection refused"],
    )


class Readiness(Answer):
    """Whether requests can be served now, and what is not ready."""

    ready: bool = Field(description="Whether every check is ready.")
    checks: list[Check] = Field(description="Each check; those after one that failed are left out.")


class Me(Answer):
    """Who the service takes the caller for."""

    actor: str = Field(description="The name the audit records.", examples=["anna"])
    scopes: list[str] = Field(description="The scopes held.", examples=[["operator"]])
    source: str = Field(
        description="What vouched for it: a token by its id, or an issuer.", examples=["token 3f9ac2d1"]
    )

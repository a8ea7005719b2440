"""The fields of a section by which this service shows a server who asks: tenant, token, user and password, certificate.

Secrets are named here, never written: a target is stored, shown and sent over the API.
"""

from __future__ import annotations

from typing import Annotated, Any, Protocol

from pydantic import Field

from autotuner.domain.sources import PrometheusServer, TraceStore
from autotuner.errors import InvalidInput
from autotuner.sections import Section

NAMED_PATTERN = r"^[a-z0-9][a-z0-9-]{0,62}$"
NAMED_ALLOWED = "the name of a secret, not the secret: lower-case letters, digits and hyphens, up to 63"

SecretName = Annotated[str, Field(pattern=NAMED_PATTERN, description=NAMED_ALLOWED)]


class BasicSection(Section):
    """A user and the name of the secret that is its password."""

    user: str = Field(
        min_length=1, max_length=200, pattern=r"^[^:\x00-\x1f]+$", description="a user's name, without colon"
    )
    password: SecretName


Tenant = Annotated[
    str,
    Field(
        max_length=200,
        pattern=r"^[^\x00-\x1f\x7f]*$",
        description="a text of at most 200 characters on one line, sent as X-Scope-OrgID",
    ),
]
Bearer = Annotated[SecretName | None, Field(description=NAMED_ALLOWED)]
Basic = Annotated[BasicSection | None, Field(description="a section with user and password")]
Certificate = Annotated[SecretName | None, Field(description=NAMED_ALLOWED + "; a certificate in PEM")]


class Identified(Protocol):
    """A section with these fields."""

    @property
    def tenant(self) -> str:
        """Sent as X-Scope-OrgID; empty for none."""

    @property
    def bearer(self) -> str | None:
        """The name of the secret that is a token."""

    @property
    def basic(self) -> BasicSection | None:
        """A user with the name of its password."""

    @property
    def ca(self) -> str | None:
        """The name of the secret that is a certificate."""


def check_identity(place: str, section: Identified) -> None:
    """Raise InvalidInput for a section at `place` that says two ways to show who asks."""
    if section.bearer and section.basic:
        raise InvalidInput(f"{place}.basic", section.basic.user, "nothing, since bearer is given")


def identity(section: Identified) -> dict[str, str]:
    """Return what a section says, in the words of a `PrometheusServer` or a `TraceStore`."""
    return {
        "tenant": section.tenant,
        "bearer": section.bearer or "",
        "user": section.basic.user if section.basic else "",
        "password": section.basic.password if section.basic else "",
        "ca": section.ca or "",
    }


def identity_of(asked: PrometheusServer | TraceStore) -> dict[str, Any]:
    """Return what a section would say of who asks."""
    return {
        "tenant": asked.tenant,
        "bearer": asked.bearer or None,
        "basic": {"user": asked.user, "password": asked.password} if asked.user else None,
        "ca": asked.ca or None,
    }

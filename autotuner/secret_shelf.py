"""Secrets by name, from files or the environment: a target names one, and only whoever runs the service sets it.

A target may come from anybody who may register one; were it to name a file or a variable itself, it could send any of
them to an address of its choice.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from autotuner.errors import InvalidInput

NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
ALLOWED = 'a JSON object of names (lower-case letters, digits, hyphens) and secrets, {"prometheus": "…"}'


@dataclass(frozen=True)
class SecretShelf:
    """Where secrets are. Its text shows none."""

    given: Mapping[str, str] = field(default_factory=dict, repr=False)
    directory: str = ""

    @classmethod
    def read(cls, text: str, directory: str) -> SecretShelf:
        """Return the secrets in a JSON object and a folder. Raises InvalidInput, which shows none of them."""
        try:
            given = json.loads(text) if text else {}
        except ValueError:
            raise InvalidInput("secrets", "a secret", ALLOWED) from None
        if not isinstance(given, dict) or not all(
            NAME.fullmatch(name) and isinstance(secret, str) for name, secret in given.items()
        ):
            raise InvalidInput("secrets", "a secret", ALLOWED)
        return cls(given, directory)

    def __call__(self, name: str) -> str:
        """Return a secret, without the line end of its file. Raises InvalidInput when there is none of that name."""
        found = self._in_directory(name) if NAME.fullmatch(name) else None
        found = self.given.get(name) if found is None else found
        if not found:
            allowed = "the name of a secret in AUTOTUNER_SECRETS_DIRECTORY or AUTOTUNER_SECRETS"
            raise InvalidInput("secret", name, allowed)
        return found

    def _in_directory(self, name: str) -> str | None:
        if not self.directory:
            return None
        try:
            return (Path(self.directory) / name).read_text("utf-8").strip()
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError):
            raise InvalidInput(
                "secret", name, "a readable text file in AUTOTUNER_SECRETS_DIRECTORY"
            ) from None

"""What a Triton tells of itself over HTTP, by GET alone: nothing that could load, unload or infer is ever sent."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import quote

from autotuner.adapters.scrape.reading import PLAIN, Access, Answer, read_all
from autotuner.errors import NotFound, Refused, Unavailable

DENIED = (401, 403, 407)
RESTRICTED = re.compile(r"This API is restricted|protocol is restricted", re.IGNORECASE)
UNKNOWN_MODEL = re.compile(r"unknown model|is not found|no version|not ready", re.IGNORECASE)


@dataclass(frozen=True)
class HttpServing:
    """`ServerApi` of one Triton over HTTP. name: how it is called in messages."""

    name: str
    url: str
    access: Access = PLAIN
    limit: timedelta = timedelta(seconds=5)

    def metadata(self) -> Mapping[str, Any]:
        """Return name, version and extensions. Raises Unavailable, Refused."""
        return self._ask("/v2", "metadata")

    def model_config(self, model: str) -> Mapping[str, Any]:
        """Return a model's complete configuration. Raises Unavailable, Refused, NotFound."""
        return self._ask(f"/v2/models/{quote(model, safe='')}/config", "model configuration", model)

    def statistics(self, model: str) -> Mapping[str, Any]:
        """Return a model's inference statistics, those of all models for an empty name. Raises as model_config does."""
        place = f"/v2/models/{quote(model, safe='')}/stats" if model else "/v2/models/stats"
        return self._ask(place, "inference statistics", model)

    def _ask(self, path: str, what: str, model: str = "") -> Mapping[str, Any]:
        url = self.url.rstrip("/") + path
        answer = read_all([url], self.limit, self.access)[url]
        if answer.fault:
            raise self._translated(answer, what, model)
        try:
            found = json.loads(answer.text)
        except (ValueError, RecursionError) as error:
            kind = "a web page" if answer.text.lstrip()[:1] == "<" else "something that is not JSON"
            raise Unavailable(self._system, f"{url} answers with {kind}: this is no Triton") from error
        if not isinstance(found, dict):
            raise Unavailable(self._system, f"{url} answers with JSON that is not Triton's")
        return found

    @property
    def _system(self) -> str:
        return f"triton {self.name}"

    def _translated(self, answer: Answer, what: str, model: str) -> Unavailable | Refused | NotFound:
        said = _said(answer.text)
        if answer.status in DENIED:
            if RESTRICTED.search(said):
                return Refused(
                    f"{self.name} restricts its {what}: pass the header that it expects with --header"
                )
            return Refused(
                f"{self.name} does not let us read its {what} (HTTP {answer.status}): pass credentials with --header"
            )
        if model and said and UNKNOWN_MODEL.search(said):
            return NotFound("model", model)
        if said:
            return Refused(f"{self.name} does not tell its {what}: {said}")
        return Unavailable(self._system, f"{answer.fault} ({self.url})")


def _said(text: str) -> str:
    """Triton's own error; empty for anybody else's."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return ""
    error = found.get("error") if isinstance(found, dict) else None
    return " ".join(str(error).split())[:200] if isinstance(error, str) else ""

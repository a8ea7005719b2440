"""Static files of the web UI: read once, served by us alone, under addresses that change with their content."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files

from starlette.responses import Response

from autotuner.errors import NotFound

HTMX = "htmx-4.0.1.min.js"
ABOUT = "api/ui/static/README.md"

SOURCES: Mapping[str, tuple[str, str, str]] = {
    "charts.css": ("autotuner.report", "templates/style.css", "text/css; charset=utf-8"),
    "ui.css": ("api.ui", "static/ui.css", "text/css; charset=utf-8"),
    "icon.svg": ("api.ui", "static/icon.svg", "image/svg+xml"),
    "live.js": ("api.ui", "static/live.js", "text/javascript; charset=utf-8"),
    HTMX: ("api.ui", f"static/{HTMX}", "text/javascript; charset=utf-8"),
}
"""Each file's name in an address: its package, its path there, and its media type. Nothing else is served."""

FOREVER = "public, max-age=31536000, immutable"


@dataclass(frozen=True)
class Asset:
    """One file: its content, its media type and the version in its address."""

    content: bytes
    media_type: str
    version: str


def _read(package: str, path: str, media_type: str) -> Asset:
    content = files(package).joinpath(path).read_bytes()
    return Asset(content, media_type, hashlib.sha256(content).hexdigest()[:12])


class Assets:
    """Every static file."""

    def __init__(self) -> None:
        self._known = {name: _read(*source) for name, source in SOURCES.items()}

    def address(self, name: str) -> str:
        """Return the address of a file; a changed file has another one."""
        return f"/ui/static/{name}?v={self._known[name].version}"

    def response(self, name: str) -> Response:
        """Return a file as an answer. Raises NotFound."""
        found = self._known.get(name)
        if found is None:
            raise NotFound("file", name)
        return Response(found.content, media_type=found.media_type, headers={"Cache-Control": FOREVER})

"""From a study to its page. Nothing on the page is computed by a template: it only places what it is given."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from autotuner.domain.benefit import benefit
from autotuner.domain.study import Study
from autotuner.errors import InvalidInput

TEMPLATE = "page.html.j2"


def render(study: Study, note: str) -> str:
    """Return the report of a study as one HTML page that needs no other file.

    note: what stands behind the figures, for instance "emulated GPU". Works for a study in any state.
    """
    environment = Environment(
        loader=PackageLoader("autotuner.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(TEMPLATE).render(study=study, note=note, benefit=benefit(study))


def write_report(study: Study, path: Path, note: str) -> Path:
    """Write the report of a study to `path` and return it. Raises InvalidInput when it cannot be written there."""
    page = render(study, note)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise InvalidInput("report", str(path), f"a file that can be written ({error.strerror})") from error
    return path

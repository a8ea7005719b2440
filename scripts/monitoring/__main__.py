"""Grafana dashboards, recording rules and alerts, all from this one source.

    python -m scripts.monitoring [TARGET.yaml FOLDER]

Without arguments: what `deploy/monitoring` holds, with `examples/target-prometheus.yaml` as the example of a target.
"""

from __future__ import annotations

import sys
from pathlib import Path

from scripts.monitoring.files import EXAMPLE, FOLDER, files


def main(arguments: list[str]) -> None:
    """Write all files."""
    target_file, folder = (Path(each) for each in arguments) if arguments else (EXAMPLE, FOLDER)
    for name, text in files(target_file).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
        print(path)


if __name__ == "__main__":
    main(sys.argv[1:])

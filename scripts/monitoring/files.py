"""Every file that `deploy/monitoring` holds, as text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from autotuner.target_file import load_target_file
from scripts.monitoring.dashboards import dashboard
from scripts.monitoring.panels import fleet, studies, target_panels
from scripts.monitoring.queries import TargetQueries
from scripts.monitoring.rules import service_rules, target_rules

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "monitoring"
EXAMPLE = ROOT / "examples" / "target-prometheus.yaml"


def files(target_file: Path = EXAMPLE) -> dict[str, str]:
    """Return the text of every file by its path below `deploy/monitoring`."""
    asked = TargetQueries(load_target_file(target_file))
    dashboards = {
        "fleet": dashboard("fleet", "Autotuner: fleet", fleet()),
        "study": dashboard("study", "Autotuner: studies", studies()),
        asked.name: dashboard(asked.name, f"Autotuner: target {asked.name}", target_panels(asked)),
    }
    rules = {"autotuner": service_rules(), asked.name: target_rules(asked)}
    return {
        **{f"dashboards/{name}.json": json.dumps(each, indent=2) + "\n" for name, each in dashboards.items()},
        **{f"rules/{name}.yaml": _yaml(each) for name, each in rules.items()},
    }


def _yaml(content: Any) -> str:
    head = "# Written by python -m scripts.monitoring: change it there.\n"
    return head + yaml.safe_dump(content, sort_keys=False, width=120, allow_unicode=True)

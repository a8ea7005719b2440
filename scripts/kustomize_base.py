"""Renders `deploy/kustomize/base` from the Helm chart, so that there is one truth: `make kustomize`.

Hooks are Helm's alone: migrations are a plain Job here, and what ends studies before the chart is removed is left out,
because it would run when it is applied.
"""

from __future__ import annotations

import yaml

from tests.documents import ROOT
from tests.kubernetes.chart import rendered

PAGE = ROOT / "deploy" / "kustomize" / "base" / "autotuner.yaml"
HEAD = "# Rendered from deploy/helm/autotuner by `make kustomize`: change the chart, not this.\n"
OPTIONS = ("--set=uninstall.cancelStudies=false", "--set=targets.namespaces={prod}")


def base() -> str:
    """Return the text of the base."""
    manifests = rendered(*OPTIONS)
    for each in manifests:
        metadata = each["metadata"]
        metadata["labels"].pop("helm.sh/chart", None)
        metadata["labels"]["app.kubernetes.io/managed-by"] = "kustomize"
        hooks = {k: v for k, v in metadata.get("annotations", {}).items() if not k.startswith("helm.sh/")}
        metadata.pop("annotations", None)
        if hooks:
            metadata["annotations"] = hooks
    return HEAD + yaml.safe_dump_all(manifests, sort_keys=False)


if __name__ == "__main__":
    PAGE.write_text(base(), "utf-8")
    print(PAGE.relative_to(ROOT))

"""The Helm chart, rendered by a real helm that is built once into the cache from its Go module."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml

from autotuner.cache import cache_directory
from tests.documents import ROOT
from tests.kubernetes.plane import NoGo

HELM = "v3.19.0"
CHART = ROOT / "deploy" / "helm" / "autotuner"


def helm() -> Path:
    """The helm program, built when it is not there yet. Raises NoGo."""
    built = cache_directory() / f"helm-{HELM}" / "helm"
    if built.exists():
        return built
    go = shutil.which("go", path=f"{os.environ.get('PATH', '')}:/usr/local/go/bin")
    if go is None:
        raise NoGo("no Go found: helm cannot be built")
    environment = {
        **os.environ,
        "GOBIN": str(built.parent),
        "CGO_ENABLED": "0",
        "GOTOOLCHAIN": os.environ.get("GOTOOLCHAIN", "auto"),
    }
    flags = ["-trimpath", "-ldflags=-s -w"]
    subprocess.run([go, "install", *flags, f"helm.sh/helm/v3/cmd/helm@{HELM}"], check=True, env=environment)
    return built


def rendered(*words: str, version: str = "1.34.0", namespace: str = "autotuner") -> list[dict[str, Any]]:
    """The manifests of the chart with these options of `helm template`."""
    command = [str(helm()), "template", "autotuner", str(CHART), "--namespace", namespace]
    done = subprocess.run(
        [*command, "--kube-version", version, *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.safe_load_all(done.stdout) if each]

"""The schemas of the routes, as their projects publish them in their Go modules, installed into the API server.

They are read where Go keeps downloaded modules and are no part of this repository. KServe's and Seldon Core's are
reduced ones of our own, in `serving_schemas.yaml`: theirs are megabytes of pod templates.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import yaml

from autotuner.cache import cache_directory
from tests.kubernetes.api import Api

GATEWAY_API = ("sigs.k8s.io/gateway-api", "v1.3.0", "config/crd/standard")
ISTIO = ("istio.io/api", "v1.26.0", "kubernetes")
WANTED = {
    "httproutes.gateway.networking.k8s.io",
    "grpcroutes.gateway.networking.k8s.io",
    "virtualservices.networking.istio.io",
}
KEPT = "route-schemas.json"
REDUCED = Path(__file__).with_name("serving_schemas.yaml")


def install_schemas(api: Api) -> None:
    """Make the API server know the kinds of routes."""
    wanted = (*schemas(), *reduced_schemas())
    for schema in wanted:
        api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", schema)
    for schema in wanted:
        spec = schema["spec"]
        version = next(each["name"] for each in spec["versions"] if each["storage"])
        served = f"/apis/{spec['group']}/{version}/{spec['names']['plural']}"
        api.wait_for(served, timedelta(seconds=30))


def reduced_schemas() -> list[dict[str, Any]]:
    """The schemas of our own."""
    return list(yaml.safe_load_all(REDUCED.read_text("utf-8")))


def schemas() -> list[dict[str, Any]]:
    """The schemas, read from the modules the first time."""
    kept = cache_directory() / KEPT
    if not kept.exists():
        found = [each for module in (GATEWAY_API, ISTIO) for each in _published(*module)]
        kept.write_text(json.dumps(found))
    schemas: list[dict[str, Any]] = json.loads(kept.read_text())
    assert {each["metadata"]["name"] for each in schemas} == WANTED
    return schemas


def _published(module: str, version: str, folder: str) -> Iterator[dict[str, Any]]:
    go = shutil.which("go", path=f"{os.environ.get('PATH', '')}:/usr/local/go/bin")
    assert go is not None, "no Go to download the schemas with"
    said = subprocess.run(
        [go, "mod", "download", "-json", f"{module}@{version}"], check=True, capture_output=True, text=True
    )
    for path in sorted(Path(json.loads(said.stdout)["Dir"], folder).glob("*.yaml")):
        for each in yaml.safe_load_all(path.read_text()):
            if each and each["kind"] == "CustomResourceDefinition" and each["metadata"]["name"] in WANTED:
                yield each

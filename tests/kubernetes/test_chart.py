"""The chart: valid for every supported version, and taken by a real API server."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import kubernetes_validate
import pytest
import yaml

from autotuner.domain.workload import RouteKind
from scripts.kustomize_base import base
from tests.documents import ROOT
from tests.kubernetes.chart import CHART, helm, rendered
from tests.kubernetes.plane import NEWEST, OLDEST, ControlPlane

VALUE_SETS = {
    "defaults": (),
    "everything": (
        "--set=api.autoscaling.enabled=true,serviceMonitor.enabled=true,serviceMonitor.labels.release=prometheus",
        "--set=targets.namespaces={prod,staging}",
        "--set=targets.routes={" + ",".join(RouteKind) + "}",
        "--set=image.digest=sha256:" + "ab" * 32,
        "--set=settings.CANARIES_PER_SITE=5,imagePullSecrets[0].name=registry",
        "--set=secretSettings.WEBHOOK_SECRET.secret=hooks,secretSettings.WEBHOOK_SECRET.key=secret",
        "--set=networkPolicy.ingressFrom[0].namespaceSelector.matchLabels.team=platform",
    ),
    "least": (
        "--set=disruptionBudget.enabled=false,networkPolicy.enabled=false,uninstall.cancelStudies=false",
        "--set=api.replicas=1,worker.replicas=1,scheduler.replicas=1",
    ),
}
EVERY_SET = pytest.mark.parametrize("values", VALUE_SETS.values(), ids=VALUE_SETS.keys())
FIRST, LAST = (int(version.split(".")[1]) for version in (OLDEST, NEWEST))
VERSIONS = tuple(f"1.{minor}" for minor in range(FIRST, LAST + 1))


@EVERY_SET
def test_helm_lints_the_chart(values: tuple[str, ...]) -> None:
    done = subprocess.run(
        [str(helm()), "lint", "--strict", str(CHART), *values], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("version", VERSIONS)
@EVERY_SET
def test_every_manifest_fits_the_schema_of_every_supported_version(
    values: tuple[str, ...], version: str
) -> None:
    for manifest in rendered(*values, version=f"{version}.0"):
        if manifest["kind"] != "ServiceMonitor":
            kubernetes_validate.validate(manifest, version, strict=True)


def test_the_chart_and_the_page_name_the_versions_that_are_tested() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))
    page = (ROOT / "docs" / "kubernetes.md").read_text("utf-8")
    assert chart["kubeVersion"] == f">={VERSIONS[0]}.0-0"
    assert f"Kubernetes {VERSIONS[0]} to {VERSIONS[-1]}" in page
    assert f"| {OLDEST} |" in page
    assert f"| {NEWEST} |" in page


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ("api.replicas=0", "replicas"),
        ("image.digest=latest", "digest"),
        ("targets.routes={Gateway}", "routes"),
        ("databse.secret=x", "databse"),
    ],
)
def test_values_that_cannot_be_used_are_refused_by_name(wrong: str, says: str) -> None:
    command = [str(helm()), "template", "autotuner", str(CHART), f"--set={wrong}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert says in done.stderr


@EVERY_SET
def test_every_pod_is_restricted_and_only_who_needs_it_has_a_token(values: tuple[str, ...]) -> None:
    for pod in _pods(rendered(*values)):
        container = pod["containers"][0]
        assert pod["securityContext"]["runAsNonRoot"]
        assert container["securityContext"]["readOnlyRootFilesystem"]
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        needs = container["name"] in ("worker", "scheduler", "reaper", "leave")
        assert pod["automountServiceAccountToken"] == needs


def _pods(manifests: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for each in manifests:
        if each["kind"] in ("Deployment", "Job"):
            yield each["spec"]["template"]["spec"]
        elif each["kind"] == "CronJob":
            yield each["spec"]["jobTemplate"]["spec"]["template"]["spec"]


def test_what_kustomize_has_is_what_the_chart_has() -> None:
    kept = (ROOT / "deploy" / "kustomize" / "base" / "autotuner.yaml").read_text("utf-8")
    assert kept == base(), "make kustomize renders it anew"


@pytest.mark.skipif(shutil.which("kubectl") is None and not os.environ.get("CI"), reason="no kubectl here")
def test_the_overlay_can_be_built() -> None:
    folder = ROOT / "deploy" / "kustomize" / "overlays" / "example"
    done = subprocess.run(["kubectl", "kustomize", str(folder)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    built = [each for each in yaml.safe_load_all(done.stdout) if each]
    images = {pod["containers"][0]["image"] for pod in _pods(built)}
    assert len(images) == 1
    assert images.pop().startswith("registry.internal/autotuner@sha256:")
    assert {each["metadata"]["namespace"] for each in built} == {"tuning", "prod"}


def test_a_real_api_server_takes_every_manifest_into_a_restricted_namespace(
    control_plane: ControlPlane,
) -> None:
    api = control_plane.api
    enforced = {"pod-security.kubernetes.io/enforce": "restricted"}
    api.create("/api/v1/namespaces", {"metadata": {"name": "autotuner", "labels": enforced}})
    try:
        for manifest in rendered("--set=api.autoscaling.enabled=true"):
            group = manifest["apiVersion"]
            root = "/api/v1" if group == "v1" else f"/apis/{group}"
            plural = PLURALS.get(manifest["kind"], f"{manifest['kind'].lower()}s")
            path = f"{root}/namespaces/{manifest['metadata']['namespace']}/{plural}"
            api.ask("POST", f"{path}?dryRun=All&fieldValidation=Strict", manifest)
    finally:
        api.delete("/api/v1/namespaces/autotuner")


PLURALS = {"NetworkPolicy": "networkpolicies"}

"""What else is delivered for a cluster: the image's file, and the worked example, taken by a real API server."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from autotuner.adapters.kubernetes import Cluster, survey
from autotuner.domain.needs import Answer
from autotuner.target_file import load_target_file
from tests.cluster.team import NAMESPACE
from tests.documents import ROOT
from tests.kubernetes.account import of_kind
from tests.kubernetes.chart import rendered
from tests.kubernetes.plane import ControlPlane
from tests.kubernetes.town import removed

DOCKERFILE = ROOT / "deploy" / "docker" / "Dockerfile"
EXAMPLE = ROOT / "examples" / "kubernetes"
NO_KUBECTL = shutil.which("kubectl") is None and not os.environ.get("CI")
RELEASE = "delivered"
TEAMS = ("triton.yaml", "route.yaml")


def test_the_dockerfile_has_nothing_that_hadolint_objects_to() -> None:
    program = Path(sysconfig.get_path("scripts")) / "hadolint"
    done = subprocess.run(
        [str(program), "--no-color", str(DOCKERFILE)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_the_image_has_two_stages_runs_as_nobody_and_copies_what_there_is() -> None:
    text = DOCKERFILE.read_text("utf-8")
    assert len(re.findall(r"^FROM \$\{PYTHON\}", text, re.MULTILINE)) == 2
    assert re.findall(r"^USER (\S+)", text, re.MULTILINE) == ["65532:65532"]
    copied = [words.split()[:-1] for words in re.findall(r"^COPY (?!--from)(.+)$", text, re.MULTILINE)]
    missing = [name for names in copied for name in names if not (ROOT / name).exists()]
    assert missing == []
    pods = [each["spec"]["template"]["spec"] for each in of_kind(rendered(), "Deployment")]
    assert {pod["securityContext"]["runAsUser"] for pod in pods} == {65532}


@pytest.fixture(scope="module")
def namespaces(control_plane: ControlPlane) -> Iterator[None]:
    for name in (NAMESPACE, RELEASE):
        control_plane.api.create("/api/v1/namespaces", {"metadata": {"name": name}})
    yield
    control_plane.api.delete(f"/api/v1/namespaces/{RELEASE}")
    removed(control_plane.api, ())


def kubectl(control_plane: ControlPlane, *words: str, given: str | None = None) -> str:
    """What kubectl says; fails with what it complains of."""
    command = ["kubectl", "--kubeconfig", str(control_plane.kubeconfig), *words]
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(NO_KUBECTL, reason="no kubectl here")
@pytest.mark.usefixtures("namespaces")
def test_the_worked_example_is_taken_by_an_api_server(control_plane: ControlPlane) -> None:
    dry = ("apply", "--server-side", "--dry-run=server", "--validate=strict", "-f")
    for name in TEAMS:
        assert "serverside-applied" in kubectl(control_plane, *dry, str(EXAMPLE / name))
    manifests = rendered("--values", str(EXAMPLE / "autotuner-values.yaml"), namespace=RELEASE)
    known = [each for each in manifests if each["kind"] != "ServiceMonitor"]
    assert len(known) == len(manifests) - 1
    said = kubectl(control_plane, *dry, "-", given=yaml.safe_dump_all(known))
    assert len(said.splitlines()) == len(known)


@pytest.mark.skipif(NO_KUBECTL, reason="no kubectl here")
@pytest.mark.usefixtures("namespaces")
def test_the_target_of_the_worked_example_lacks_nothing_but_pods_that_run(
    control_plane: ControlPlane,
) -> None:
    for name in TEAMS:
        kubectl(control_plane, "apply", "-f", str(EXAMPLE / name))
    target = load_target_file(ROOT / "examples" / "target-kubernetes.yaml").target()
    found = survey(Cluster(str(control_plane.kubeconfig)), target)
    assert [each.what for each in found if each.answer is Answer.NO] == ["replicas"]
    values: dict[str, Any] = yaml.safe_load((EXAMPLE / "autotuner-values.yaml").read_text("utf-8"))
    assert target.workload is not None
    assert target.workload.namespace in values["targets"]["namespaces"]
    assert target.workload.route.kind in values["targets"]["routes"]

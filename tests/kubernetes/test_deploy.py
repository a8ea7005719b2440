"""What else is delivered for a cluster: the image's file."""

from __future__ import annotations

import re
import subprocess
import sysconfig
from pathlib import Path

from tests.documents import ROOT
from tests.kubernetes.account import of_kind
from tests.kubernetes.chart import rendered

DOCKERFILE = ROOT / "deploy" / "docker" / "Dockerfile"


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

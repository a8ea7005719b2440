"""A value that cannot be used ends a command with 2, before anything is started: field, value and what is allowed."""

from __future__ import annotations

import copy
import json
import re
import subprocess
import sys
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml

from autotuner.cli.exits import Exit
from autotuner.errors import NotFound
from tests import command_line
from tests.command_line import Terminal

LIMIT_SECONDS = 60

WORKLOAD: dict[str, Any] = yaml.safe_load(
    files("autotuner.sandbox").joinpath("workloads", "small-vision.yaml").read_text("utf-8")
)
TARGET: dict[str, Any] = command_line.TARGET | {
    "limits": command_line.TARGET["limits"] | {"preferred_batch_sizes": [[], [8]]}
}


@dataclass(frozen=True)
class Rejected:
    """A field (dotted path) set to a value, and what the refusal must say: the value and what is allowed."""

    field: str
    value: Any
    shown: str
    allowed: str

    def __str__(self) -> str:
        return f"{self.field}={self.value}"

    def changed(self, content: dict[str, Any]) -> dict[str, Any]:
        """The content with this field changed."""
        changed = copy.deepcopy(content)
        *parents, last = self.field.split(".")
        section: Any = changed
        for name in parents:
            section = section[int(name)] if isinstance(section, list) else section.setdefault(name, {})
        section[int(last) if isinstance(section, list) else last] = self.value
        return changed

    def written(self, content: dict[str, Any], path: Path) -> Path:
        """Write the content with this field changed to `path`."""
        path.write_text(yaml.safe_dump(self.changed(content), sort_keys=False), "utf-8")
        return path

    def told(self, errors: str) -> bool:
        """Whether one sentence of the errors names the field, the value and what is allowed."""
        sentence = (
            rf"{re.escape(self.field)}: {re.escape(self.shown)} is not allowed; allowed: .*{self.allowed}"
        )
        return re.search(sentence, errors) is not None


IN_A_WORKLOAD = [
    Rejected("preferred_batch_sizes", [4], "[4]", "one of the fields name, model, .*batch_latency_ms"),
    Rejected("traffic.rate", 100, "100", "one of the fields requests_per_second, arrivals"),
    Rejected("study.trials", 5, "5", "one of the fields objective, max_trials"),
    Rejected("slo.p99_ms", -100, "-100", "milliseconds above 0"),
    Rejected("slo.p99_ms", "100ms", "'100ms'", "milliseconds above 0"),
    Rejected("slo.p99_ms", 8, "8.0", r"more than 12\.2 ms, which one request takes"),
    Rejected("incumbent.preferred_batch_size", [4, 64], "64", "1 to max_batch_size, 32"),
    Rejected("incumbent.instance_count", 9, "9", "at most limits.instance_count, 4"),
    Rejected("slo.max_canary_share", 85, "85", r"a fraction above 0, up to 0\.95; not a percentage"),
    Rejected("slo.error_ratio", 0.1, "0.1", r"a fraction above 0, up to 0\.01"),
    Rejected("study.minimum_gain", "5%", "'5%'", r"a fraction.*: 5 % is 0\.05"),
    Rejected("study.approval", "perhaps", "'perhaps'", "one of: automatic, manual"),
    Rejected("model", "tensorrt", "'tensorrt'", "one of: emulated-gpu, onnx"),
]

IN_A_TARGET = [
    Rejected("tuned_by", "me", "'me'", "one of the fields name, model, stable"),
    Rejected("slo.p95_ms", 80, "80", "one of the fields p99_ms"),
    Rejected("slo.p99_ms", -100, "-100", "milliseconds above 0"),
    Rejected("limits.max_queue_delay_microseconds", 200_000, "200000", "at most slo.p99_ms, 100000"),
    Rejected("limits.preferred_batch_sizes.1", [8, 64], "[8, 64]", "up to the model's max_batch_size, 32"),
    Rejected("slo.max_canary_share", 50, "50", r"a fraction.*: 50 % is 0\.5"),
    Rejected("slo.error_ratio", "0.1%", "'0.1%'", r"a fraction.*: 0\.1 % is 0\.001"),
    Rejected("stable.1.url", "127.0.0.1:9010", "'127.0.0.1:9010'", "http://HOST:PORT"),
    Rejected("canary.metrics", "ftp://127.0.0.1/metrics", "'ftp://127.0.0.1/metrics'", "http://HOST:PORT"),
    Rejected("gateway.admin", "http://127.0.0.1:99999", "'http://127.0.0.1:99999'", "http://HOST:PORT"),
]


@pytest.mark.parametrize("rejected", IN_A_WORKLOAD, ids=str)
def test_a_workload_file_that_cannot_work_is_refused_before_anything_starts(
    rejected: Rejected, tmp_path: Path
) -> None:
    file, logs = rejected.written(WORKLOAD, tmp_path / "my-model.yaml"), tmp_path / "logs"

    ended = Terminal().run("demo", "--json", "--workload", file, "--directory", logs)

    assert ended.code == Exit.INVALID_INPUT
    assert rejected.told(ended.err), ended.err
    assert not logs.exists()


@pytest.mark.parametrize("command", [("target", "apply"), ("tune",)], ids=" ".join)
@pytest.mark.parametrize("rejected", IN_A_TARGET, ids=str)
def test_a_target_file_that_cannot_work_is_refused_before_anything_is_recorded(
    rejected: Rejected, command: tuple[str, ...], tmp_path: Path
) -> None:
    terminal = Terminal()

    ended = terminal.run(*command, rejected.written(TARGET, tmp_path / "target.yaml"))

    assert ended.code == Exit.INVALID_INPUT
    assert rejected.told(ended.err), ended.err
    assert not terminal.store.studies()
    with pytest.raises(NotFound):
        terminal.store.target(TARGET["name"])


@pytest.mark.parametrize("workload", [WORKLOAD, TARGET], ids=["workload", "target"])
def test_every_problem_of_a_file_is_told_at_once(workload: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "file.yaml"
    content = Rejected("slo.p99_ms", -1, "-1", "").changed(workload)
    content = Rejected("slo.speed", 1, "1", "").changed(content)
    path.write_text(yaml.safe_dump(content), "utf-8")

    words = ("demo", "--workload") if workload is WORKLOAD else ("tune",)
    ended = Terminal().run(*words, path)

    assert ended.code == Exit.INVALID_INPUT
    assert Rejected("slo.p99_ms", -1, "-1", "milliseconds").told(ended.err), ended.err
    assert Rejected("slo.speed", 1, "1", "one of the fields p99_ms").told(ended.err), ended.err


@pytest.mark.parametrize(
    ("words", "rejected"),
    [
        (["--database-url", "mysql://me:s3cret@host/x"], ("--database-url", "'host/x'", "postgresql")),
        (["--workload", "no-such-model"], ("workload", "'no-such-model'", "small-vision")),
    ],
)
def test_an_option_of_the_demo_that_cannot_be_used_is_refused_as_a_process_too(
    words: list[str], rejected: tuple[str, str, str], tmp_path: Path
) -> None:
    field, shown, allowed = rejected

    ended = subprocess.run(
        [sys.executable, "-m", "autotuner", "demo", "--json", *words, "--directory", str(tmp_path / "logs")],
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )

    assert ended.returncode == Exit.INVALID_INPUT
    assert Rejected(field, None, shown, allowed).told(ended.stderr), ended.stderr
    assert json.loads(ended.stdout)["exit_code"] == Exit.INVALID_INPUT
    assert "s3cret" not in ended.stdout + ended.stderr
    assert not (tmp_path / "logs").exists()

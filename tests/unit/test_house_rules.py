"""The house rules that neither the linter nor the import contract can see."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted(
    path for package in ("autotuner", "api", "migrations") for path in (ROOT / package).rglob("*.py")
)

TIME_QUESTIONS = {
    "datetime": {"now", "utcnow", "today"},
    "date": {"today"},
    "time": {
        "gmtime",
        "localtime",
        "monotonic",
        "monotonic_ns",
        "perf_counter",
        "perf_counter_ns",
        "time",
        "time_ns",
    },
}
# The clock's own adapter; the sandbox: its traffic and processes live in real time by nature; and the connections to
# the database: how long one rested is between a process and its sockets, and nothing is decided by it.
MAY_ASK_THE_TIME = (
    "autotuner/adapters/clock.py",
    "autotuner/adapters/postgres/engine.py",
    "autotuner/sandbox/",
)
EMPTY_WORDS = {"util", "utils", "helper", "helpers", "common", "manager", "managers", "misc", "models"}
HOME_FOLDER = re.compile(r"/(?:home|root|Users)/\w")
TEXT_SUFFIXES = {
    ".cfg",
    ".html",
    ".ini",
    ".json",
    ".lock",
    ".md",
    ".py",
    ".sh",
    ".sql",
    ".toml",
    ".yaml",
    ".yml",
}


def _relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _time_questions(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and words of every use of a clock in the syntax tree, under whatever name it was imported."""
    module_names = {"datetime": "datetime", "date": "date", "time": "time"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            module_names |= {alias.asname: alias.name for alias in node.names if alias.asname}
        elif isinstance(node, ast.ImportFrom) and node.module in ("datetime", "time"):
            module_names |= {alias.asname: alias.name for alias in node.names if alias.asname}
            if node.module == "time":
                asked = TIME_QUESTIONS["time"] & {alias.name for alias in node.names}
                yield from ((node.lineno, f"from time import {name}") for name in sorted(asked))
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            owner = node.value
            name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
            name = module_names.get(name, name)
            if node.attr in TIME_QUESTIONS.get(name, ()):
                yield node.lineno, f"{name}.{node.attr}"


@pytest.mark.parametrize(
    "source",
    [
        "import datetime\nx = datetime.datetime.now()",
        "from datetime import datetime, UTC\nx = datetime.now(UTC)",
        "from datetime import datetime as dt\nx = dt.now()",
        "import time\nx = time.monotonic()",
        "import time as t\nx = t.time()",
        "from time import perf_counter",
        "import time\nf(default_factory=time.time)",
    ],
)
def test_the_check_sees_a_clock_under_any_name(source: str) -> None:
    assert list(_time_questions(ast.parse(source)))


@pytest.mark.parametrize(
    "source",
    [
        "x = clock.now()",
        "import time\ntime.sleep(1)",
        "from datetime import datetime\nx = datetime(2026, 1, 1)",
    ],
)
def test_the_check_leaves_our_own_clock_and_plain_dates_alone(source: str) -> None:
    assert not list(_time_questions(ast.parse(source)))


def test_only_the_clock_adapter_and_the_sandbox_ask_for_the_time() -> None:
    found = [
        f"{_relative(path)}:{line}: {words}"
        for path in SOURCES
        if not _relative(path).startswith(MAY_ASK_THE_TIME)
        for line, words in _time_questions(ast.parse(path.read_text(encoding="utf-8")))
    ]

    assert found == []


def test_every_module_says_why_it_exists() -> None:
    silent = [
        _relative(path)
        for path in SOURCES
        if not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    ]

    assert silent == []


def test_no_module_has_a_name_that_says_nothing() -> None:
    assert [
        _relative(path) for path in SOURCES if {path.stem, *path.relative_to(ROOT).parts} & EMPTY_WORDS
    ] == []


def test_the_lock_file_names_hashes_and_no_host() -> None:
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    requirements = re.findall(r"^[a-z0-9][\w.-]*==.*$", lock, flags=re.MULTILINE)

    assert "://" not in lock
    assert len(requirements) > 50
    assert all(line.endswith("\\") for line in requirements), "each requirement is followed by its hashes"
    assert lock.count("--hash=sha256:") >= len(requirements)


def test_the_lock_file_has_every_direct_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *extras["dev"], *extras["sandbox"]]
    locked = set(
        re.findall(r"^([a-z0-9][\w.-]*)==", (ROOT / "requirements.lock").read_text("utf-8"), re.MULTILINE)
    )

    names = {re.split(r"[\[<>=; ]", requirement)[0].lower() for requirement in wanted}

    assert names - locked == set(), "run `make lock`"


def test_no_text_names_the_home_folder_of_whoever_wrote_it() -> None:
    folders = ["api", "autotuner", "deploy", "docs", "migrations", "scripts", "tests"]
    files = [
        path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in TEXT_SUFFIXES
    ]
    files += [path for path in ROOT.iterdir() if path.suffix in TEXT_SUFFIXES or path.name == "Makefile"]

    found = [
        f"{_relative(path)}:{number}: {line.strip()[:80]}"
        for path in files
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if HOME_FOLDER.search(line)
    ]

    assert found == []

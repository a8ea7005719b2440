"""The documentation tells the truth: commands, options, links, diagrams, constants and tables are those of the code."""

from __future__ import annotations

import ast
import importlib
import math
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic_core import PydanticUndefined

from autotuner.adapters.postgres.tables import METADATA
from autotuner.bookkeeping.audit import AuditAction
from autotuner.domain.judgement import SCREENING, STRICT
from autotuner.domain.measurement import edges_around
from autotuner.instruments.envoy import edge_seconds
from autotuner.sandbox.arrivals import KINDS
from autotuner.sandbox.workload import Workload, workload_names
from autotuner.sections import Section
from autotuner.settings import Settings
from autotuner.stats.eprocess import log_e_below
from autotuner.target_file import load_target_file, parse_target_file
from scripts.state_diagram import PAGE, diagrams, updated
from tests.documents import (
    ROOT,
    blocks,
    commands_of,
    console_lines,
    inline_commands,
    leaf,
    make_targets,
    pages,
    parts,
    without_code,
)

DECISIONS = sorted((ROOT / "docs" / "decisions").glob("*.md"))
PARTS = ["Context", "Decision", "Consequences", "Rejected"]
HOLLOW = re.compile(
    r"\b(?:TODO|FIXME|TBD|XXX|lorem|placeholder|coming soon|simply|obviously|seamless|blazing|leverage)\b",
    re.IGNORECASE,
)
MACHINE_PATH = re.compile(r"(?<![\w.:/\]])/(?:work|tmp|mnt|opt|home|root)/\w")
OTHER_VARIABLES = {
    "AUTOTUNER_TEST_DATABASE_URL",
    "AUTOTUNER_TEST_KUBERNETES",
    "AUTOTUNER_CACHE",
    "AUTOTUNER_DEMO_DATABASE_URL",
}
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")

PAGES = pytest.mark.parametrize("page", pages(), ids=lambda page: page.relative_to(ROOT).as_posix())


def _anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", without_code(page.read_text("utf-8")), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def _table(page: str, under: str) -> Iterator[list[str]]:
    """Yield the cells of each row of the first table after the heading or text `under`."""
    text = (ROOT / page).read_text("utf-8").split(under, 1)[1]
    rows = re.search(r"(?:^\|.*\n)+", text, flags=re.MULTILINE)
    assert rows is not None
    for line in rows[0].splitlines()[2:]:
        yield [cell.strip() for cell in line.strip("|").split("|")]


# -- links, words, decisions


@PAGES
def test_every_relative_link_and_anchor_leads_somewhere(page: Path) -> None:
    broken = []
    for link in LINK.findall(without_code(page.read_text("utf-8"))):
        place, _, anchor = link.partition("#")
        if "://" in link:
            continue
        goal = (page.parent / place).resolve() if place else page
        if not goal.exists() or (anchor and anchor not in _anchors(goal)):
            broken.append(link)

    assert broken == []


@PAGES
def test_no_page_has_a_hollow_word_or_a_path_of_somebodys_machine(page: Path) -> None:
    text = page.read_text("utf-8")

    assert HOLLOW.findall(text) + MACHINE_PATH.findall(text) == []


@PAGES
def test_every_variable_a_page_names_is_one_that_is_read(page: Path) -> None:
    known = {f"AUTOTUNER_{name.upper()}" for name in Settings.model_fields} | OTHER_VARIABLES

    assert set(re.findall(r"\bAUTOTUNER_[A-Z][A-Z_]*[A-Z]\b", page.read_text("utf-8"))) - known == set()


@pytest.mark.parametrize("page", DECISIONS, ids=lambda page: page.stem)
def test_every_decision_has_its_four_parts_and_is_short(page: Path) -> None:
    text = page.read_text("utf-8")

    assert re.findall(r"^\*\*(\w+)\.\*\*", text, flags=re.MULTILINE) == PARTS
    assert len(text.splitlines()) <= 20
    assert text.startswith(f"# {int(page.name[:4])}. ")


def test_decisions_are_numbered_in_a_row_and_all_are_listed() -> None:
    listed = re.findall(r"\(decisions/([\w-]+\.md)\)", (ROOT / "docs" / "architecture.md").read_text("utf-8"))

    assert [int(page.name[:4]) for page in DECISIONS] == list(range(1, len(DECISIONS) + 1))
    assert {page.name for page in DECISIONS} <= set(listed)


def test_the_first_screen_of_the_readme_says_how_to_try_and_to_use_it() -> None:
    screen = "\n".join((ROOT / "README.md").read_text("utf-8").splitlines()[:35])

    for word in ("make demo", "make test", "emulated", "autotuner db upgrade", "autotuner tune", "p99_ms"):
        assert word in screen


def test_the_target_file_of_the_readme_can_be_used() -> None:
    (text,) = blocks(ROOT / "README.md", "yaml")

    assert parse_target_file(yaml.safe_load(text)).slo.p99_ms == 100


def test_the_envoy_of_the_operators_page_fits_the_example() -> None:
    (text,) = blocks(ROOT / "docs" / "operator.md", "yaml")
    target = load_target_file(ROOT / "examples" / "target.yaml")
    labels = re.search(r"buckets: \[([^\]]+)\]", text)
    assert labels is not None

    assert f"runtime_key_prefix: {target.gateway.runtime_prefix}\n" in text
    assert re.findall(r"\{name: ([\w-]+), weight", text) == [each.name for each in target.target().replicas]
    edges = [edge_seconds(float(label)) for label in labels[1].split(",")]
    assert edges == sorted(edges)
    assert edges_around(edges, target.slo.p99_ms / 1e3) == (edges.index(0.1), edges.index(0.1))


# -- commands


def test_every_documented_command_and_option_exists() -> None:
    wrong = []
    for page in pages():
        for line in console_lines(page):
            words = parts(line)
            if words[0] == "autotuner" and (problem := _problem(words[1:])):
                wrong.append(f"{page.name}: {line}: {problem}")

    assert wrong == []


def _problem(words: list[str]) -> str:
    command, name, rest = leaf(words)
    if command is None:
        return f"no command {name}"
    if "--help" in rest:
        return ""
    try:
        command.make_context(name, list(rest)).close()
    except Exception as error:  # noqa: BLE001 - whatever the parser has against it
        return str(error) or type(error).__name__
    return ""


def test_the_check_sees_an_unknown_command_option_and_argument() -> None:
    assert _problem(["invent"])
    assert _problem(["history", "--colour", "red"])
    assert _problem(["show"])
    assert _problem(["db", "downgrade"])
    assert not _problem(["history", "--limit", "3"])


def test_every_command_named_in_a_sentence_exists() -> None:
    wrong = [
        f"{page.name}: {text}"
        for page in pages()
        for text in inline_commands(page)
        if leaf(parts(text)[1:])[0] is None or not set(_options(text)) <= _known_options(parts(text)[1:])
    ]

    assert wrong == []


def _options(text: str) -> list[str]:
    return [word.split("=")[0] for word in parts(text) if word.startswith("--")]


def _known_options(words: list[str]) -> set[str]:
    command, _, _ = leaf(words)
    return {option for parameter in getattr(command, "params", []) for option in parameter.opts} | {"--help"}


def test_the_readme_names_every_command() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    missing = [path for path in commands_of() if not re.search(rf"`(?:autotuner )?{path}\b", text)]

    assert missing == []


def test_every_documented_make_target_exists() -> None:
    named = {
        target
        for page in pages()
        for target in re.findall(r"(?:`|\$ )make ([a-z][a-z-]*)", page.read_text("utf-8"))
    }

    assert "demo" in named
    assert named - make_targets() == set()


# -- what is generated from, or equal to, the code


def test_the_state_diagrams_are_those_of_the_transition_tables() -> None:
    text = PAGE.read_text("utf-8")

    assert updated(text) == text, "run `make docs`"
    assert all(drawn in text for drawn in diagrams().values())


def test_a_stale_diagram_is_drawn_anew_and_a_lost_marker_is_an_error() -> None:
    text = updated(PAGE.read_text("utf-8"))

    assert updated(text.replace("created --> baseline: inspected", "created --> ended: by magic")) == text
    with pytest.raises(ValueError, match="markers"):
        updated(text.replace("<!-- end of trial states -->", ""))


def _constants() -> Iterator[tuple[str, float]]:
    text = (ROOT / "docs" / "statistics.md").read_text("utf-8")
    for name, value in re.findall(r"^\| `(\w+\.[\w.]+)` \| ([\d.]+) \|", text, flags=re.MULTILINE):
        yield name, float(value)


def _constant(name: str) -> float:
    module, *attributes = name.split(".")
    package = next(
        p for p in ("domain", "stats", "sandbox") if (ROOT / "autotuner" / p / f"{module}.py").exists()
    )
    found: Any = importlib.import_module(f"autotuner.{package}.{module}")
    for attribute in attributes:
        found = getattr(found, attribute)
    return float(found)


def test_the_constants_of_the_verdict_are_those_of_the_code() -> None:
    told = dict(_constants())

    assert len(told) >= 12
    assert {name: _constant(name) for name in told} == told


def test_the_requests_an_accept_takes_are_what_the_evidence_says() -> None:
    told = [
        [int(cell) for cell in cells] for cells in _table("docs/statistics.md", "What that means in requests")
    ]

    assert [row[0] for row in told] == [0, 1, 2, 3]
    for bad, *needed in told:
        for levels, requests in zip((SCREENING, STRICT), needed, strict=True):
            wanted = -math.log(levels.accept_alpha)
            assert log_e_below(bad, requests - 1, 0.01) < wanted <= log_e_below(bad, requests, 0.01)


def _fields(section: type[Section], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, field in section.model_fields.items():
        kinds = [field.annotation, *getattr(field.annotation, "__args__", ())]
        nested = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Section)]
        if nested:
            yield from _fields(nested[0], f"{before}{name}.")
        else:
            yield f"{before}{name}", field.default


def test_every_field_of_a_workload_file_is_documented_with_its_default() -> None:
    told = {cells[0].strip("`"): cells[3] for cells in _table("docs/workloads.md", "## Fields")}
    fields = dict(_fields(Workload))

    assert set(told) == set(fields)
    for name, default in fields.items():
        if default is PydanticUndefined:
            assert told[name].startswith("–"), name
        elif isinstance(default, int | float | str) and default != "":
            assert told[name] == f"{default:g}" if not isinstance(default, str) else default, name


def test_every_word_of_an_arrivals_entry_is_documented() -> None:
    (cell,) = [c[2] for c in _table("docs/workloads.md", "## Fields") if c[0] == "`traffic.arrivals`"]
    words = set(re.findall(r"[a-z_]+(?=[:,}])", KINDS))

    assert {"poisson", "trace", "steady_seconds"} <= words
    assert [word for word in sorted(words) if word not in cell] == []


def test_every_workload_that_comes_with_it_is_documented() -> None:
    told = {cells[0].strip("`") for cells in _table("docs/workloads.md", "## Workloads that come with it")}

    assert told == set(workload_names())


def test_every_table_of_the_database_and_every_audit_action_is_documented() -> None:
    page = (ROOT / "docs" / "auditor.md").read_text("utf-8")
    told = {cells[0].strip("`") for cells in _table("docs/auditor.md", "## Where it is recorded")}
    actions = re.search(r"^Actions: ((?:.|\n)*?)\.\n", page, flags=re.MULTILINE)

    assert told == set(METADATA.tables)
    assert actions is not None
    assert set(re.findall(r"`(\w+)`", actions[1])) == {action.value for action in AuditAction}


@cache
def _said_by_the_code() -> str:
    """Every text of the package, the fixed parts of formatted ones each for itself."""
    found = [
        node.value
        for path in (ROOT / "autotuner").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    return "\n".join(found)


def test_the_sentences_an_operator_will_see_are_those_of_the_code() -> None:
    quotes = [
        quote
        for cells in _table("docs/operator.md", "## When something fails")
        for quote in re.findall(r"`([^`]+)`", cells[2])
    ]
    fragments = {part.strip() for quote in quotes for part in re.split(r"…|: |:$", quote)} - {""}

    assert len(fragments) > 20
    said = _said_by_the_code().lower()
    assert sorted(fragment for fragment in fragments if fragment.lower() not in said) == []

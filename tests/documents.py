"""What the documentation says, as values: its pages, and the commands in them with the parser they must satisfy."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import typer

from autotuner.cli.app import app

ROOT = Path(__file__).parents[1]

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def pages() -> list[Path]:
    """Every page for people, the README first."""
    return [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of one language on a page."""
    return [body for found, body in FENCE.findall(page.read_text("utf-8")) if found == language]


def without_code(text: str) -> str:
    """The text without its fenced blocks and inline code: what is left is prose and links."""
    return re.sub(r"`[^`\n]+`", lambda code: re.sub(r"[\[\](]", "", code[0]), FENCE.sub("", text))


def console_lines(page: Path) -> list[str]:
    """The commands of a page: lines of `console` blocks that begin with `$ `, without the comment after them."""
    lines = [line for block in blocks(page, "console") for line in block.splitlines()]
    return [re.sub(r"\s+# .*$", "", line[2:]).strip() for line in lines if line.startswith("$ ")]


def documented_commands() -> dict[str, list[str]]:
    """Every command in a `console` block, and the pages it stands on."""
    found: dict[str, list[str]] = {}
    for page in pages():
        for line in console_lines(page):
            found.setdefault(line, []).append(page.name)
    return found


def inline_commands(page: Path) -> Iterator[str]:
    """Yield every `autotuner …` that a sentence names."""
    yield from re.findall(r"`(autotuner [a-z][^`\n]*)`", FENCE.sub("", page.read_text("utf-8")))


def parts(line: str) -> list[str]:
    """The words of a command line."""
    return shlex.split(line)


@cache
def _root() -> Any:
    return typer.main.get_command(app)


def leaf(words: list[str]) -> tuple[Any, str, list[str]]:
    """The command that words lead to, its name, and the words left for it; None for one that does not exist."""
    command, name, rest = _root(), "autotuner", [word for word in words if word != "--debug"]
    while hasattr(command, "get_command") and rest and not rest[0].startswith("-"):
        name, *rest = rest
        command = command.get_command(None, name)
    return command, name, rest


def commands_of(group: Any = None, before: str = "") -> list[str]:
    """Every command by the words that lead to it: `db upgrade`."""
    group = group or _root()
    found = []
    for name in group.list_commands(None):
        command = group.get_command(None, name)
        if hasattr(command, "list_commands"):
            found += commands_of(command, f"{before}{name} ")
        else:
            found.append(f"{before}{name}")
    return found


def make_targets() -> set[str]:
    """The targets of the Makefile."""
    return set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text("utf-8"), flags=re.MULTILINE))

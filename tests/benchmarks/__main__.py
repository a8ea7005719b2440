"""`python -m tests.benchmarks [NAME…]`: run every benchmark, or the named ones, and print a table of each.

A benchmark is a module of this package with a function `rows()` that returns `verdict.Row` values. Exit code 1 when a
target is missed, 2 for an unknown name.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
import time

from rich.console import Console
from rich.table import Table

from tests import benchmarks


def main(names: list[str]) -> int:
    """Print the tables; returns the exit code."""
    console = Console(width=160)
    modules = {one.name: importlib.import_module(f"tests.benchmarks.{one.name}") for one in _found()}
    runnable = {name: module for name, module in modules.items() if hasattr(module, "rows")}
    if unknown := set(names) - set(runnable):
        console.print(f"no benchmark is called {', '.join(sorted(unknown))}; there are {', '.join(runnable)}")
        return 2
    missed = 0
    for name in names or runnable:
        started = time.monotonic()
        table = Table("figure", "target", "reached", "ok", title=name)
        for row in runnable[name].rows():
            missed += row.ok is False
            table.add_row(row.name, row.target, row.reached, {True: "yes", False: "NO", None: ""}[row.ok])
        console.print(table)
        console.print(f"{name}: {time.monotonic() - started:.0f} s")
    console.print(f"{missed} targets missed")
    return 1 if missed else 0


def _found() -> list[pkgutil.ModuleInfo]:
    return [one for one in pkgutil.iter_modules(benchmarks.__path__) if one.name != "__main__"]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

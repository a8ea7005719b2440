"""The entry: `python -m autotuner` and the command `autotuner`."""

from __future__ import annotations

from autotuner.cli.app import app


def main() -> None:
    """Run the command line; the process ends with the exit code that `cli.exits` lists."""
    app(prog_name="autotuner")


if __name__ == "__main__":
    main()

"""The entry: `python -m autotuner` and the command `autotuner`."""

from __future__ import annotations

import threading

from autotuner.bootstrap import THREADS
from autotuner.cli.app import app
from autotuner.cli.stopping import leave


def main() -> None:
    """Run the command line; the process ends with the exit code that `cli.exits` lists."""
    try:
        app(prog_name="autotuner")
    except SystemExit as ended:
        if any(thread.name.startswith(THREADS) for thread in threading.enumerate()):
            leave(ended.code)
        raise


if __name__ == "__main__":
    main()

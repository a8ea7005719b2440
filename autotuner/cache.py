"""Where things are kept on disk that can be made or downloaded again."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from autotuner.errors import InvalidInput


def cache_directory(environment: Mapping[str, str] = os.environ) -> Path:
    """Return $AUTOTUNER_CACHE, else $XDG_CACHE_HOME/autotuner, else ~/.cache/autotuner.

    Creates it. Raises InvalidInput when it cannot be written.
    """
    if named := environment.get("AUTOTUNER_CACHE"):
        directory = Path(named)
    elif base := environment.get("XDG_CACHE_HOME"):
        directory = Path(base) / "autotuner"
    else:
        directory = Path(environment.get("HOME") or Path.home()) / ".cache" / "autotuner"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            return directory.resolve()
    except OSError as error:
        raise InvalidInput("AUTOTUNER_CACHE", str(directory), "a directory that can be written") from error

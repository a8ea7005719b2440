"""One metric of a real tritonserver, as its own page has it."""

from __future__ import annotations

import http.client
import re
from contextlib import closing

from autotuner.sandbox.tritonserver import HOST, TritonProcess


def metric(server: TritonProcess, name: str) -> float:
    """The value of the metric `name`; NaN when the page has none."""
    connection = http.client.HTTPConnection(HOST, server.ports.metrics, timeout=5)
    with closing(connection):
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
    found = re.search(rf"^{name}\{{.*\}} (\S+)$", text, re.MULTILINE)
    return float(found.group(1)) if found else float("nan")

"""A server with Prometheus' query API over samples that a test puts there: it knows raw selectors and `time()` alone.

Whatever else it is asked is answered as Prometheus answers a query it cannot parse.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from urllib.parse import parse_qs, urlsplit

from tests.stub_server import Planned, StubServer

QUERY = re.compile(r"\{(.*)\}\[(\d+)ms\]", re.DOTALL)
MATCHER = re.compile(r'([a-zA-Z_]\w*)(=~?)"((?:[^"\\]|\\.)*)",?', re.DOTALL)
PATH = "/api/v1/query"


class PrometheusStub(StubServer):
    """now: the server's time in seconds. planned: what it answers in place of everything, if anything."""

    def __init__(self, now: float) -> None:
        super().__init__()
        self.now = now
        self.rounds_time = False
        """Whether its time is a series, of whole seconds: so VictoriaMetrics tells it."""
        self.planned: Planned | None = None
        self.more: dict[str, object] = {}
        self.queries: list[str] = []
        self.headers: list[Mapping[str, str]] = []
        self._series: dict[tuple[tuple[str, str], ...], list[tuple[float, float]]] = {}

    def put(self, at: float, samples: Mapping[str, float], **target: str) -> None:
        """Add one scrape: values by series as a page writes them (`name{label="x"}`), with the target's labels."""
        for text, value in samples.items():
            name, _, labels = text.partition("{")
            found = dict(re.findall(r'(\w+)="([^"]*)"', labels))
            key = tuple(sorted({"__name__": name, **found, **target}.items()))
            self._series.setdefault(key, []).append((at, value))

    def page(self, at: float, text: str, **target: str) -> None:
        """Add one scrape of a page."""
        lines = [line.rpartition(" ") for line in text.splitlines() if line and not line.startswith("#")]
        self.put(at, {series: float(value) for series, _, value in lines}, **target)

    def forget(self) -> None:
        """Lose all data."""
        self._series.clear()

    def answer(self, path: str, headers: Mapping[str, str], body: str) -> Planned:
        place = urlsplit(path)
        query = parse_qs(place.query).get("query", [""])[0]
        self.queries.append(query)
        self.headers.append(headers)
        if self.planned is not None:
            return self.planned
        if place.path != PATH:
            return Planned("not here", 404)
        return self.answered(query)

    def answered(self, query: str) -> Planned:
        """Return the answer to a query."""
        if query == "time()" and self.rounds_time:
            return self._data("vector", [{"metric": {}, "value": [int(self.now), str(int(self.now))]}])
        if query == "time()":
            return self._data("scalar", [self.now, str(self.now)])
        found = QUERY.fullmatch(query)
        if found is None or MATCHER.sub("", found[1]):
            error = {"status": "error", "errorType": "bad_data", "error": "parse error"}
            return Planned(json.dumps(error), 400)
        matchers = [(name, sign == "=~", _unquoted(text)) for name, sign, text in MATCHER.findall(found[1])]
        since = self.now - int(found[2]) / 1000
        matrix = []
        for key, values in self._series.items():
            inside = [[at, repr(value)] for at, value in values if since <= at <= self.now]
            if inside and all(_matches(dict(key).get(name, ""), *how) for name, *how in matchers):
                matrix.append({"metric": dict(key), "values": inside})
        return self._data("matrix", matrix)

    def _data(self, kind: str, result: object) -> Planned:
        return Planned(
            json.dumps({"status": "success", "data": {"resultType": kind, "result": result}, **self.more})
        )


def _matches(value: str, regex: bool, wanted: str) -> bool:
    return re.fullmatch(wanted, value) is not None if regex else value == wanted


def _unquoted(text: str) -> str:
    return json.loads(f'"{text}"', strict=False)  # type: ignore[no-any-return]

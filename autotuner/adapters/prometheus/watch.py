"""Watching a target's sources through a metrics server: who is scraped, how often, until when, and what went wrong.

How often is learnt, never configured; what was last scraped too long ago is not the present; everything scraped since
the last look is read, so that no restart is missed (guards rule 1).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from autotuner.adapters.prometheus.client import Answer, PrometheusClient
from autotuner.adapters.prometheus.continuity import Continuity, ServerClock
from autotuner.adapters.prometheus.scrapes import MISSED, Source, scraped_in, second_of, series_in, sources_in
from autotuner.domain.sources import Instrumentation
from autotuner.instruments import triton, work
from autotuner.instruments.gateways import GatewayReading
from autotuner.instruments.promql import SERVER_TIME, samples_of
from autotuner.instruments.readings import Unreadable
from autotuner.instruments.series import TRITON_OWN_LABELS, TargetSeries, belongs
from autotuner.ports import Clock

GATEWAY, SERVERS, CLOCK = "gateway", "servers", "clock"
LEARNING_SECONDS = 300.0
"""How far back a first look reads to learn how often things are scraped; no look reads further."""
LOOK_BACK_SCRAPES = 4
STALE_SCRAPES = 2.5
"""Intervals after which the newest scrape is too old to be the present."""
SLACK_SECONDS = 2.0
"""Time that a scrape may take to reach the server's storage."""
TOLD_SKEW_SECONDS = 1.0
SERVER_GAUGES = triton.GAUGES | work.GAUGES


@dataclass(frozen=True)
class Seen:
    """What the server knew at one look: the scraped sources by door or replica, and its own time in seconds."""

    now: float
    gateway: tuple[Source, ...]
    servers: Mapping[str, Source]
    faults: Mapping[str, str]


class Watch:
    """The sources of one target, look by look. Not shared between threads."""

    def __init__(
        self,
        plan: Instrumentation,
        series: TargetSeries,
        reading: GatewayReading,
        client: PrometheusClient,
        clock: Clock,
    ) -> None:
        self._plan = plan
        self._series = series
        self._reading = reading
        self._client = client
        self._clock = clock
        self._names = list(series.servers)
        self._looked_at: datetime | None = None
        self.continuity = Continuity()
        self.server_clock = ServerClock()
        self.every_seconds: dict[str, float] = {}

    def look(self) -> Seen:
        """Return what the server knows now of the target's sources; never raises."""
        deadline = self._plan.prometheus.deadline
        if not self.every_seconds:
            deadline /= 2
            if fault := self._learn(deadline):
                return Seen(0.0, (), {}, dict.fromkeys(self._series.doors, self.told(fault)))
        span = self.span_seconds()
        queries = {SERVERS: samples_of(self._series.server_selector(self._series.server_names), span)}
        if self._series.gateway:
            queries[GATEWAY] = samples_of(self._series.gateway_selector(self._reading.wanted), span)
        return self._seen(self._client.ask({**queries, CLOCK: SERVER_TIME}, deadline))

    # -- how often, how far, what time ------------------------------------------------------------------------

    def _learn(self, deadline: timedelta) -> str:
        """Learn how often gateway and servers are scraped; returns why that is not known yet."""
        queries = {SERVERS: self._series.server_selector([triton.PULSE])}
        if self._series.gateway:
            queries[GATEWAY] = self._series.gateway_selector(self._pulses)
        asked = {door: samples_of(selected, LEARNING_SECONDS) for door, selected in queries.items()}
        answers = self._client.ask(asked, deadline)
        owned = {GATEWAY: self._series.own_labels(), SERVERS: TRITON_OWN_LABELS}
        for door, own in owned.items():
            if door not in answers:
                continue
            try:
                series = series_in(answers[door].read(), self._reading.native, pulse_only=True)
                self._keep_interval(door, scraped_in(series, own))
            except Unreadable as reason:
                return f"{_what(door)}: {reason}"
        if not self.every_seconds:
            return "too few scrapes within five minutes to know how often anything is scraped"
        return ""

    @property
    def _pulses(self) -> list[str]:
        """Names of a sample that every replica which ever had a request has."""
        native = self._reading.native
        return [self._reading.pulse, *([native.name] if native else ())]

    def _keep_interval(self, door: str, sources: list[Source]) -> None:
        """Learn how often a door is scraped; what is known already is not forgotten for scrapes that are missing."""
        usable = [source for source in sources if door not in self.every_seconds or source.even()]
        found = [every for source in usable if (every := source.interval_seconds()) is not None]
        if found:
            self.every_seconds[door] = max(found)

    def interval_seconds(self, door: str) -> float:
        """Return how often a door is usually scraped."""
        return self.every_seconds.get(door, max(self.every_seconds.values(), default=0.0))

    def span_seconds(self) -> float:
        """Return how far a look reads back: some scrapes, and all since the last look, so that no restart is missed."""
        longest = max(self.every_seconds.values(), default=LEARNING_SECONDS)
        since = 0.0
        if self._looked_at is not None:
            since = (self._clock.now() - self._looked_at).total_seconds() + 3 * longest
        return min(LEARNING_SECONDS, max(LOOK_BACK_SCRAPES * longest + SLACK_SECONDS, since))

    def _server_now(self, answer: Answer) -> float:
        """The server's time at its answer. Raises Unreadable."""
        result = answer.read()
        try:
            theirs, rounded = _time_in(result)
        except (TypeError, ValueError, OverflowError, IndexError, KeyError) as error:
            raise Unreadable("a time in an unknown form") from error
        assert answer.asked is not None
        assert answer.answered is not None
        self.server_clock.compare(theirs, answer.asked.timestamp(), answer.answered.timestamp(), rounded)
        return theirs

    # -- who was scraped --------------------------------------------------------------------------------------

    def _seen(self, answers: Mapping[str, Answer]) -> Seen:
        faults: dict[str, str] = {}
        try:
            now = self._server_now(answers[CLOCK])
        except Unreadable as reason:
            return Seen(0.0, (), {}, dict.fromkeys(self._series.doors, self.told(str(reason))))
        gateway: tuple[Source, ...] = ()
        try:
            if GATEWAY in answers:
                gateway = self._gateways(answers[GATEWAY], now, faults)
        except Unreadable as reason:
            for name in self._series.doors:
                note(faults, name, self.told(f"the gateway: {reason}"))
        servers = self._servers(answers[SERVERS], now, faults)
        if abs(self.server_clock.ahead_seconds) >= TOLD_SKEW_SECONDS:
            ahead = f"{self.server_clock.ahead_seconds:+.1f} s"
            faults[CLOCK] = self.told(
                f"its clock differs from ours by {ahead}; its times are corrected by that"
            )
        return Seen(now, gateway, servers, faults)

    def _gateways(self, answer: Answer, now: float, faults: dict[str, str]) -> tuple[Source, ...]:
        series = series_in(answer.read(), self._reading.native)
        self._looked_at = self._clock.now()
        sources = sources_in(series, self._series.own_labels())
        self._keep_interval(GATEWAY, sources)
        if not sources:
            span = self.span_seconds()
            self.every_seconds.clear()
            why = "nothing scrapes it, or metrics.gateway names other labels"
            raise Unreadable(f"no samples within {span:.0f} s: {why}")
        expected = self._plan.gateway_pods
        if expected is not None and len(sources) != expected:
            names = ", ".join(source.name for source in sources)
            raise Unreadable(
                f"{len(sources)} are scraped ({names}) where metrics.gateway_pods says {expected}"
            )
        for source in sources:
            self._check(source, GATEWAY, now)
            self._follow(source, self._reading.gauges, GATEWAY, faults)
        return tuple(sources)

    def _servers(self, answer: Answer, now: float, faults: dict[str, str]) -> dict[str, Source]:
        try:
            series = series_in(answer.read())
        except Unreadable as reason:
            for name in self._names:
                note(faults, name, self.told(f"the server: {reason}"))
            return {}
        found = {}
        for name in self._names:
            wanted = self._series.servers[name]
            try:
                sources = sources_in([s for s in series if belongs(s[0], wanted)], TRITON_OWN_LABELS)
                self._keep_interval(SERVERS, sources)
                found[name] = self._only(sources, wanted)
                self._check(found[name], SERVERS, now)
            except Unreadable as reason:
                found.pop(name, None)
                note(faults, name, self.told(f"the server {name}: {reason}"))
        for name, source in found.items():
            self._follow(source, SERVER_GAUGES, name, faults)
        return found

    def _only(self, sources: list[Source], wanted: Mapping[str, str]) -> Source:
        if not sources:
            told = ", ".join(f'{label}="{value}"' for label, value in wanted.items())
            raise Unreadable(
                f"no series with {told}: nothing scrapes it, or metrics.server names other labels"
            )
        if len(sources) > 1:
            raise Unreadable(f"{len(sources)} sources for one replica: {', '.join(s.name for s in sources)}")
        return sources[0]

    def _check(self, source: Source, door: str, now: float) -> None:
        """Raise Unreadable when the newest scrape of a source is not the present."""
        every = self.interval_seconds(door)
        age = now - source.times[-1]
        if age > STALE_SCRAPES * every + SLACK_SECONDS:
            raise Unreadable(
                f"{source.name} was last scraped {age:.0f} s ago, where every {every:g} s is usual"
            )

    def _follow(self, source: Source, gauges: frozenset[str], name: str, faults: dict[str, str]) -> None:
        """Say what happened to a source that is present all the same."""
        fallen = self.continuity.took(source, gauges)
        if fallen is not None:
            note(faults, name, self.told(f"the counters of {source.name} began anew at {_instant(fallen)}"))
        every, gap = self.interval_seconds(GATEWAY if name == GATEWAY else SERVERS), source.gap_seconds()
        if gap > MISSED * every:
            what = f"{source.name} was not scraped for {gap:.0f} s, where every {every:g} s is usual"
            note(faults, name, self.told(what))

    def told(self, what: str) -> str:
        """Return a sentence that says which server it is about."""
        return f"Prometheus ({self._plan.prometheus.url}): {what}"


def _time_in(result: Any) -> tuple[float, float]:
    """A server's time and by how much it may be rounded, in seconds.

    Prometheus answers with a number, VictoriaMetrics with a series of whole seconds. Raises what an unknown form does.
    """
    if isinstance(result[0], Mapping):
        return second_of(result[0]["value"][1]), 1.0
    return second_of(result[1]), 0.0


def note(faults: dict[str, str], name: str, sentence: str) -> None:
    """Add a sentence to what is said of a door or a replica."""
    faults[name] = f"{faults[name]}; {sentence}" if name in faults else sentence


def _what(door: str) -> str:
    return "the gateway" if door == GATEWAY else "the servers"


def _instant(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%H:%M:%S UTC")

"""What a study would find of a target's metrics: series by series, how fresh, how exact, how long a verdict takes.

Two samples of the same source, some seconds apart, are enough: what is missing is said with the reason and with the
line of configuration that would bring it. Pure, so that every sentence can be tested.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from autotuner.domain.judgement import SCREENING, STRICT
from autotuner.domain.measurement import Sample, Window
from autotuner.domain.needs import Answer, Check, edge, requests_to_accept
from autotuner.domain.ramp import fair_share
from autotuner.domain.study import StudyPlan
from autotuner.domain.target import Target
from autotuner.instruments.devices import DCGM, NONE
from autotuner.instruments.presets import Preset, preset, preset_of
from autotuner.instruments.triton import PENDING, Backlog

SLOW_SHARES = (0.0, 0.0025, 0.005)
"""True shares of slow requests for which the length of a verdict is told."""


@dataclass(frozen=True)
class VerdictCost:
    """What an ACCEPT would take. requests, duration: None when it would never come. share: of slow requests."""

    slow_share: float
    strict: bool
    requests: int | None
    duration: timedelta | None


@dataclass(frozen=True)
class Inspection:
    """All that was found. rates: requests a second by replica; every: usual seconds between scrapes, by door."""

    source: str
    findings: tuple[Check, ...]
    edges_seconds: tuple[float, ...]
    rates: Mapping[str, float]
    verdicts: tuple[VerdictCost, ...]

    @property
    def usable(self) -> bool:
        """Whether a study could measure with this."""
        return all(finding.answer is not Answer.NO for finding in self.findings)

    @property
    def reached(self) -> bool:
        """Whether anything at all could be read."""
        return any(finding.answer is Answer.YES for finding in self.findings)


@dataclass(frozen=True)
class Looks:
    """Two samples of one source, when they were looked at, and how often it says that things are scraped.

    waited, waits: what each server said at the first and at the last of requests that it has not answered well.
    """

    first: Sample
    last: Sample
    at: datetime
    every_seconds: Mapping[str, float]
    waited: Mapping[str, Backlog] = field(default_factory=dict)
    waits: Mapping[str, Backlog] = field(default_factory=dict)


def inspect(plan: StudyPlan, looks: Looks) -> Inspection:
    """Return what a study under `plan` would find."""
    target = plan.target
    rates = _rates(looks)
    found = (
        *_gateway(plan, looks),
        *_servers(plan, looks),
        *_pace(plan, looks),
        *_traffic(rates, looks),
    )
    return Inspection(
        source=_source(target),
        findings=found,
        edges_seconds=looks.last.edges_seconds,
        rates=rates,
        verdicts=tuple(_verdicts(plan, sum(rates.values()))),
    )


def _source(target: Target) -> str:
    if target.metrics is None:
        return "direct scraping"
    return f"Prometheus at {target.metrics.prometheus.url}, preset {target.metrics.preset}"


def _preset(target: Target) -> Preset:
    return preset("envoy") if target.metrics is None else preset_of(target.metrics)


# ---- the gateway ----


def _gateway(plan: StudyPlan, looks: Looks) -> Iterator[Check]:
    sample = looks.last
    if not sample.gateway:
        why = sample.faults.get("gateway", "no data")
        yield Check("gateway", Answer.NO, why, _gateway_scrape(plan.target))
        return
    for name in plan.target.backends(replica.name for replica in plan.target.replicas):
        if name in sample.gateway:
            counters = sample.gateway[name]
            detail = f"{counters.sent:,} requests counted, {counters.failed:,} failed; {_age(looks)}"
            yield Check(f"gateway {name}", Answer.YES, detail)
        else:
            yield Check(f"gateway {name}", Answer.NO, sample.faults.get(name, "no data"))
    ceiling = plan.slo.p99_ceiling_seconds
    yield edge(sample.edges_seconds, ceiling, _bucket(_preset(plan.target), ceiling))
    note = _preset(plan.target).note
    if note:
        yield Check("what this gateway cannot tell", Answer.DOUBTFUL, note)


def _age(looks: Looks) -> str:
    return f"{max(0.0, (looks.at - looks.last.at).total_seconds()):.1f} s old"


def _bucket(gateway: Preset, ceiling_seconds: float) -> str:
    labels = ", ".join(f"{label:g}" for label in gateway.reading.labels_for(ceiling_seconds))
    return gateway.bucket_advice.replace("{label}", labels)


def _gateway_scrape(target: Target) -> str:
    """The scrape job that would bring the gateway's series into Prometheus."""
    if target.metrics is None:
        return ""
    if _preset(target).name != "envoy":
        return f"# see {_preset(target).source}"
    address = target.gateway.admin_url.partition("://")[2]
    return (
        "scrape_configs:\n  - job_name: envoy\n    scrape_interval: 5s\n    metrics_path: /stats/prometheus\n"
        f'    static_configs: [{{targets: ["{address}"]}}]'
    )


# ---- the servers ----


def _servers(plan: StudyPlan, looks: Looks) -> Iterator[Check]:
    sample, target = looks.last, plan.target
    for replica in target.replicas:
        name, counted = replica.name, sample.servers.get(replica.name)
        if counted is None:
            address = replica.metrics_url.partition("://")[2].partition("/")[0]
            yield Check(
                f"server {name}", Answer.NO, sample.faults.get(name, "no data"), _scrape(target, address)
            )
            continue
        detail = f"{counted.succeeded:,} requests answered, {counted.failed:,} failed"
        yield Check(f"server {name}", Answer.YES, detail)
        yield from _backlog(name, looks)
        yield _memory(target, name, counted.memory_used_bytes, counted.memory_total_bytes)
        if not counted.batches:
            why = sample.faults.get(name, "the model has run nothing since it was loaded")
            yield Check(f"batches {name}", Answer.DOUBTFUL, f"no statistics by batch size: {why}")


REASONS = {
    "REJECTED": "the queue was full, or the request waited longer than its policy allows",
    "CANCELED": "the client gave up",
    "BACKEND": "the model itself failed",
    "OTHER": "before a model ran, such as a malformed request",
    "": "this server tells no reasons",
}
"""What Triton means by its reasons of failures."""


def _backlog(name: str, looks: Looks) -> Iterator[Check]:
    """Requests that wait for execution, and failures by reason."""
    now = looks.waits.get(name)
    if now is None:
        return
    if now.pending is None:
        advice = f"# in the scrape job of {name}: no metric_relabel_configs that drop {PENDING}"
        yield Check(f"pending {name}", Answer.DOUBTFUL, f"no {PENDING}: how many wait is not told", advice)
    else:
        yield Check(f"pending {name}", Answer.YES, f"{now.pending:,} requests wait for execution")
    before = looks.waited.get(name, now).failures
    fresh = {reason: count - before.get(reason, 0) for reason, count in now.failures.items()}
    told = [_failures(reason, count, fresh[reason]) for reason, count in now.failures.items() if count]
    state = Answer.DOUBTFUL if any(each > 0 for each in fresh.values()) else Answer.YES
    yield Check(f"failures {name}", state, "; ".join(told) or "none since it started")


def _failures(reason: str, count: int, fresh: int) -> str:
    meaning = REASONS.get(reason, "a reason of this server's own")
    told = f"{count:,} {reason or 'without a reason'} ({meaning})"
    return f"{told}, {fresh:,} of them while it was looked at" if fresh > 0 else told


def _scrape(target: Target, address: str) -> str:
    if target.metrics is None:
        return ""
    return (
        "scrape_configs:\n  - job_name: triton\n    scrape_interval: 5s\n"
        f'    static_configs: [{{targets: ["{address}"]}}]'
    )


def _memory(target: Target, name: str, used: float | None, total: float | None) -> Check:
    if used is not None and total is not None:
        return Check(f"memory {name}", Answer.YES, f"{used / 1e9:.1f} of {total / 1e9:.1f} GB used")
    device = target.metrics.device if target.metrics is not None else "triton"
    if device == NONE:
        return Check(f"memory {name}", Answer.YES, "not read, as metrics.device says")
    advice = "tritonserver --allow-gpu-metrics=true   # or, with NVIDIA's exporter: metrics: {device: dcgm}"
    if device == DCGM:
        advice = "metrics: {server: {pod: '{name}'}}   # DCGM's series are joined by pod, else by the device's UUID"
    detail = (
        "no device memory: instances are not limited by what fits, and no trial is refused for lack of it"
    )
    return Check(f"memory {name}", Answer.DOUBTFUL, detail, advice)


# ---- pace ----


def _pace(plan: StudyPlan, looks: Looks) -> Iterator[Check]:
    """Whether the study's pace fits how often things are scraped."""
    if not looks.every_seconds:
        return
    every = max(looks.every_seconds.values())
    told = ", ".join(f"{door} every {seconds:g} s" for door, seconds in sorted(looks.every_seconds.items()))
    wanted = {
        "look_interval": (timedelta(seconds=every), "a look between two scrapes sees nothing new"),
        "flush_interval": (
            timedelta(seconds=2 * every),
            "what a request did is seen at the scrape after next",
        ),
        "no_data_limit": (timedelta(seconds=4 * every), "two missed scrapes would void a window"),
    }
    short = {name: each for name, each in wanted.items() if getattr(plan.pace, name) < each[0]}
    if not short:
        yield Check("scrape interval", Answer.YES, told)
        return
    lines = "".join(
        f"\n    {name}: {each[0].total_seconds():g}s   # {each[1]}" for name, each in short.items()
    )
    yield Check(
        "scrape interval",
        Answer.DOUBTFUL,
        f"{told}, which the pace does not allow for",
        f"study:\n  pace:{lines}",
    )


# ---- traffic, and what a verdict would cost ----


def _rates(looks: Looks) -> dict[str, float]:
    window = Window(looks.first, looks.last)
    both = [name for name in looks.last.gateway if name in looks.first.gateway]
    comparable = [n for n in both if not looks.last.gateway[n].behind(looks.first.gateway[n])]
    return {name: window.rate_per_second([name]) for name in comparable}


def _traffic(rates: Mapping[str, float], looks: Looks) -> Iterator[Check]:
    if not looks.last.gateway:
        return
    if not rates:
        yield Check(
            "traffic", Answer.DOUBTFUL, "the counters began anew while they were looked at: look again"
        )
    elif sum(rates.values()) == 0.0:
        yield Check(
            "traffic", Answer.DOUBTFUL, "no request came while it was looked at: nothing can be judged"
        )
    else:
        told = ", ".join(f"{name} {rate:.1f}/s" for name, rate in rates.items())
        yield Check("traffic", Answer.YES, told)


def _verdicts(plan: StudyPlan, total_per_second: float) -> Iterator[VerdictCost]:
    rate = total_per_second * fair_share(plan)
    for strict in (False, True):
        levels = STRICT if strict else SCREENING
        for share in SLOW_SHARES:
            requests = requests_to_accept(share, levels.accept_alpha)
            yield VerdictCost(share, strict, requests, _duration(plan, requests, rate))


def _duration(plan: StudyPlan, requests: int | None, rate: float) -> timedelta | None:
    if requests is None or rate <= 0.0:
        return None
    return max(plan.pace.step_minimum, timedelta(seconds=requests / rate))

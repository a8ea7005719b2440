"""Grafana dashboards, recording rules and alerts, all from this one source.

    python -m scripts.monitoring [TARGET.yaml FOLDER [CERTIFICATE.json]]

Without arguments: what `deploy/monitoring` holds, with the rules of `examples/target-prometheus.yaml` as the example of
a target's own. A certificate is what the REST API answers of a promotion; with it the load is held against its band.
Latencies here are for people and alerts; a verdict rests on raw counters alone.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from autotuner.domain.slo import ALLOWED_BAD_SHARE
from autotuner.domain.sources import Instrumentation, PrometheusServer
from autotuner.instruments.presets import Preset, preset_of
from autotuner.target_file import TargetFile, load_target_file

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "deploy" / "monitoring"
EXAMPLE = ROOT / "examples" / "target-prometheus.yaml"
EXAMPLE_CERTIFICATE = FOLDER / "certificate.example.json"
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
GRAFANA_SCHEMA = 39
COLUMNS = 24
NIGHTS = 3
"""Days without a good night after which people are told."""


@dataclass(frozen=True)
class Panel:
    """One panel: what it shows, by (legend, query). unit: Grafana's name of it. kind: `timeseries` or `stat`."""

    title: str
    about: str
    queries: tuple[tuple[str, str], ...]
    unit: str = "short"
    kind: str = "timeseries"
    width: int = 8


# ---- what the panels and rules ask ----


def fleet() -> tuple[Panel, ...]:
    """Panels about the service itself."""
    return (
        Panel(
            "API servers that are ready",
            "They can use their database.",
            (("ready", "sum(autotuner_ready)"),),
            kind="stat",
        ),
        Panel(
            "Schedulers that lead",
            "Exactly 1 is right.",
            (("leaders", "sum(autotuner_scheduler_leads)"),),
            kind="stat",
        ),
        Panel(
            "Studies carried",
            "Unfinished studies by worker.",
            (("{{instance}}", "autotuner_studies_carried"),),
            kind="stat",
        ),
        Panel(
            "Ticks",
            "Ticks a second by what became of them.",
            (("{{result}}", "sum by (result) (rate(autotuner_ticks_total[5m]))"),),
            "ops",
        ),
        Panel(
            "How late ticks are",
            "99 % of ticks began within this of when they were due.",
            (
                (
                    "p99",
                    "histogram_quantile(0.99, sum by (le) (rate(autotuner_tick_lateness_seconds_bucket[5m])))",
                ),
            ),
            "s",
        ),
        Panel(
            "How long ticks take",
            "99 % of ticks took less than this.",
            (
                (
                    "p99",
                    "histogram_quantile(0.99, sum by (le) (rate(autotuner_tick_duration_seconds_bucket[5m])))",
                ),
            ),
            "s",
        ),
        Panel(
            "Nights",
            "Nights settled within a day.",
            (("{{state}}", "sum by (state) (increase(autotuner_nights_total[1d]))"),),
        ),
        Panel(
            "Notices",
            "Attempts to deliver a notice within an hour.",
            (("{{result}}", "sum by (result) (increase(autotuner_notices_total[1h]))"),),
        ),
        Panel(
            "REST requests",
            "Requests a second by status.",
            (("{{status}}", "sum by (status) (rate(autotuner_http_requests_total[5m]))"),),
            "reqps",
        ),
    )


def studies() -> tuple[Panel, ...]:
    """Panels about studies: what they decided and what they cost users."""
    return (
        Panel(
            "Verdicts",
            "Trials judged within an hour.",
            (
                (
                    "{{kind}} {{verdict}}",
                    "sum by (kind, verdict) (increase(autotuner_verdicts_total[1h])) > 0",
                ),
            ),
            width=12,
        ),
        Panel(
            "Share of requests on canaries",
            "The largest share that a canary was last given, by worker.",
            (("{{instance}}", "autotuner_canary_share_ratio"),),
            "percentunit",
            width=12,
        ),
        Panel(
            "Harm",
            "Slow or failed requests above the allowed 1 %, caused within an hour.",
            (("requests", "sum(increase(autotuner_harm_requests_total[1h]))"),),
        ),
        Panel(
            "Harm budgets used",
            "Median and largest share used when studies ended, within a day.",
            tuple(
                (
                    f"p{share}",
                    (
                        f"histogram_quantile({share / 100:g}, sum by (le) "
                        "(increase(autotuner_harm_budget_used_ratio_bucket[1d])))"
                    ),
                )
                for share in (50, 99)
            ),
            "percentunit",
        ),
        Panel(
            "Endings",
            "Studies that ended within a day, by outcome.",
            (("{{outcome}}", "sum by (outcome) (increase(autotuner_studies_ended_total[1d]))"),),
        ),
        Panel(
            "Changes of production",
            "Promotions and rollbacks within a week.",
            (("{{change}}", "sum by (change) (increase(autotuner_production_changes_total[7d]))"),),
            width=12,
        ),
        Panel(
            "Windows without data",
            "Times within an hour that something in an open window could not be measured.",
            (("times", "sum(increase(autotuner_blind_windows_total[1h]))"),),
            width=12,
        ),
    )


class TargetQueries:
    """What is asked about one target: its gateway's histogram by preset, its servers' counters."""

    def __init__(self, asked: TargetFile, certificate: Mapping[str, Any] | None = None) -> None:
        self.target = asked.target()
        self.certificate = certificate
        self.name = self.target.name
        self._plan = self.target.metrics or Instrumentation(PrometheusServer("http://prometheus:9090"))
        self._preset: Preset = preset_of(self._plan)
        self.ceiling_seconds = asked.slo.p99_ms / 1000

    def replicas(self, names: Iterable[str]) -> str:
        """Return matchers of the gateway's series of replicas."""
        template = dict(self._plan.gateway) or dict(self._preset.replica)
        clusters = [self.target.gateway.cluster(backend) for backend in self.target.backends(names)]
        told = {
            label: "|".join(text.replace("{name}", name).replace(".", r"\\.") for name in clusters)
            for label, text in template.items()
        }
        common = [*self._plan.labels, *self._preset.reading.match]
        return ",".join([*(f'{k}="{v}"' for k, v in common), *(f'{k}=~"{v}"' for k, v in told.items())])

    @property
    def sides(self) -> dict[str, tuple[str, ...]]:
        """Replicas of production and the canary."""
        return {"production": self.target.stable_names, "canary": (self.target.canary.name,)}

    def requests(self, names: Iterable[str], window: str) -> str:
        """Return requests a second that ended."""
        return f"sum(rate({self._family}_count{{{self.replicas(names)}}}[{window}]))"

    @property
    def load(self) -> str:
        """Requests a second of one stable replica."""
        recorded = f'autotuner:target_requests:rate5m{{target="{self.name}",side="production"}}'
        return f"{recorded} / {len(self.target.stable)}"

    def bad_share(self, names: Iterable[str], window: str) -> str:
        """Return the share of requests, 0 to 1, that were slower than the ceiling."""
        names = tuple(names)
        edge = self._preset.reading.labels_for(self.ceiling_seconds)[0]
        within = f'{self._family}_bucket{{{self.replicas(names)},le=~"{edge:g}(\\\\.0)?"}}'
        return f"1 - sum(rate({within}[{window}])) / {self.requests(names, window)}"

    def quantile(self, names: Iterable[str], share: float) -> str:
        """Return a latency quantile in the histogram's own unit."""
        buckets = f"{self._family}_bucket{{{self.replicas(names)}}}"
        return f"histogram_quantile({share:g}, sum by (le) (rate({buckets}[5m])))"

    @property
    def unit(self) -> str:
        """The histogram's unit, as Grafana names it."""
        return "ms" if self._preset.reading.labels_for(1.0)[-1] >= 10 else "s"

    @property
    def _family(self) -> str:
        return self._preset.reading.latency.removesuffix("_bucket")


def target_panels(asked: TargetQueries) -> tuple[Panel, ...]:
    """Panels about one target: what its users see, and where the time goes."""
    model = f'model="{asked.target.model}"'
    each = asked.sides.items()

    def mean(part: str) -> str:
        return (
            f"sum by (instance) (rate(nv_inference_{part}_duration_us{{{model}}}[5m])) / 1e6"
            f" / sum by (instance) (rate(nv_inference_request_success{{{model}}}[5m]))"
        )

    batch = (
        f"sum by (instance) (rate(nv_inference_count{{{model}}}[5m]))"
        f" / sum by (instance) (rate(nv_inference_exec_count{{{model}}}[5m]))"
    )
    return (
        Panel(
            "Share of requests over the ceiling",
            f"Slower than {asked.ceiling_seconds * 1e3:g} ms; 1 % is allowed.",
            tuple((side, asked.bad_share(names, "5m")) for side, names in each),
            "percentunit",
            width=12,
        ),
        Panel(
            "p99 for people",
            "Interpolated in buckets; no verdict rests on it.",
            tuple((side, asked.quantile(names, 0.99)) for side, names in each),
            asked.unit,
            width=12,
        ),
        Panel(
            "Requests", "Requests a second.", tuple((s, asked.requests(n, "5m")) for s, n in each), "reqps"
        ),
        *_load_panel(asked),
        Panel(
            "Queue", "Mean seconds a request waits in the batcher.", (("{{instance}}", mean("queue")),), "s"
        ),
        Panel(
            "Compute", "Mean seconds of inference a request.", (("{{instance}}", mean("compute_infer")),), "s"
        ),
        Panel("Realised batch", "Inferences an execution.", (("{{instance}}", batch),)),
        Panel(
            "Device memory",
            "Used bytes, as the servers tell.",
            (
                ("{{instance}}", "nv_gpu_memory_used_bytes"),
                ("{{instance}} total", "nv_gpu_memory_total_bytes"),
            ),
            "bytes",
        ),
    )


def _load_panel(asked: TargetQueries) -> tuple[Panel, ...]:
    if asked.certificate is None:
        return ()
    ends = {end: asked.certificate[f"{end}_rate_per_second"] for end in ("lowest", "highest")}
    return (
        Panel(
            "Load of a replica against its certificate",
            "Requests a second of a stable replica, and its certified band.",
            (("load", asked.load), *((end, f"vector({rate:g})") for end, rate in ends.items())),
            "reqps",
        ),
    )


# ---- dashboards ----


def dashboard(uid: str, title: str, panels: Iterable[Panel]) -> dict[str, Any]:
    """Return a dashboard in Grafana's JSON."""
    return {
        "uid": f"autotuner-{uid}",
        "title": title,
        "tags": ["autotuner"],
        "timezone": "browser",
        "schemaVersion": GRAFANA_SCHEMA,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [_datasource_variable()]},
        "panels": list(_placed(panels)),
    }


def _datasource_variable() -> dict[str, Any]:
    return {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}


def _placed(panels: Iterable[Panel]) -> Iterable[dict[str, Any]]:
    """Panels from left to right, in rows that are as high as everybody's."""
    column, row = 0, 0
    for number, panel in enumerate(panels, start=1):
        if column + panel.width > COLUMNS:
            column, row = 0, row + 8
        yield _panel(number, panel, {"x": column, "y": row, "w": panel.width, "h": 8})
        column += panel.width


def _panel(number: int, panel: Panel, place: Mapping[str, int]) -> dict[str, Any]:
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.about,
        "datasource": DATASOURCE,
        "gridPos": dict(place),
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {
                "refId": chr(ord("A") + position),
                "datasource": DATASOURCE,
                "expr": query,
                "legendFormat": legend,
            }
            for position, (legend, query) in enumerate(panel.queries)
        ],
    }


# ---- rules ----


def alert(name: str, query: str, wait: str, severity: str, told: tuple[str, str]) -> dict[str, Any]:
    """Return an alert. told: what happened, and what to do."""
    summary, advice = told
    return {
        "alert": name,
        "expr": query,
        "for": wait,
        "labels": {"severity": severity},
        "annotations": {"summary": summary, "description": advice},
    }


def service_rules() -> dict[str, Any]:
    """Return the alerts about the service itself."""
    good = 'outcome=~"promoted|kept"'
    return _groups(
        "autotuner",
        [
            alert(
                "AutotunerLeaderMissing",
                "(sum(autotuner_scheduler_leads) or vector(0)) < 1",
                "5m",
                "warning",
                (
                    "No scheduler leads: no night starts.",
                    "Start `autotuner scheduler`, or see why it ended.",
                ),
            ),
            alert(
                "AutotunerTwoLeaders",
                "sum(autotuner_scheduler_leads) > 1",
                "5m",
                "warning",
                (
                    "More than one scheduler says that it leads.",
                    "They are of different databases, or one is stale.",
                ),
            ),
            alert(
                "AutotunerNoGoodNight",
                f"(sum(increase(autotuner_studies_ended_total{{{good}}}[{NIGHTS}d])) or vector(0)) < 1",
                "1h",
                "warning",
                (
                    f"No study has ended with a winner or a kept incumbent for {NIGHTS} days.",
                    "See `autotuner schedule nights` and `autotuner history` for the reasons.",
                ),
            ),
            alert(
                "AutotunerHarmBudgetSpent",
                "sum(increase(autotuner_harm_budget_used_ratio_count[1h]))"
                ' - sum(increase(autotuner_harm_budget_used_ratio_bucket{le=~"1|1\\\\.0"}[1h])) > 0.5',
                "0m",
                "warning",
                (
                    "A study ended because it had spent its harm budget.",
                    "See `autotuner history`; the limits of the target may reach too far.",
                ),
            ),
            alert(
                "AutotunerMetricsStale",
                "sum(increase(autotuner_blind_windows_total[30m])) > 5",
                "5m",
                "warning",
                (
                    "Windows of studies are without data again and again.",
                    "Ask `autotuner metrics check TARGET` what is missing; nothing is promoted meanwhile.",
                ),
            ),
            alert(
                "AutotunerTicksFail",
                'sum(rate(autotuner_ticks_total{result="failed"}[10m])) > 0.1',
                "10m",
                "warning",
                (
                    "Ticks of studies fail again and again.",
                    "See the worker's log; traffic is given back meanwhile.",
                ),
            ),
        ],
    )


def target_rules(asked: TargetQueries) -> dict[str, Any]:
    """Return the recording rules and the alerts of one target."""
    recorded = [
        {
            "record": f"autotuner:target_bad:ratio_rate{window}",
            "expr": asked.bad_share(names, window),
            "labels": {"target": asked.name, "side": side},
        }
        for side, names in asked.sides.items()
        for window in ("5m", "30m", "1h", "6h")
    ]
    band = [_outside_band(asked)] if asked.certificate else []
    rates = [
        {
            "record": "autotuner:target_requests:rate5m",
            "expr": asked.requests(names, "5m"),
            "labels": {"target": asked.name, "side": side},
        }
        for side, names in asked.sides.items()
    ]
    return _groups(f"autotuner-{asked.name}", [*recorded, *rates, *_burns(asked), *band])


def _burns(asked: TargetQueries) -> list[dict[str, Any]]:
    ceiling = f"{asked.ceiling_seconds * 1e3:g} ms"

    def over(window: str, side: str, times: float) -> str:
        series = f'autotuner:target_bad:ratio_rate{window}{{target="{asked.name}",side="{side}"}}'
        return f"{series} > {times * ALLOWED_BAD_SHARE:g}"

    def both(short: str, long: str, side: str, times: float) -> str:
        return f"{over(short, side, times)} and on (target) {over(long, side, times)}"

    canary = f'target="{asked.name}",side="canary"'
    return [
        alert(
            "AutotunerProductionBurnsFast",
            both("5m", "1h", "production", 6.0),
            "2m",
            "critical",
            (
                f"Production of {asked.name}: over 6 % of requests are slower than {ceiling}.",
                "1 % is allowed.",
            ),
        ),
        alert(
            "AutotunerProductionBurnsSlowly",
            both("30m", "6h", "production", 2.0),
            "15m",
            "warning",
            (
                f"Production of {asked.name}: over 2 % of requests are slower than {ceiling}.",
                "1 % is allowed.",
            ),
        ),
        alert(
            "AutotunerCanaryBurns",
            over("5m", "canary", 10.0),
            "5m",
            "warning",
            (
                f"The canary of {asked.name}: over 10 % of requests are slower than {ceiling} for minutes.",
                "A study takes traffic from a bad candidate within seconds: see whether one runs.",
            ),
        ),
        alert(
            "AutotunerCanaryUnattended",
            f"autotuner:target_requests:rate5m{{{canary}}} > 0"
            " and on () (sum(autotuner_studies_carried) or vector(0)) < 1",
            "10m",
            "critical",
            (
                f"The canary of {asked.name} carries requests and no worker carries any study.",
                "Start a worker: it gives production its traffic back, or goes on.",
            ),
        ),
        alert(
            "AutotunerCanaryPastItsTime",
            f"min_over_time(autotuner:target_requests:rate5m{{{canary}}}[8h]) > 0",
            "5m",
            "warning",
            (
                f"The canary of {asked.name} has carried requests for 8 hours.",
                "No study lasts that long by default.",
            ),
        ),
    ]


def _outside_band(asked: TargetQueries) -> dict[str, Any]:
    """More load than was certified. Less is no alert: it is so every night."""
    assert asked.certificate is not None
    highest = asked.certificate["highest_rate_per_second"]
    return alert(
        "AutotunerOutsideLoadBand",
        f"{asked.load} > {highest:g}",
        "15m",
        "warning",
        (
            f"A replica of {asked.name} carries more than the {highest:g} requests a second that were certified.",
            "The ceiling was not shown to hold there: add a replica, or let the next night measure again.",
        ),
    )


def _groups(name: str, rules: list[dict[str, Any]]) -> dict[str, Any]:
    return {"groups": [{"name": name, "rules": rules}]}


# ---- files ----


def files(target_file: Path = EXAMPLE, certificate: Path | None = EXAMPLE_CERTIFICATE) -> dict[str, str]:
    """Return the text of every file by its path below `deploy/monitoring`."""
    given = json.loads(certificate.read_text("utf-8")) if certificate else None
    asked = TargetQueries(load_target_file(target_file), given)
    dashboards = {
        "fleet": dashboard("fleet", "Autotuner: fleet", fleet()),
        "study": dashboard("study", "Autotuner: studies", studies()),
        asked.name: dashboard(asked.name, f"Autotuner: target {asked.name}", target_panels(asked)),
    }
    rules = {"autotuner": service_rules(), asked.name: target_rules(asked)}
    return {
        **{f"dashboards/{name}.json": json.dumps(each, indent=2) + "\n" for name, each in dashboards.items()},
        **{f"rules/{name}.yaml": _yaml(each) for name, each in rules.items()},
    }


def _yaml(content: Any) -> str:
    head = "# Written by python -m scripts.monitoring: change it there.\n"
    return head + yaml.safe_dump(content, sort_keys=False, width=120, allow_unicode=True)


def main(arguments: list[str]) -> None:
    """Write all files."""
    given = [Path(each) for each in arguments]
    target_file, folder = given[:2] if given else (EXAMPLE, FOLDER)
    certificate = (given[2] if len(given) > 2 else None) if given else EXAMPLE_CERTIFICATE
    for name, text in files(target_file, certificate).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
        print(path)


if __name__ == "__main__":
    main(sys.argv[1:])

"""What the panels show and ask: of the service itself, of studies, of one target.

Latencies here are for people; a verdict rests on raw counters alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from autotuner.domain.slo import ALLOWED_BAD_SHARE
from autotuner.instruments.devices import DCGM
from scripts.monitoring.queries import TargetQueries


@dataclass(frozen=True)
class Panel:
    """One panel: what it shows, by (legend, query). unit: Grafana's name of it. kind: `timeseries` or `stat`.

    text: what a `stat` says, Grafana's `textMode`.
    """

    title: str
    about: str
    queries: tuple[tuple[str, str], ...]
    unit: str = "short"
    kind: str = "timeseries"
    width: int = 8
    text: str = "auto"


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
            "Unfinished studies that workers carry.",
            (("studies", "sum(autotuner_studies_carried)"),),
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
            "Certificates",
            "Targets, by how they stand against it.",
            (("{{state}}", "sum by (state) (max by (target, state) (autotuner_certificate_state)) > 0"),),
            width=6,
        ),
        Panel(
            "Nights",
            "Nights settled within a day.",
            (("{{state}}", "sum by (state) (increase(autotuner_nights_total[1d]))"),),
            width=6,
        ),
        Panel(
            "Notices",
            "Attempts to deliver a notice within an hour.",
            (("{{result}}", "sum by (result) (increase(autotuner_notices_total[1h]))"),),
            width=6,
        ),
        Panel(
            "REST requests",
            "Requests a second by status.",
            (("{{status}}", "sum by (status) (rate(autotuner_http_requests_total[5m]))"),),
            "reqps",
            width=6,
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
            "The largest share that a canary was last given.",
            (("share", "max(autotuner_canary_share_ratio)"),),
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


def target_panels(asked: TargetQueries) -> tuple[Panel, ...]:
    """Panels about one target: what its users see, and where the time goes."""
    model = asked.model
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
            (
                *((side, asked.bad_share(names, "5m")) for side, names in each),
                ("allowed", f"vector({ALLOWED_BAD_SHARE:g})"),
            ),
            "percentunit",
            width=12,
        ),
        Panel(
            "p99 for people",
            "Interpolated in buckets; no verdict rests on it.",
            (
                *((side, asked.quantile(names, 0.99)) for side, names in each),
                ("ceiling", f"vector({asked.ceiling:g})"),
            ),
            asked.unit,
            width=12,
        ),
        *_certificate_panels(asked),
        Panel(
            "Requests", "Requests a second.", tuple((s, asked.requests(n, "5m")) for s, n in each), "reqps"
        ),
        Panel(
            "Queue", "Mean seconds a request waits in the batcher.", (("{{instance}}", mean("queue")),), "s"
        ),
        Panel(
            "Compute", "Mean seconds of inference a request.", (("{{instance}}", mean("compute_infer")),), "s"
        ),
        Panel("Realised batch", "Inferences an execution.", (("{{instance}}", batch),), width=12),
        *_memory_panels(asked),
    )


def _memory_panels(asked: TargetQueries) -> tuple[Panel, ...]:
    if asked.memory is None:
        return ()
    used, total = asked.memory
    of = (
        "GPU {{gpu}} {{instance}}"
        if asked.target.metrics and asked.target.metrics.device == DCGM
        else "{{instance}}"
    )
    about = "Used and total bytes, from where the target file says."
    return (Panel("Device memory", about, ((of, used), (f"{of} total", total)), "bytes", width=12),)


def _certificate_panels(asked: TargetQueries) -> tuple[Panel, ...]:
    ends = tuple((f"{end} certified", asked.certified(end)) for end in ("lowest", "highest"))
    state = f'max by (state) (autotuner_certificate_state{{target="{asked.name}"}}) > 0'
    return (
        Panel(
            "Load of a replica against its certificate",
            "Requests a second of a stable replica, and the band it was certified for.",
            (("load", asked.load), *ends),
            "reqps",
            width=16,
        ),
        Panel(
            "Certificate", "Whether it covers production.", (("{{state}}", state),), kind="stat", text="name"
        ),
    )

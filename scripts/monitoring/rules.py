"""Recording rules and alerts, of the service itself and of one target."""

from __future__ import annotations

from typing import Any

from autotuner.domain.slo import ALLOWED_BAD_SHARE
from autotuner.section_values import duration_text
from scripts.monitoring.queries import TargetQueries

NIGHTS = 3
"""Days without a good night after which people are told."""


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
            *_certificates(),
        ],
    )


def _certificates() -> list[dict[str, Any]]:
    """Production has left what its configuration was certified for."""

    def targets(state: str) -> str:
        return f'max by (target) (autotuner_certificate_state{{state="{state}"}}) > 0'

    return [
        alert(
            "AutotunerOutsideLoadBand",
            targets("outside"),
            "15m",
            "warning",
            (
                "A replica of {{ $labels.target }} carries a load that it was not certified for.",
                "The ceiling was not shown to hold there: the next night certifies again, or add a replica.",
            ),
        ),
        alert(
            "AutotunerCertificateChanged",
            targets("changed"),
            "15m",
            "warning",
            (
                "Production of {{ $labels.target }} is not what was certified.",
                "Configuration, version, image or device is another: the next night certifies again.",
            ),
        ),
    ]


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
    rates = [
        {
            "record": "autotuner:target_requests:rate5m",
            "expr": asked.requests(names, "5m"),
            "labels": {"target": asked.name, "side": side},
        }
        for side, names in asked.sides.items()
    ]
    return _groups(f"autotuner-{asked.name}", [*recorded, *rates, *_burns(asked)])


def _burns(asked: TargetQueries) -> list[dict[str, Any]]:
    ceiling = f"{asked.ceiling_seconds * 1e3:g} ms"

    def over(window: str, side: str, times: float) -> str:
        return f"{asked.recorded(f'target_bad:ratio_rate{window}', side)} > {times * ALLOWED_BAD_SHARE:g}"

    def both(short: str, long: str, side: str, times: float) -> str:
        return f"{over(short, side, times)} and on (target) {over(long, side, times)}"

    canary = asked.recorded("target_requests:rate5m", "canary")
    longest = duration_text(asked.longest_study)
    return [
        alert(
            "AutotunerProductionUnseen",
            f"absent({asked.recorded('target_requests:rate5m', 'production')})",
            "10m",
            "warning",
            (
                f"The gateway's counters of production of {asked.name} are not there.",
                "No other alert about it can come: see whether the gateway is scraped, and `autotuner metrics check`.",
            ),
        ),
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
            f"{canary} > 0 and on () (sum(autotuner_studies_carried) or vector(0)) < 1",
            "10m",
            "critical",
            (
                f"The canary of {asked.name} carries requests and no worker carries any study.",
                "Start a worker: it gives production its traffic back, or goes on.",
            ),
        ),
        alert(
            "AutotunerCanaryPastItsTime",
            f"min_over_time({canary}[{longest}]) > 0 and {canary} offset {longest} > 0",
            "5m",
            "warning",
            (
                f"The canary of {asked.name} has carried requests for {longest}, longer than a study may.",
                "See whether a worker carries its study; `autotuner cancel` gives production its traffic back.",
            ),
        ),
    ]


def _groups(name: str, rules: list[dict[str, Any]]) -> dict[str, Any]:
    return {"groups": [{"name": name, "rules": rules}]}

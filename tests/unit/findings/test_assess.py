"""Rules together: order, causes without their effects, and what healthy means."""

from __future__ import annotations

import re

from autotuner.domain.findings.assess import assess, assess_counted
from autotuner.domain.findings.kinds import Confidence, Finding, Kind, Severity, ordered
from autotuner.domain.findings.reading import Quantiles
from tests.diagnoses import (
    CAPPED,
    SATURATED,
    WAITING,
    a_config,
    a_gateway,
    a_replica,
    a_scene,
    batcher,
    some_work,
)
from tests.documents import ROOT


def kinds(findings: tuple[Finding, ...]) -> list[Kind]:
    return [finding.kind for finding in findings]


def test_a_healthy_deployment_is_called_healthy_and_nothing_else() -> None:
    (found,) = assess(a_scene())

    assert (found.kind, found.confidence) == (Kind.HEALTHY, Confidence.SURE)
    assert "within the ceiling" in found.evidence[0]


def test_healthy_is_only_likely_on_few_requests_or_without_a_p99() -> None:
    (few,) = assess(a_scene(a_replica(some_work({1: (20, 10.0), 2: (10, 11.0)})), seconds=0.5))
    unknown = assess(a_scene(a_replica(quantiles={})))

    assert (few.kind, few.confidence) == (Kind.HEALTHY, Confidence.LIKELY)
    assert (unknown[0].kind, unknown[0].confidence) == (Kind.HEALTHY, Confidence.LIKELY)


def test_what_costs_no_request_anything_stands_behind_healthy() -> None:
    findings = assess(a_scene(a_replica(quantiles={}), gateway=a_gateway(15.0)))

    assert kinds(findings) == [Kind.HEALTHY, Kind.MISCONFIGURATION]


def test_a_broken_ceiling_is_never_healthy() -> None:
    quantiles = {"request": Quantiles(0.015, 0.08, 0.150)}
    findings = assess(a_scene(a_replica(quantiles=quantiles)))

    assert kinds(findings) == [Kind.BATCHING]
    assert findings[0].confidence is Confidence.POSSIBLE


def test_an_idle_minute_says_so_and_judges_no_load() -> None:
    findings = assess(a_scene(a_replica(some_work({}), quantiles={})))

    assert kinds(findings) == [Kind.IDLE, Kind.MISCONFIGURATION]


def test_a_cap_is_told_instead_of_the_batching_problem_it_makes() -> None:
    config = a_config(dynamic_batching=batcher(0, 4, 8))
    findings = assess(a_scene(a_replica(CAPPED, utilisation=0.4), config=config))

    assert kinds(findings)[0] is Kind.MISCONFIGURATION
    assert Kind.BATCHING not in kinds(findings)


def test_a_saturated_model_is_not_told_to_batch() -> None:
    findings = assess(a_scene(a_replica(SATURATED, utilisation=0.97), config=a_config(max_batch_size=8)))

    assert kinds(findings) == [Kind.SATURATION]


def test_a_model_over_the_ceiling_comes_first_and_alone() -> None:
    findings = assess(a_scene(a_replica(some_work({1: (60, 150.0)}, queue_ms=200.0))))

    assert kinds(findings)[0] is Kind.MODEL
    assert Kind.BATCHING not in kinds(findings)


def test_nothing_of_the_dynamic_batcher_is_said_of_another_batcher() -> None:
    config = a_config(sequence_batching={"direct": {}}, dynamic_batching=None)
    findings = assess(a_scene(a_replica(WAITING), config=config))

    assert kinds(findings)[0] is Kind.STATEFUL
    assert not {Kind.BATCHING, Kind.THIN_TRAFFIC, Kind.INSTANCES, Kind.SATURATION} & set(kinds(findings))


def test_a_reload_in_the_window_lets_nothing_measured_be_sure() -> None:
    findings = assess(a_scene(a_replica(SATURATED, reloads=1), config=a_config(max_batch_size=8)))

    assert findings[0].kind is Kind.COLD_START
    assert [one.confidence for one in findings[1:]] == [Confidence.LIKELY] * len(findings[1:])


def a_finding(kind: Kind, confidence: Confidence, severity: Severity, share: float) -> Finding:
    return Finding(kind, confidence, ("seen",), "mend it", severity, share)


def test_findings_are_ordered_by_severity_then_confidence_then_share() -> None:
    wanted = [
        a_finding(Kind.STATEFUL, Confidence.LIKELY, Severity.DECIDES, 0.1),
        a_finding(Kind.MODEL, Confidence.SURE, Severity.BREAKS, 0.2),
        a_finding(Kind.SATURATION, Confidence.LIKELY, Severity.BREAKS, 0.9),
        a_finding(Kind.BATCHING, Confidence.SURE, Severity.COSTS, 0.9),
        a_finding(Kind.INSTANCES, Confidence.SURE, Severity.COSTS, 0.2),
    ]

    assert list(ordered(reversed(wanted))) == wanted


def test_counters_alone_say_nothing_of_instruments() -> None:
    silent = a_scene(a_replica(quantiles={}, metrics=False), gateway=a_gateway(15.0))

    assert kinds(assess_counted(silent)) == [Kind.HEALTHY]


def test_the_documented_kinds_are_the_closed_list() -> None:
    page = (ROOT / "docs" / "diagnose.md").read_text("utf-8")
    listed = page[page.index("| kind | what | takes |") : page.index("Means of fewer than")]

    assert re.findall(r"^\| `(\w+)` \|", listed, re.MULTILINE) == [kind.value for kind in Kind]

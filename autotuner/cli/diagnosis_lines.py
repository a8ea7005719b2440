"""A diagnosis for a terminal: findings, a bar of where the time goes, batches, the prediction, what is missing."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.text import Text

from autotuner.cli.terminal_tables import for_terminal
from autotuner.domain.findings.breakdown import Breakdown, Part
from autotuner.domain.findings.diagnosis import Diagnosis
from autotuner.domain.findings.kinds import Confidence, Finding, Kind, title_of
from autotuner.domain.findings.prediction import worth
from autotuner.domain.findings.scene import ms
from autotuner.domain.needs import Answer
from autotuner.report.diagnosis_tables import (
    PART_TITLES,
    arrivals_text,
    batch_shares,
    batch_table,
    device_text,
    knee_text,
    named_table,
    parts_table,
)

WIDTH = 110
"""Columns where the output is no terminal."""

BAR = 60
"""Cells of the bar."""

COLOURS = {
    Part.BEFORE_TRITON: "magenta",
    Part.QUEUE: "yellow",
    Part.INPUT: "cyan",
    Part.INFER: "blue",
    Part.OUTPUT: "green",
    Part.REST: "white",
}
SIGNS = dict(zip(Part, "░▒·█:─", strict=True))
"""A sign for each part, so that none depends on its colour."""

CONFIDENCE_STYLES = {Confidence.SURE: "bold", Confidence.LIKELY: "", Confidence.POSSIBLE: "dim"}
ANSWER_SIGNS = {Answer.YES: "yes", Answer.NO: "NO", Answer.UNKNOWN: "?", Answer.DOUBTFUL: "(?)"}


def print_diagnosis(found: Diagnosis) -> None:
    """Print a diagnosis."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=WIDTH)
    scene = found.scene
    requests = f"{scene.work.requests:,} requests in {scene.window.seconds:.0f} s"
    console.print(
        f"[bold]{escape(scene.model)}[/bold]: {requests} on {len(scene.window.replicas)} replica(s), "
        f"{scene.window.rate_per_second:.3g}/s each; ceiling of p99 {ms(scene.ceiling_seconds)}",
        soft_wrap=True,
    )
    for finding in found.findings:
        _print_finding(console, finding)
    if found.breakdown.total_seconds:
        _print_breakdown(console, found.breakdown)
    if found.realised.batches:
        console.print(for_terminal(batch_table(found), batch_shares(found)))
    console.print(f"device busy / memory: {device_text(found)}")
    console.print("\n[bold]What tuning would be worth[/bold] (predicted)")
    console.print(f"  {escape(worth(found.prediction))}", soft_wrap=True)
    if (prospect := found.prediction.prospect) is not None:
        console.print(for_terminal(named_table(found)))
        console.print(f"  arrivals: {arrivals_text(prospect)}", soft_wrap=True)
        if knee := knee_text(prospect):
            console.print(f"  knee of the frontier: {knee}", soft_wrap=True)
    _print_study(console, found)
    for one in scene.facts.unread:
        console.print(f"[dim]not read: {escape(one.sentence())}[/dim]", soft_wrap=True)


def _print_finding(console: Console, finding: Finding) -> None:
    colour = "green" if finding.kind is Kind.HEALTHY else "red"
    style = CONFIDENCE_STYLES[finding.confidence]
    console.print()
    console.print(Text(title_of(finding), style=f"{colour} {style}".strip()))
    for sentence in finding.evidence:
        console.print(f"  {escape(sentence)}", soft_wrap=True)
    console.print(f"  [italic]→ {escape(finding.remedy)}[/italic]", soft_wrap=True)


def _print_breakdown(console: Console, found: Breakdown) -> None:
    console.print(
        f"\n[bold]Where a request's time goes[/bold] (mean {ms(found.total_seconds)}, from {found.source})"
    )
    console.print(bar(found))
    legend = Text()
    for one in found.shares:
        if one.mean_seconds is not None:
            legend.append(f"{SIGNS[one.part]} ", style=COLOURS[one.part])
            legend.append(f"{PART_TITLES[one.part]} {ms(one.mean_seconds)}   ")
    console.print(legend)
    console.print(for_terminal(parts_table(found)))


def bar(found: Breakdown) -> Text:
    """Return the stacked bar: BAR cells, each part with its own sign, every part of note at least one cell."""
    known = [(one.part, one.mean_seconds) for one in found.shares if one.mean_seconds]
    total = sum(seconds for _, seconds in known) or 1.0
    made = Text()
    for part, seconds in known:
        cells = round(BAR * seconds / total) or int(seconds / total >= 0.005)
        made.append(SIGNS[part] * cells, style=COLOURS[part])
    return made


def _print_study(console: Console, found: Diagnosis) -> None:
    possible = {True: "yes", False: "no", None: "not known"}[found.study_possible.possible]
    console.print(f"\n[bold]Could a study run here?[/bold] {possible}")
    for need in found.study_possible.needs:
        console.print(
            f"  {ANSWER_SIGNS[need.answer]:>3}  {escape(need.what)}: {escape(need.detail)}", soft_wrap=True
        )

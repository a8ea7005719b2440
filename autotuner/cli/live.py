"""What a demo shows while it runs: lines as things happen, a progress bar for the study, the harm so far."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from autotuner.domain.study import Phase, Study, TrialKind, TrialState

STYLES = {
    "phase": "bold cyan",
    "trial": "bold",
    "reason": "dim",
    "step": "",
    "verdict": "italic",
    "judged": "bold green",
}

INDENT = {"phase": "", "trial": "  ", "reason": "    ", "step": "    ", "verdict": "      ", "judged": "  "}

SHARES = {
    TrialKind.PRODUCTION: 0.05,
    TrialKind.BASELINE: 0.12,
    TrialKind.CONFIRMATION: 0.13,
    TrialKind.CONTROL: 0.05,
    TrialKind.STAGE: 0.06,
    TrialKind.WATCH: 0.08,
}
"""Share of a study's length that one trial of a kind usually takes; candidates share what is left."""

SEARCH_SHARE = 0.45


def done_share(study: Study) -> float:
    """Return about how much of a study is done, 0 to 1; never less while it goes on."""
    if study.phase is Phase.ENDED:
        return 1.0
    done = 0.0
    for trial in study.trials:
        whole = SHARES.get(trial.kind, SEARCH_SHARE / max(1, study.plan.max_trials))
        inside = 1.0 if trial.state is TrialState.JUDGED else len(trial.accepted) / max(1, len(trial.levels))
        done += whole * inside
    least = {Phase.CONFIRMATION: 0.62, Phase.PROMOTION: 0.80, Phase.WATCH: 0.90, Phase.RESTORATION: 0.98}
    return min(0.99, max(done, least.get(study.phase, 0.0)))


class Display:
    """Lines and a progress bar on standard error, or on standard output when that is not needed for JSON."""

    def __init__(self, *, json: bool) -> None:
        self.console = Console(stderr=json, highlight=False, soft_wrap=True)
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:3.0f} %"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[harm]}"),
            console=self.console,
            transient=True,
            disable=not self.console.is_terminal,
        )
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def progress(self, sentence: str) -> None:
        """Show something that is not about the study's trials."""
        self.console.print(f"[dim]· {escape(sentence)}[/dim]")

    def line(self, kind: str, text: str) -> None:
        """Show one line of news of the study."""
        style = STYLES[kind]
        if kind == "verdict" and text.startswith(("REJECT", "VOID")):
            style = "yellow"
        shown = escape(text)
        self.console.print(f"{INDENT[kind]}[{style}]{shown}[/{style}]" if style else f"{INDENT[kind]}{shown}")

    def update(self, study: Study) -> None:
        """Move the progress bar to where the study is."""
        harm = f"harm {study.harm_requests:.0f} of {study.plan.slo.harm_budget_requests} requests"
        if self._task is None:
            self._task = self._progress.add_task(f"study {study.id}", total=1.0, harm=harm)
        self._progress.update(self._task, completed=done_share(study), harm=harm, description=study.phase)

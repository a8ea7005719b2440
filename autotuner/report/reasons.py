"""Why a study ended as it did, in plain words; each sentence rests on figures of the records."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from autotuner.domain.benefit import benefit, winning_trial
from autotuner.domain.findings.kinds import Finding, Kind, title_of
from autotuner.domain.findings.opening import opening
from autotuner.domain.judgement import Verdict
from autotuner.domain.selection import TIE, baseline, capacity_per_second, compute_per_inference
from autotuner.domain.slo import ALLOWED_BAD_SHARE
from autotuner.domain.study import Outcome, Step, Study, Trial, TrialKind
from autotuner.domain.target import Objective
from autotuner.report.series import shown_step
from autotuner.report.tables import summary
from autotuner.report.text import figure, milliseconds, whole

NEXT = {
    Outcome.KEPT: "Nothing has to be done: production serves what it served before.",
    Outcome.INCONCLUSIVE: (
        "Production serves what it served before. More traffic in the window, a longer step_limit or a larger harm "
        "budget give a study more to judge by."
    ),
    Outcome.ROLLED_BACK: (
        "Production serves what it served before the promotion. The next night may find the same winner again: tighten "
        "the SLO budget, or freeze the target, until it is known why the promotion did not do."
    ),
    Outcome.ABORTED: (
        "Production serves what it served before. See to the reason, then start a study again or wait for the next "
        "night."
    ),
}


ENDED = {
    Outcome.KEPT: "Why was the incumbent kept?",
    Outcome.ROLLED_BACK: "What was taken back?",
}


@dataclass(frozen=True)
class Reason:
    """One question somebody asks of a study, and its answer."""

    question: str
    answer: str


def reasons(study: Study) -> tuple[Reason, ...]:
    """Return why a study stands as it does; the questions fit its outcome."""
    return tuple(_reasons(study))


def _reasons(study: Study) -> Iterator[Reason]:
    if found := opening(study):
        yield Reason("What was production like before?", " ".join(map(_told, found)))
    best = winning_trial(study) if study.winner is not None else None
    if best is not None:
        yield Reason("What won?", summary(study) or f"{best.configuration.describe()}.")
        yield Reason("Why this one?", _against_the_others(study, study.trials[study.winner or 0]))
        faster = _where_the_time_went(study, best)
        if faster:
            yield Reason("What does it do differently?", faster)
        yield Reason("How sure is that?", _how_sure(study, best))
    if study.outcome is not None and study.outcome is not Outcome.PROMOTED:
        yield Reason(ENDED.get(study.outcome, "Why did it end without a result?"), _sentence(study.reason))
        yield Reason("What now?", NEXT[study.outcome])
    if study.trials and study.outcome is not None:
        yield Reason("What did finding out cost?", _cost(study))


def _told(finding: Finding) -> str:
    """A finding with its evidence; what is healthy needs no remedy."""
    said = f"{title_of(finding)}: {'; '.join(finding.evidence)}"
    return _sentence(said) + ("" if finding.kind is Kind.HEALTHY else f" {_sentence(finding.remedy)}")


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".") if text else ""


def _against_the_others(study: Study, chosen: Trial) -> str:
    tried = [trial for trial in study.trials if trial.kind is TrialKind.CANDIDATE]
    held = [trial for trial in tried if trial.accepted]
    others = [t for t in held if t.configuration != chosen.configuration]
    second = max(others, key=lambda trial: capacity_per_second(study, trial) or 0.0, default=None)
    said = f"Of {len(tried)} tried on the canary, {len(held)} held the ceiling"
    if study.plan.target.objective is Objective.EFFICIENCY:
        said += "; this one took least compute for an inference."
    elif second is None:
        said += "."
    else:
        said += _in_capacity(study, chosen, second)
    if chosen.proposal is not None and chosen.proposal.reason:
        said += f" It was tried because: {_sentence(chosen.proposal.reason)}"
    return said


def _in_capacity(study: Study, chosen: Trial, second: Trial) -> str:
    """How the chosen one stands to the next in capacity, where that leads."""
    mine, other = capacity_per_second(study, chosen) or 0.0, capacity_per_second(study, second) or 0.0
    named = f"#{second.number} ({second.configuration.describe()})"
    if other >= mine * (1.0 - TIE):
        work = [compute_per_inference(trial) for trial in (chosen, second)]
        figures = " against ".join(milliseconds(seconds) for seconds in work)
        return (
            f". Within {TIE:.0%} {named} carried as much: between such, less compute for an inference decides "
            f"({figures} ms), then fewer instances, then the simpler configuration."
        )
    rate = whole(other, "≥ " if second.censored else "")
    return f"; this one carried most requests. The next best, {named}, carried {rate}/s."


def _where_the_time_went(study: Study, best: Trial) -> str:
    """How queue, compute and batches differ at the same load."""
    before = baseline(study)
    old = shown_step(study, before) if before is not None else None
    new = shown_step(study, best)
    if old is None or new is None or old.use is None or new.use is None:
        return ""
    return (
        f"At production's load a request waited {milliseconds(new.use.queue_seconds)} ms in Triton's queue (incumbent: "
        f"{milliseconds(old.use.queue_seconds)} ms) and was computed in {milliseconds(new.use.compute_seconds)} ms "
        f"({milliseconds(old.use.compute_seconds)} ms), in batches of {figure(new.use.realised_batch, 2)} "
        f"({figure(old.use.realised_batch, 2)})."
    )


def _how_sure(study: Study, best: Trial) -> str:
    if best.kind is not TrialKind.CONFIRMATION or best.verdict is not Verdict.ACCEPT:
        return "It has not been confirmed on fresh data yet, so nothing is promoted."
    total = sum(step.candidate.total for step in _judged(best))
    slow = sum(step.candidate.bad_at_most for step in _judged(best))
    said = (
        f"It was measured again on fresh data, more strictly: {slow:,} of {total:,} requests were slow or failed "
        f"(allowed: {ALLOWED_BAD_SHARE * total:,.0f})"
    )
    watches = [t for t in study.trials if t.kind is TrialKind.WATCH and t.verdict is Verdict.ACCEPT]
    if watches:
        said += ", and production held the ceiling under watch afterwards"
    if study.dispersion > 1.0:
        said += (
            f". Counts were divided by {figure(study.dispersion)} first, because slow requests come in bursts"
        )
    return f"{said}."


def _judged(trial: Trial) -> list[Step]:
    return [step for step in trial.steps if step.level.number >= 0]


def _cost(study: Study) -> str:
    worth = benefit(study)
    return (
        f"{whole(worth.harm_requests)} slow or failed requests above the allowed 1 %, of a harm budget of "
        f"{worth.harm_budget_requests:,}, in {len(study.trials)} trials."
    )

"""Trials: the list with its filters, and one with all the evidence behind its verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fastapi import APIRouter, Request, Response
from markupsafe import Markup

from api.dependencies import App
from api.lists import ReadRoute
from api.parameters import StudyId, TrialNumber
from api.routes.trials import trials_page
from api.schemas.questions import TrialsAsked
from api.schemas.studies import SourceAnswer, trial_answer
from api.ui.forms import question
from api.ui.rendering import renderer_of
from autotuner.catalogue import TrialEvidence, TrialSort
from autotuner.domain.judgement import Verdict
from autotuner.domain.slow_requests import SlowRequests
from autotuner.domain.study import Study, TrialKind
from autotuner.report import tables, way
from autotuner.report.hindsight import predicted

router = APIRouter(prefix="/ui", include_in_schema=False, route_class=ReadRoute)


@dataclass(frozen=True)
class Way:
    """The way of slow requests: the bar in every size, and its table."""

    pictures: tuple[Markup, ...]
    parts: tables.Table


@dataclass(frozen=True)
class TrialView:
    """A trial with its evidence. steps: a table of the statistics; predicted: what a model had said, if one had.

    ways: the way of each step's slow requests, where traces told of it.
    """

    evidence: TrialEvidence
    sources: tuple[SourceAnswer, ...]
    steps: tables.Table
    predicted: tables.Table
    ways: tuple[Way | None, ...]


@router.get("/trials")
def show_trials(app: App, request: Request) -> Response:
    """List trials of all studies, newest first unless asked otherwise."""
    asked = question(TrialsAsked, request.scope)
    found, cursor = trials_page(app.catalogue, asked.wanted(), asked)
    return renderer_of(request).page(
        request.scope,
        "trials.html.j2",
        trials=found,
        cursor=cursor,
        asked=asked,
        verdicts=list(Verdict),
        kinds=list(TrialKind),
        sorts=list(TrialSort),
    )


@router.get("/studies/{study_id}/trials/{number}")
def show_trial(app: App, request: Request, study_id: StudyId, number: TrialNumber) -> Response:
    """Show a trial with every step's counts, their source, the statistics and the reason."""
    evidence = app.catalogue.evidence(study_id, number)
    proposal = evidence.trial.proposal
    rate = None
    if proposal is not None and proposal.predicted:
        rate = app.catalogue.standing(evidence.summary.study).reference_rate_per_second
    answer = trial_answer(evidence, app.settings.trace_url)
    view = _view(evidence, answer.sources, rate)
    return renderer_of(request).page(request.scope, "trial.html.j2", view=view, trace_url=answer.trace_url)


def _view(
    evidence: TrialEvidence, sources: Sequence[SourceAnswer], rate_per_second: float | None
) -> TrialView:
    """What the page shows. rate_per_second: the study's mean rate over all replicas, which predictions are held to."""
    # A study of this trial alone: the report's tables of a study then are tables of the trial.
    alone = Study(
        evidence.summary.study,
        evidence.plan,
        evidence.summary.proposed_at,
        "",
        trials=(evidence.trial,),
        reference_rate_per_second=rate_per_second,
    )
    return TrialView(
        evidence=evidence,
        sources=tuple(sources),
        steps=tables.steps(evidence.trial),
        predicted=predicted(alone),
        ways=tuple(_way(step.slow, f"way-{number}") for number, step in enumerate(evidence.trial.steps)),
    )


def _way(slow: SlowRequests | None, name: str) -> Way | None:
    return None if slow is None else Way(way.bars(slow, name), way.parts(slow))

"""Trials: filtered, sorted, paged; exported as a stream; and one with all its evidence."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse

from api.dependencies import App
from api.description import problems
from api.lists import ReadRoute, drawn
from api.paging import cursor_of, window
from api.parameters import StudyId, TrialNumber
from api.schemas.questions import Sorted, TrialsAsked, TrialsOf
from api.schemas.studies import TrialAnswer, TrialItem, trial_answer, trial_item
from api.schemas.wire import Page
from autotuner.bootstrap import Application
from autotuner.catalogue import Catalogue, TrialFilter, TrialSort, TrialSummary

router = APIRouter(prefix="/v1", tags=["Trials"], route_class=ReadRoute)

CSV = "text/csv"
JSON_LINES = "application/jsonl"
COLUMNS = (
    "study",
    "target",
    "number",
    "kind",
    "state",
    "replicas",
    "max_queue_delay_microseconds",
    "preferred_batch_size",
    "instance_count",
    "max_batch_size",
    "verdict",
    "limited_by",
    "reason",
    "capacity_per_second",
    "harm_requests",
    "proposed_at",
    "ended_at",
)
"""The columns of the CSV export; sets are written with spaces between their members."""

FIRST_CHUNK, CHUNK = 15, 200
"""Lines that are sent at a time: at first, then twice as many each time, and at most."""


def trials_page(
    catalogue: Catalogue, wanted: TrialFilter, asked: Sorted
) -> tuple[tuple[TrialSummary, ...], str | None]:
    """Return trials in the order asked for, and the cursor of those that follow."""
    order = asked.order()
    name = f"trials by {order.by}, {'descending' if order.descending else 'ascending'}"
    kinds = "dsi" if order.by is TrialSort.PROPOSED_AT else "fsi"
    found = catalogue.trials(wanted, order, window(name, kinds, asked))
    return found.items, cursor_of(name, found.mark)


def _page(catalogue: Catalogue, wanted: TrialFilter, asked: Sorted) -> Page[TrialItem]:
    found, cursor = trials_page(catalogue, wanted, asked)
    return Page[TrialItem](items=[trial_item(each) for each in found], next_cursor=cursor)


@router.get("/trials", response_model=Page[TrialItem], summary="Trials of all studies")
def list_trials(app: App, asked: Annotated[TrialsAsked, Query()]) -> Page[TrialItem]:
    """Return trials of all studies, filtered and sorted."""
    return _page(app.catalogue, asked.wanted(), asked)


@router.get(
    "/studies/{study_id}/trials",
    response_model=Page[TrialItem],
    responses=problems("not-found"),
    summary="Trials of a study",
)
def list_of_study(app: App, study_id: StudyId, asked: Annotated[Sorted, Query()]) -> Page[TrialItem]:
    """Return the trials of one study, newest first unless asked otherwise."""
    wanted = TrialFilter(study=app.catalogue.study_id(study_id))
    return _page(app.catalogue, wanted, asked)


@router.get(
    "/studies/{study_id}/trials/{number}",
    response_model=TrialAnswer,
    responses=problems("not-found"),
    summary="A trial with its evidence",
)
def read_trial(app: App, study_id: StudyId, number: TrialNumber) -> TrialAnswer:
    """Return a trial with every step's counts, their source, the statistics and the reason."""
    return trial_answer(app.catalogue.evidence(study_id, number), app.settings.trace_url)


def _streamed(media_type: str, example: str) -> dict[int | str, dict[str, Any]]:
    content = {media_type: {"schema": {"type": "string"}, "example": example}}
    return {200: {"description": "A line a trial, streamed", "content": content}}


@router.get(
    "/trials.csv",
    response_class=StreamingResponse,
    responses=_streamed(CSV, ",".join(COLUMNS)),
    summary="Every trial as CSV",
)
def export_csv(app: App, asked: Annotated[TrialsOf, Query()]) -> StreamingResponse:
    """Stream every trial that the filters leave, oldest first, as CSV with a line of names first."""
    return _stream(app, _csv_lines(_all(app.catalogue, asked.wanted())), CSV, "trials.csv")


@router.get(
    "/trials.jsonl",
    response_class=StreamingResponse,
    responses=_streamed(JSON_LINES, '{"study":"small-vision-1","target":"small-vision","number":3}'),
    summary="Every trial as JSON Lines",
)
def export_json_lines(app: App, asked: Annotated[TrialsOf, Query()]) -> StreamingResponse:
    """Stream every trial that the filters leave, oldest first, one JSON object a line, as lists show them."""
    lines = (trial_item(trial).model_dump_json() + "\n" for trial in _all(app.catalogue, asked.wanted()))
    return _stream(app, lines, JSON_LINES, "trials.jsonl")


def _all(catalogue: Catalogue, wanted: TrialFilter) -> Iterator[TrialSummary]:
    """Every trial; whether the store answers at all is known before the first line is sent."""
    trials = iter(catalogue.every_trial(wanted))
    first = next(trials, None)
    return iter(()) if first is None else chain((first,), trials)


def _stream(app: Application, lines: Iterable[str], media_type: str, file_name: str) -> StreamingResponse:
    """Return what sends all lines. The first piece is made at once: whoever calls this is in a thread that reads."""
    pieces = _chunks(lines)
    disposition = {"Content-Disposition": f'attachment; filename="{file_name}"'}
    return StreamingResponse(drawn(app, next(pieces), pieces), media_type=media_type, headers=disposition)


def _chunks(lines: Iterable[str]) -> Iterator[str]:
    """The same text in larger pieces, at least one: a piece costs a change of threads."""
    pending: list[str] = []
    enough = FIRST_CHUNK
    for line in lines:
        pending.append(line)
        if len(pending) >= enough:
            yield "".join(pending)
            pending.clear()
            enough = min(2 * enough, CHUNK)
    yield "".join(pending)


def _csv_lines(trials: Iterable[TrialSummary]) -> Iterator[str]:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for trial in trials:
        writer.writerow(_cells(trial))
        yield text.getvalue()
        text.seek(0)
        text.truncate()
    yield text.getvalue()


def _cells(trial: TrialSummary) -> tuple[object, ...]:
    """A trial's cells, in the order of `COLUMNS`."""
    configuration = trial.configuration
    return (
        trial.study,
        trial.target,
        trial.number,
        trial.kind,
        trial.state,
        " ".join(trial.replicas),
        configuration.max_queue_delay_microseconds,
        " ".join(map(str, configuration.preferred_batch_size)),
        configuration.instance_count,
        configuration.max_batch_size,
        trial.verdict,
        trial.limited_by,
        _no_formula(trial.reason),
        trial.capacity_per_second,
        trial.harm_requests,
        trial.proposed_at.isoformat(),
        None if trial.ended_at is None else trial.ended_at.isoformat(),
    )


def _no_formula(text: str) -> str:
    """A text that a spreadsheet does not compute: reasons quote what foreign servers answer."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text

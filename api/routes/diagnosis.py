"""The diagnosis of a target: measured when it is asked for, and never more than a few at the same time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Body, Query

from api.dependencies import App
from api.description import problems
from api.parameters import TargetName
from api.problems import TooManyRequests
from api.schemas.diagnosis import (
    EXAMPLE_ASKED,
    LONGEST,
    SHORTEST,
    WINDOW_ALLOWED,
    AskDiagnosis,
    DiagnosisAnswer,
)
from autotuner.addresses import AllowList, check_addresses
from autotuner.bootstrap import Application
from autotuner.diagnosing import Asked, diagnose, runs
from autotuner.diagnosis_answers import diagnosis_object
from autotuner.domain.findings.prediction import Wish
from autotuner.errors import InvalidInput
from autotuner.promotions import certified
from autotuner.section_values import duration_text

router = APIRouter(prefix="/v1/targets", tags=["Targets"])

AT_ONCE = 4
"""Diagnoses of one process at the same time: each holds a thread for its window, and a processor for its prediction."""

RETRY_SECONDS = 15
_seats = threading.BoundedSemaphore(AT_ONCE)


@router.get(
    "/{name}/diagnosis",
    response_model=DiagnosisAnswer,
    responses=problems("not-found", "refused", "unavailable", "too-many-requests"),
    summary="What is wrong with a target, in a brief look",
)
def brief_diagnosis(
    app: App,
    name: TargetName,
    seconds: Annotated[
        float, Query(ge=2, le=15, description="How long to look, seconds, 2 to 15.", examples=[5])
    ] = 5.0,
) -> DiagnosisAnswer:
    """Look at the stable replicas and the gateway now, change nothing, and answer when the window is over."""
    return _diagnosed(app, name, timedelta(seconds=seconds), None)


@router.post(
    "/{name}/diagnosis",
    response_model=DiagnosisAnswer,
    responses=problems("not-found", "refused", "unavailable", "too-many-requests"),
    summary="What is wrong with a target, in a look of a chosen length",
)
def full_diagnosis(
    app: App,
    name: TargetName,
    asked: Annotated[AskDiagnosis, Body(openapi_examples={"twenty seconds": {"value": EXAMPLE_ASKED}})],
) -> DiagnosisAnswer:
    """The same with a window of up to a minute and, if wanted, another ceiling than the target's own."""
    if not SHORTEST <= asked.window <= LONGEST:
        raise InvalidInput("window", duration_text(asked.window), WINDOW_ALLOWED)
    return _diagnosed(app, name, asked.window, asked.p99_ms)


def _diagnosed(app: Application, name: str, window: timedelta, p99_ms: float | None) -> DiagnosisAnswer:
    kept = app.registry.registration(name)
    check_addresses(kept.target, AllowList.read(app.settings.target_addresses))
    ceiling = kept.slo.p99_ceiling_seconds if p99_ms is None else p99_ms / 1e3
    target = kept.target
    wish = Wish(target.objective, target.replica_cost_per_hour, target.currency, target.limits)
    with _seat():
        observer = app.observers(target, app.clock)
        found = diagnose(observer, app.clock, app.wait, Asked(ceiling, window, wish))
    proof = certified(app.desk(), name, runs(found))
    told = proof and {"study": proof.certificate.study_id, "lapsed": proof.lapsed}
    return DiagnosisAnswer.model_validate({**diagnosis_object(found), "certificate": told})


@contextmanager
def _seat() -> Iterator[None]:
    """Take one of the seats for as long as the block lasts. Raises TooManyRequests when none is free."""
    if not _seats.acquire(blocking=False):
        raise TooManyRequests(RETRY_SECONDS)
    try:
        yield
    finally:
        _seats.release()

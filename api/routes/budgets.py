"""SLO budgets: the version in force, its predecessors, and new ones made of what was read."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Query, Response

from api.dependencies import App, Caller
from api.description import problems
from api.lists import ReadRoute
from api.paging import cursor_of, window
from api.parameters import IfMatch, TargetName, etag, expected_mark
from api.schemas.questions import Paged
from api.schemas.targets import EXAMPLE_SLO, BudgetAnswer, BudgetVersion, budget_answer, budget_version
from api.schemas.wire import Page
from autotuner.domain.slo import SloBudget
from autotuner.errors import Outdated
from autotuner.target_file import SloSection
from autotuner.targets import Asked, set_budget

router = APIRouter(prefix="/v1/targets/{name}/slo-budget", tags=["SLO budgets"], route_class=ReadRoute)

ETAG: dict[str, Any] = {
    "ETag": {"description": "The version, for If-Match.", "schema": {"type": "string"}, "example": '"2"'}
}
NEWEST_FIRST = "versions of a budget"


@router.get(
    "",
    response_model=BudgetAnswer,
    responses={200: {"headers": ETAG}, **problems("not-found")},
    summary="The SLO budget in force",
)
def read_budget(app: App, name: TargetName, response: Response) -> BudgetAnswer:
    """Return the version that studies started now would be judged by."""
    return _answer(app.registry.registration(name).slo, response)


@router.put(
    "",
    response_model=BudgetAnswer,
    responses={200: {"headers": ETAG}, **problems("not-found", "outdated", "precondition-required")},
    summary="Make a new version of the SLO budget",
)
def change_budget(
    app: App,
    caller: Caller,
    name: TargetName,
    response: Response,
    asked: Annotated[SloSection, Body(openapi_examples={"100 ms": {"value": EXAMPLE_SLO}})],
    if_match: IfMatch = None,
) -> BudgetAnswer:
    """Make a version of the one that was read. Promising users less needs a `reason`, and is marked in the audit.

    A study that runs keeps the version it started with. The same promise makes no version.
    """
    version = _version(name, expected_mark(f"SLO budget of target {name}", if_match))
    budget = asked.budget(caller.actor)
    made = set_budget(app.registry, app.clock, name, budget, version, Asked(caller.actor, asked.reason))
    return _answer(made, response)


@router.get(
    "/versions",
    response_model=Page[BudgetVersion],
    responses=problems("not-found"),
    summary="Every version of the SLO budget",
)
def list_versions(app: App, name: TargetName, asked: Annotated[Paged, Query()]) -> Page[BudgetVersion]:
    """Return versions, newest first, with who set them, when and why, and what they loosened."""
    known = app.store.budgets(name)
    here = window(f"{NEWEST_FIRST} of {name}", "i", asked)
    numbers = [number for number in range(len(known) - 1, -1, -1) if _is_after(known[number], here.after)]
    shown = numbers[: here.limit]
    items = [budget_version(known[n], known[n - 1] if n else None) for n in shown]
    mark = (known[shown[-1]].version,) if len(numbers) > len(shown) else None
    return Page[BudgetVersion](items=items, next_cursor=cursor_of(f"{NEWEST_FIRST} of {name}", mark))


def _is_after(slo: SloBudget, mark: Any) -> bool:
    return mark is None or slo.version < mark[0]


def _version(name: str, expected: str) -> int:
    if not (expected.isascii() and expected.isdigit() and len(expected) < 10):
        raise Outdated(f"SLO budget of target {name}", f"{expected} is none of its versions")
    return int(expected)


def _answer(slo: SloBudget, response: Response) -> BudgetAnswer:
    response.headers["ETag"] = etag(slo.version)
    return budget_answer(slo)

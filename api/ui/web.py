"""The web UI as a part of the service: its routers, and what the service needs to know of it."""

from __future__ import annotations

from starlette.types import Scope

from api.guard import bearer
from api.ui.failures import is_page
from api.ui.pages import audit, budgets, entrance, nights, promotions, studies, targets, trials, wishes
from api.ui.session import Sessions

ROUTERS = (
    entrance.router,
    targets.router,
    budgets.router,
    studies.router,
    wishes.router,
    trials.router,
    promotions.router,
    nights.router,
    audit.router,
)


def shown_to(sessions: Sessions, scope: Scope) -> str:
    """Return the credential that a request shows: pages take sessions alone, the REST API tokens alone.

    So no site can make a browser use the REST API, whatever its user is signed in to. Raises Unauthenticated.
    """
    return sessions.credential(scope) if is_page(scope) else bearer(scope)

"""What a browser gets instead of a page: who is not signed in is led there, everything else says what to do next."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

from starlette.datastructures import Headers
from starlette.responses import RedirectResponse, Response
from starlette.types import Scope

from api.problems import headers_of, problem_of
from api.ui.rendering import HEADERS, Renderer

ADVICE: Mapping[int, str] = {
    401: "Sign in and open the page again.",
    403: "Ask somebody who has that scope, or sign in with a token that has it.",
    404: "Check the address, or start from the list of targets.",
    405: "Go back and use the buttons of the page.",
    409: "Go back, load the page again to see what it is now, and decide again.",
    412: "Somebody changed it since you opened the page. Go back, load it again, and repeat your change if it is "
    "still wanted.",
    413: "Send less.",
    422: "Go back and correct what is named above.",
    429: "Wait a moment, then load the page again.",
    503: "Load the page again in a moment. If it lasts, look at /readyz, which says what is not ready.",
}
OTHERWISE = "Load the page again. If it happens again, the log has more under the request's id."

SIGN_IN = "/ui/sign-in"


def is_page(scope: Scope) -> bool:
    """Say whether a request is for a page, not for the REST API."""
    path: str = scope["path"]
    return path in ("/", "/ui") or path.startswith("/ui/")


def failure(renderer: Renderer, scope: Scope, error: Exception, request_id: str) -> Response:
    """Return the page for a request that ended in `error`."""
    problem = problem_of(error, request_id)
    if problem.status == 401 and scope["path"] != SIGN_IN:
        away = _to_sign_in(scope)
        if away is not None:
            return away
    advice = ADVICE.get(problem.status, OTHERWISE)
    made = renderer.page(scope, "failure.html.j2", problem.status, problem=problem, advice=advice)
    made.headers.update(headers_of(error))
    return made


def _to_sign_in(scope: Scope) -> Response | None:
    """Lead whoever looked at something to where they can sign in; what they were about to write is not repeated."""
    if Headers(scope=scope).get("hx-request"):
        return Response(status_code=401, headers={"HX-Redirect": SIGN_IN, **HEADERS})
    if scope["method"] != "GET":
        return None
    query = scope.get("query_string", b"").decode("latin-1")
    wanted = scope["path"] + (f"?{query}" if query else "")
    return RedirectResponse(f"{SIGN_IN}?next={quote(wanted, safe='')}", 303, headers=HEADERS)

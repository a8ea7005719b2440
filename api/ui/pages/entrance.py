"""Coming in and going out: the first address, signing in with a token, signing out, and static files."""

from __future__ import annotations

import re

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.responses import RedirectResponse

from api.guard import Gate
from api.ui.forms import Open
from api.ui.rendering import HEADERS, renderer_of
from api.ui.session import begin, end
from autotuner.errors import InvalidInput, Unauthenticated

router = APIRouter(include_in_schema=False)

START = "/ui/targets"
OURS = re.compile(r"/ui/[A-Za-z0-9._~/?=&%:+,-]{1,500}")
"""Where somebody may be led after signing in: to pages of ours, and nowhere else."""

SEE_OTHER = 303


@router.get("/")
def root() -> Response:
    """Lead to the first page."""
    return RedirectResponse(START, SEE_OTHER)


@router.get("/ui")
def first() -> Response:
    """Lead to the first page."""
    return RedirectResponse(START, SEE_OTHER)


@router.get("/ui/static/{asset}")
def static(request: Request, asset: str) -> Response:
    """Return one of our files."""
    return renderer_of(request).assets.response(asset)


@router.get("/ui/sign-in")
def sign_in_page(request: Request) -> Response:
    """Ask for a token."""
    return _asking(request, _wanted(request.query_params.get("next", "")))


@router.post("/ui/sign-in")
async def sign_in(request: Request, form: Open) -> Response:
    """Begin a session for whoever shows a token that is good; the token itself is written nowhere."""
    renderer, gate = renderer_of(request), request.app.state.gate
    assert isinstance(gate, Gate)
    wanted, token = _wanted(form.get("next", "")), form.get("token", "")
    try:
        await gate.identified(request.scope, token)
        sealed = await run_in_threadpool(renderer.sessions.seal, token)
    except Unauthenticated as error:
        return _asking(request, wanted, error.reason, 401)
    except InvalidInput as error:
        return _asking(request, wanted, f"this token cannot be used here; use {error.allowed}", 422)
    response = RedirectResponse(wanted, SEE_OTHER, headers=HEADERS)
    begin(response, sealed, secure=request.url.scheme == "https")
    return response


@router.post("/ui/sign-out")
def sign_out(_form: Open) -> Response:
    """End the session in this browser."""
    response = RedirectResponse("/ui/sign-in", SEE_OTHER, headers=HEADERS)
    end(response)
    return response


def _asking(request: Request, wanted: str, wrong: str = "", status: int = 200) -> Response:
    return renderer_of(request).page(request.scope, "sign_in.html.j2", status, wanted=wanted, wrong=wrong)


def _wanted(address: str) -> str:
    usable = OURS.fullmatch(address) and ".." not in address and "//" not in address
    return address if usable else START

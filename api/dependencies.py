"""What a handler is given: the application, and who asks. The guard has admitted them before."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from autotuner.bootstrap import Application
from autotuner.domain.access import Identity


def _application(request: Request) -> Application:
    found: Application = request.app.state.application
    return found


def _identity(request: Request) -> Identity:
    found: Identity = request.state.identity
    return found


App = Annotated[Application, Depends(_application)]
Caller = Annotated[Identity, Depends(_identity)]

"""What a handler is given: the application, and who asks. The guard has admitted them before.

Both are coroutines although they wait for nothing: what is none is called in another thread, for each request.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from autotuner.bootstrap import Application
from autotuner.domain.access import Identity


async def _application(request: Request) -> Application:
    found: Application = request.app.state.application
    return found


async def _identity(request: Request) -> Identity:
    found: Identity = request.state.identity
    return found


App = Annotated[Application, Depends(_application)]
Caller = Annotated[Identity, Depends(_identity)]

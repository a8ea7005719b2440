"""What tests of the REST API share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.rest import Rest


@pytest.fixture
def rest() -> Iterator[Rest]:
    """The API over an empty store in memory."""
    from tests.rest import serving  # noqa: PLC0415 - most unit tests need no web framework

    with serving() as made:
        yield made

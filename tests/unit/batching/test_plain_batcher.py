"""The simulator in plain Python that the compiled one is measured against follows the same rules."""

from __future__ import annotations

import pytest

from tests.benchmarks.proposer import SETTINGS, compiled_latency, plain_latency


@pytest.mark.parametrize("name", SETTINGS)
def test_the_compiled_and_the_plain_simulator_agree(name: str) -> None:
    assert plain_latency(SETTINGS[name], 4_000) == pytest.approx(
        compiled_latency(SETTINGS[name], 4_000).tolist()
    )

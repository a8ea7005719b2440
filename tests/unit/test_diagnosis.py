"""Whether tuning can help, and how long a verdict takes."""

from __future__ import annotations

import pytest

from autotuner.domain.judgement import SCREENING, STRICT, Counts, Levels, Verdict, judge
from autotuner.domain.needs import fewest_requests

NONE = Counts(0, 0, 0, 0)


@pytest.mark.parametrize("levels", [SCREENING, STRICT])
@pytest.mark.parametrize("dispersion", [1.0, 3.0])
def test_an_accept_takes_just_the_requests_that_are_told(levels: Levels, dispersion: float) -> None:
    needed = fewest_requests(levels, dispersion)

    def verdict(total: int) -> Verdict | None:
        found = judge(
            Counts(total, 0, 0, 0),
            None,
            NONE,
            error_ceiling=0.001,
            levels=levels,
            dispersion=dispersion,
            exhausted=False,
        )
        return found.verdict if found else None

    assert verdict(needed) is Verdict.ACCEPT
    assert verdict(needed - round(dispersion) - 1) is None


def test_a_verdict_takes_longer_the_more_slow_requests_cluster() -> None:
    independent, clustered = (fewest_requests(SCREENING, factor) for factor in (1.0, 20.0))
    assert clustered == pytest.approx(20 * independent, rel=0.01)

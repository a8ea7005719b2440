"""Whether tuning can help at all, from what the baseline measured; the reason when it cannot."""

from __future__ import annotations

from autotuner.domain.judgement import Verdict
from autotuner.domain.study import Study, Trial

COMPUTE_SHARE = 0.95
"""A smallest batch that takes this share of the ceiling leaves no time for any queue."""


def hopeless(study: Study, baseline: Trial) -> str:
    """Return why no configuration can hold the ceiling; empty when one might.

    Only what is certain counts: the baseline was rejected at its lowest level, and even the smallest batch the
    server ran takes (nearly) the whole ceiling in compute alone.
    """
    if baseline.verdict is not Verdict.REJECT:
        return ""
    ceiling = study.plan.slo.p99_ceiling_seconds
    times = [s.use.fastest_batch_seconds for s in baseline.steps if s.use and s.use.fastest_batch_seconds]
    if not times or min(times) < COMPUTE_SHARE * ceiling:
        return ""
    return (
        f"no configuration can help: compute alone takes {min(times) * 1e3:.0f} ms for the smallest batch where "
        f"the ceiling is {ceiling * 1e3:.0f} ms; a faster model, a lower precision or another device is needed"
    )

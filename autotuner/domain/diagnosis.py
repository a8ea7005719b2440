"""Whether tuning can help at all, from what production and the baseline showed; the reason when it cannot."""

from __future__ import annotations

from autotuner.domain.judgement import Verdict
from autotuner.domain.study import Study, Trial, TrialKind

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


def unlike_production(study: Study, baseline: Trial) -> str:
    """Return why the canary cannot speak for production; empty when it can (the A/A comparison).

    The incumbent on the canary at a fair share of the load must hold what the same incumbent holds on the stable
    replicas at theirs: if not, the replica differs and not the configuration.
    """
    production = next((t for t in study.trials if t.kind is TrialKind.PRODUCTION), None)
    held = production is not None and production.verdict is Verdict.ACCEPT
    if baseline.verdict is not Verdict.REJECT or not held:
        return ""
    return (
        "the canary is slower than the stable replicas with the same configuration and no more load, so what it "
        f"measures is not what production would see ({baseline.reason})"
    )

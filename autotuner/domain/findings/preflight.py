"""Whether tuning can help at all, from what production and the baseline showed; the reason when it cannot.

A study asks this before its search, a diagnosis before anybody thinks of a study: the thresholds are the rules'.
"""

from __future__ import annotations

from autotuner.domain.findings.rules.load import too_slow
from autotuner.domain.judgement import SCREENING, Verdict
from autotuner.domain.needs import fewest_requests
from autotuner.domain.study import Study, Trial, TrialKind


def hopeless(study: Study, baseline: Trial) -> str:
    """Return why no configuration can hold the ceiling; empty when one might.

    Only what is certain counts: the baseline was over the ceiling at its lowest level, and even the smallest batch
    the server ran takes (nearly) the whole ceiling in compute alone. Where production was over it too, a baseline that
    is void because the stable replicas suffer just as much says the same.
    """
    if baseline.accepted or not (
        baseline.verdict is Verdict.REJECT or _over_like_production(study, baseline)
    ):
        return ""
    ceiling = study.plan.slo.p99_ceiling_seconds
    times = [s.use.fastest_batch_seconds for s in baseline.steps if s.use and s.use.fastest_batch_seconds]
    if not times or not too_slow(min(times), ceiling):
        return ""
    return (
        f"no configuration can help: compute alone takes {min(times) * 1e3:.0f} ms for the smallest batch where "
        f"the ceiling is {ceiling * 1e3:.0f} ms; a faster model, a lower precision or another device is needed"
    )


def _over_like_production(study: Study, baseline: Trial) -> bool:
    production = next((t for t in study.trials if t.kind is TrialKind.PRODUCTION), None)
    bad = production is not None and production.verdict is Verdict.REJECT
    return bad and bool(baseline.steps) and baseline.steps[-1].verdict is Verdict.VOID


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


def time_for_a_verdict(study: Study, trial: Trial) -> str:
    """Return how long a level would have to last for a verdict at the traffic there was."""
    rate = sum(step.total_rate_per_second for step in trial.steps[-1:])
    if rate <= 0:
        return "there was no traffic"
    requests = fewest_requests(SCREENING, study.dispersion)
    minutes = requests / (rate / len(study.plan.target.replicas)) / 60
    return (
        f"at {rate:.3g} requests/s the canary's fair share needs about {minutes:.0f} minutes for one verdict "
        f"({requests} requests, slow ones coming in clusters by a factor of {study.dispersion:.3g}) where a level may "
        f"last {study.plan.pace.step_limit.total_seconds() / 60:.1f}"
    )

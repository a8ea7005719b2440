"""Studies in the middle of a search, with trials measured on an imaginary device: what proposers are tested on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from autotuner.domain.configuration import Configuration
from autotuner.domain.judgement import Counts, Judgement, Verdict
from autotuner.domain.measurement import Latency, ServerUse
from autotuner.domain.ramp import ladder
from autotuner.domain.study import Incumbent, Level, Phase, Step, Study, Trial, TrialKind, TrialState
from autotuner.domain.target import Limits
from tests.builders import START, a_budget, a_configuration, a_plan, a_target, changed

REFERENCE_RATE_PER_SECOND = 500.0


def a_use(**changes: Any) -> ServerUse:
    """12 ms of compute a request in batches of 3; no memory reported."""
    fields: dict[str, Any] = {
        "queue_seconds": 0.005,
        "compute_seconds": 0.012,
        "realised_batch": 3.0,
        "compute_seconds_per_inference": 0.004,
        "device_utilisation": None,
        "memory_used_bytes": None,
        "memory_total_bytes": None,
    }
    return ServerUse(**{**fields, **changes})


def a_judgement(verdict: Verdict, bad: int = 0, total: int = 1000) -> Judgement:
    """A judgement of which only the verdict and the counts matter."""
    share = bad / total
    return Judgement(
        verdict, share, (share, share), total, bad, total, 0, 1.0, 0.0, 0.0, "as the test wants it"
    )


def a_step(
    level: Level = Level(0, 1 / 3),  # noqa: B008 - frozen
    verdict: Verdict = Verdict.ACCEPT,
    *,
    bad: int = 0,
    total: int = 1000,
    **changes: Any,
) -> Step:
    """A judged step of `total` requests of which `bad` were slow."""
    fields: dict[str, Any] = {
        "level": level,
        "attempt": 0,
        "started_at": START,
        "ended_at": START,
        "candidate": Counts(total, bad, bad, 0),
        "control": Counts(total, 0, 0, 0),
        "rate_per_second": level.share * REFERENCE_RATE_PER_SECOND,
        "total_rate_per_second": REFERENCE_RATE_PER_SECOND,
        "latency": Latency(0.02, 0.05, 0.08),
        "use": a_use(),
        "harm_requests": 0.0,
        "judgement": a_judgement(verdict, bad, total),
    }
    return Step(**{**fields, **changes})


def a_trial(number: int = 1, configuration: Configuration | None = None, **changes: Any) -> Trial:
    """A judged candidate that was accepted at the lowest level and limited by the ceiling above it."""
    fields: dict[str, Any] = {
        "number": number,
        "kind": TrialKind.CANDIDATE,
        "replicas": ("canary",),
        "configuration": configuration or a_configuration(),
        "levels": (Level(0, 1 / 3), Level(1, 0.6)),
        "state": TrialState.JUDGED,
        "proposed_at": START,
        "steps": (a_step(),),
        "verdict": Verdict.ACCEPT,
        "limited_by": "ceiling",
    }
    return Trial(**{**fields, **changes})


def a_search(
    *trials: Trial, limits: dict[str, Any] | None = None, budget: dict[str, Any] | None = None, **plan: Any
) -> Study:
    """A study that has its baseline (trial 0: the incumbent) and then `trials`."""
    room = {"max_instance_count": 4, "max_queue_delay_microseconds": 50_000, **(limits or {})}
    target = changed(
        a_target(),
        limits=Limits(**room),
        **({"objective": plan.pop("objective")} if "objective" in plan else {}),
    )
    return Study(
        id="study-1",
        plan=a_plan(target=target, slo=a_budget(**(budget or {})), **{"sampler": "tpe", **plan}),
        created_at=START,
        actor="operator",
        phase=Phase.SEARCH,
        incumbent=Incumbent(a_configuration(), {}, {}, {}),
        trials=(a_trial(0, kind=TrialKind.BASELINE), *trials),
        reference_rate_per_second=REFERENCE_RATE_PER_SECOND,
    )


def with_trial(study: Study, configuration: Configuration) -> Study:
    """The study after a candidate was measured on the imaginary device."""
    trial = measured(study, len(study.trials), configuration)
    return replace(study, trials=(*study.trials, trial))


def measured(study: Study, number: int, configuration: Configuration) -> Trial:
    """A trial of a device that serves 200 to 410 requests a second: caps cost capacity, instances help a little.

    Delays are added to the latency, and any above 10 ms trespasses at today's load.
    """
    cap = max(configuration.preferred_batch_size, default=configuration.max_batch_size)
    capacity = 100.0 + 45.0 * cap.bit_length() + 10.0 * configuration.instance_count
    bad_share = 0.05 if configuration.queue_delay_seconds > 0.010 else 0.0
    spent = 0.006 - 0.1 * configuration.queue_delay_seconds + 0.0001 * configuration.instance_count
    use = a_use(compute_seconds_per_inference=spent)
    steps = []
    for level in ladder(study.plan):
        good = not bad_share and level.share * REFERENCE_RATE_PER_SECOND <= capacity
        bad = round(1000 * (bad_share or (0.0 if good else 0.03)))
        steps.append(a_step(level, Verdict.ACCEPT if good else Verdict.REJECT, bad=bad, use=use))
        if not good:
            break
    all_good = all(step.verdict is Verdict.ACCEPT for step in steps)
    return a_trial(
        number,
        configuration,
        levels=ladder(study.plan),
        steps=tuple(steps),
        verdict=steps[0].verdict,
        limited_by="traffic" if all_good else "ceiling",
    )

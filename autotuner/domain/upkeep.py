"""Which pods have come up again with less than was promoted, where a promotion lives in the servers' memory alone.

A pod that starts anew serves what its model repository says. It is given the promoted configuration again if that is
all it differs in. What was put on a running server is somebody's doing, and is left alone (guards rule 5).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from autotuner.domain.benefit import winning_trial
from autotuner.domain.configuration import (
    ModelConfig,
    configured_fingerprint,
    fingerprint,
    with_configuration,
)
from autotuner.domain.study import Study
from autotuner.domain.target import Target

FRESH_FOR = timedelta(hours=1)
"""Later than this a server serves what somebody wants it to: nothing else tells a person's load from a start."""


def in_memory(target: Target) -> bool:
    """Say whether a target's pods start without what was promoted."""
    return target.workload is not None and not target.workload.config_map


def to_put_on(
    promotion: Study, served: Mapping[str, ModelConfig], started: Mapping[str, datetime], now: datetime
) -> Mapping[str, ModelConfig]:
    """Return the complete configuration that each replica which started anew should be given.

    served: what replicas serve now; started: since when their servers run. Those it is not known of are left out.
    """
    trial, ended = winning_trial(promotion), promotion.ended_at
    if not in_memory(promotion.plan.target) or trial is None or promotion.incumbent is None or ended is None:
        return {}
    text = promotion.incumbent.configs[promotion.plan.target.stable_names[0]]
    wanted = configured_fingerprint(text, trial.configuration)
    found = {}
    for name in promotion.plan.target.stable_names:
        began = started.get(name)
        if name not in served or began is None or not ended < began <= now or now - began > FRESH_FOR:
            continue
        put = with_configuration(served[name], trial.configuration)
        if fingerprint(served[name]) != wanted and fingerprint(put) == wanted:
            found[name] = put
    return found

"""What removes a canary whose time is over, whoever put it up and whatever became of them.

Apart from the loop on purpose: it needs no study, only what the objects say of themselves. A canary that is still in a
route is taken out of it first, so that no user is sent to a Service that is about to go.
"""

from __future__ import annotations

from collections.abc import Callable

from autotuner.adapters.kubernetes.canary import MADE_OF
from autotuner.adapters.kubernetes.client import Cluster
from autotuner.adapters.kubernetes.survey import require
from autotuner.domain.manifests import FIELD_MANAGER, MANAGED_BY, ROLE, TARGET, Manifest, expired
from autotuner.domain.permissions import NEEDS_OF_REAPER
from autotuner.errors import AutotunerError
from autotuner.ports import Canary, Clock


def reap(
    cluster: Cluster, clock: Clock, namespace: str, canary_of: Callable[[str], Canary | None]
) -> tuple[str, ...]:
    """Take down every canary in a namespace that is past its time; return a sentence for each.

    canary_of: the canary of a target by its name; None when the target is not known: then its objects are removed but
    a route that names them is left for a person. Raises Unavailable, Refused when the namespace cannot be listed.
    """
    require(cluster, namespace, NEEDS_OF_REAPER)
    late: dict[str, list[Manifest]] = {}
    for kind in MADE_OF:
        for found in cluster.listed(kind, namespace, {MANAGED_BY: FIELD_MANAGER, ROLE: "canary"}):
            if expired(found, clock.now()):
                late.setdefault(found["metadata"]["labels"][TARGET], []).append({"kind": kind, **found})
    return tuple(_reaped(cluster, target, made, canary_of(target)) for target, made in sorted(late.items()))


def _reaped(cluster: Cluster, target: str, made: list[Manifest], canary: Canary | None) -> str:
    try:
        if canary is not None:
            canary.take_down()
            return f"the canary of {target} was past its time and is taken down"
        for each in made:
            cluster.delete(each)
    except AutotunerError as error:
        return f"the canary of {target} is past its time but could not be taken down: {error}"
    return f"objects of {target}, which is not known here, were past their time and are removed; look at its route"

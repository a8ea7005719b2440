"""Model control of pods, and of what makes a promotion outlive them: the ConfigMap that owns production's config.pbtxt.

A stable pod is changed in two steps: the ConfigMap first, so that a pod that restarts comes back with what it is being
given, then the running server. Before the first change the text is kept, to the byte, in a ConfigMap of ours; giving
the incumbent back puts that text back. What Argo CD or Flux own is never written: they would write it back.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from autotuner.adapters.kubernetes.client import Cluster
from autotuner.adapters.kubernetes.whereabouts import Whereabouts, workload_of
from autotuner.domain.configuration import ModelConfig, fingerprint
from autotuner.domain.manifests import SERVED_BEFORE, Manifest, canary_name, kept_config
from autotuner.domain.preflight import git_owner
from autotuner.domain.provenance import Provenance, together
from autotuner.domain.target import Target
from autotuner.errors import Refused
from autotuner.ports import Clock, Serving


class Production:
    """What a workload's pods start with."""

    def __init__(
        self, cluster: Cluster, target: Target, clock: Clock, text_of: Callable[[ModelConfig], str]
    ) -> None:
        self._cluster = cluster
        self._target = target
        self._workload = workload_of(target)
        self._clock = clock
        self._text_of = text_of

    def keep(self, served: ModelConfig) -> None:
        """Keep the text as it is before it is changed; `served` is what it means. Does nothing when it is kept already.

        Raises Refused when there is nothing to write to, or it is not ours to write; Unavailable.
        """
        workload = self._workload
        if not workload.config_map or self._kept() is not None:
            return
        owner = git_owner(self._read())
        if owner:
            raise Refused(
                f"ConfigMap {workload.config_map} is owned by {owner}: promote through Git, with "
                "`autotuner export STUDY/winner --format patch`"
            )
        stable = self._cluster.get(workload.kind, workload.namespace, workload.name)
        until = self._clock.now() + workload.ttl
        made = kept_config(workload, self._target.name, stable, self._text(), fingerprint(served), until)
        self._cluster.apply(made)

    def write(self, config: ModelConfig) -> None:
        """Let pods start with `config`: the text that was kept where it means that, a new one otherwise; idempotent.

        Raises Conflict when somebody else changes it at the same time, Refused, Unavailable.
        """
        workload, kept = self._workload, self._kept()
        if not workload.config_map or kept is None:
            return
        was_served = kept["metadata"].get("annotations", {}).get(SERVED_BEFORE)
        original = kept["data"][workload.config_key]
        text = original if was_served == fingerprint(config) else self._text_of(config)
        now = self._text()
        if now == text:
            return
        path = "/data/" + workload.config_key.replace("~", "~0").replace("/", "~1")
        changes = [{"op": "test", "path": path, "value": now}, {"op": "replace", "path": path, "value": text}]
        self._cluster.patch("ConfigMap", workload.namespace, workload.config_map, changes)

    def _kept(self) -> Manifest | None:
        name = canary_name(self._workload, self._target.name)
        return self._cluster.find("ConfigMap", self._workload.namespace, name)

    def _read(self) -> Manifest:
        return self._cluster.get("ConfigMap", self._workload.namespace, self._workload.config_map)

    def _text(self) -> str:
        data = self._read().get("data", {})
        if self._workload.config_key not in data:
            raise Refused(f"ConfigMap {self._workload.config_map} has no key {self._workload.config_key}")
        return str(data[self._workload.config_key])


class LocatedServing:
    """`Serving` of a target whose replicas are pods. make: model control of a target with addresses."""

    def __init__(
        self, whereabouts: Whereabouts, production: Production, make: Callable[[Target], Serving]
    ) -> None:
        self._whereabouts = whereabouts
        self._production = production
        self._make = make

    def model_config(self, replica: str) -> ModelConfig:
        """Return the complete configuration the replica serves now. Raises Unavailable, Refused."""
        return self._make(self._whereabouts.located(replica)).model_config(replica)

    def is_ready(self, replica: str) -> bool:
        """Say whether the model is ready on the replica; raises Unavailable with what a pod that is not waits for."""
        return self._make(self._whereabouts.located(replica)).is_ready(replica)

    def provenance(self, replica: str) -> Provenance:
        """Return the server's version, and what its pod tells of image and device. Raises Unavailable, Refused."""
        target = self._whereabouts.located(replica)
        return together([self._make(target).provenance(replica), self._whereabouts.provenance(replica)])

    def load(self, replica: str, config: ModelConfig, limit: timedelta) -> None:
        """Load the model with the complete configuration `config`; a stable replica keeps it over a restart.

        Raises Refused, Unavailable as `Serving.load` does.
        """
        target = self._whereabouts.located(replica)
        serving = self._make(target)
        if replica != target.canary.name:
            self._production.keep(serving.model_config(replica))
            self._production.write(config)
        serving.load(replica, config, limit)

"""Model control of pods, and of what makes a promotion outlive them: the ConfigMap that owns production's config.pbtxt.

A stable pod is changed in two steps: the ConfigMap first, so that a pod that restarts comes back with what it is being
given, then the running server. Before the first change the text is kept, to the byte, in a ConfigMap of ours; giving
the incumbent back puts that text back. What is neither that text nor one of ours was written by somebody else, and
stays. What Argo CD or Flux own is never written: they would write it back.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import timedelta

from autotuner.adapters.kubernetes.client import Cluster
from autotuner.adapters.kubernetes.whereabouts import Whereabouts, workload_of
from autotuner.domain.configuration import ModelConfig, fingerprint
from autotuner.domain.manifests import SERVED_BEFORE, WRITTEN, Manifest, canary_name, kept_config
from autotuner.domain.preflight import git_owner
from autotuner.domain.provenance import Provenance, together
from autotuner.domain.target import Target
from autotuner.domain.workload import Workload
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
        found = self._read()
        owner = git_owner(found)
        if owner:
            raise Refused(
                f"ConfigMap {workload.config_map} is owned by {owner}: promote through Git, with "
                "`autotuner export STUDY/winner --format patch`"
            )
        until = self._clock.now() + workload.ttl
        self._cluster.apply(kept_config(workload, self._target.name, found, fingerprint(served), until))

    def write(self, config: ModelConfig) -> None:
        """Let pods start with `config`: the text that was kept where it means that, a new one otherwise; idempotent.

        Raises Conflict when somebody else changes it at the same time, Refused, Unavailable.
        """
        workload, kept = self._workload, self._kept()
        if not workload.config_map or kept is None:
            return
        original = kept["data"][workload.config_key]
        text = original if _mark(kept, SERVED_BEFORE) == fingerprint(config) else self._text_of(config)
        now = self._text()
        if now == text:
            return
        if not _is_ours(now, kept, workload):
            if text == original:
                return  # the server gets it back all the same
            raise Refused(f"somebody else changed ConfigMap {workload.config_map}: it is left as it is")
        if text != original:
            self._cluster.apply(_with_written(kept, now, text))
        _exchange(self._cluster, workload, now, text)

    def _kept(self) -> Manifest | None:
        name = canary_name(self._workload, self._target.name)
        return self._cluster.find("ConfigMap", self._workload.namespace, name)

    def _read(self) -> Manifest:
        found = self._cluster.get("ConfigMap", self._workload.namespace, self._workload.config_map)
        if self._workload.config_key not in found.get("data", {}):
            raise Refused(f"ConfigMap {self._workload.config_map} has no key {self._workload.config_key}")
        return found

    def _text(self) -> str:
        return str(self._read()["data"][self._workload.config_key])


def put_text_back(cluster: Cluster, target: Target) -> None:
    """Put back the text that pods start with, as it was kept; idempotent. What somebody else wrote meanwhile stays.

    Raises Conflict when somebody changes it at the same time, Refused, Unavailable.
    """
    workload = workload_of(target)
    if not workload.config_map:
        return
    kept = cluster.find("ConfigMap", workload.namespace, canary_name(workload, target.name))
    found = cluster.find("ConfigMap", workload.namespace, workload.config_map)
    if kept is None or found is None:
        return
    now, original = found.get("data", {}).get(workload.config_key), kept["data"][workload.config_key]
    if now is not None and now != original and _is_ours(now, kept, workload):
        _exchange(cluster, workload, now, original)


def _exchange(cluster: Cluster, workload: Workload, now: str, text: str) -> None:
    path = "/data/" + workload.config_key.replace("~", "~0").replace("/", "~1")
    changes = [{"op": "test", "path": path, "value": now}, {"op": "replace", "path": path, "value": text}]
    cluster.patch("ConfigMap", workload.namespace, workload.config_map, changes)


def _is_ours(text: str, kept: Manifest, workload: Workload) -> bool:
    """Say whether a text is the one that was kept, or one that was written since.

    A release before this one noted nothing of what it wrote: then whatever is there is taken to be its own.
    """
    noted = WRITTEN in kept["metadata"].get("annotations", {})
    original = kept["data"][workload.config_key]
    return not noted or text == original or _digest(text) in _mark(kept, WRITTEN).split()


def _with_written(kept: Manifest, now: str, text: str) -> Manifest:
    """What is kept, with it noted that this text is going to be written in the place of what is there now."""
    metadata = {key: kept["metadata"][key] for key in KEPT_METADATA}
    written = " ".join(dict.fromkeys([*_mark(kept, WRITTEN).split(), _digest(now), _digest(text)]))
    metadata["annotations"] = {**metadata["annotations"], WRITTEN: written}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": kept["data"]}


KEPT_METADATA = ("name", "namespace", "labels", "annotations", "ownerReferences")


def _mark(kept: Manifest, name: str) -> str:
    return str(kept["metadata"].get("annotations", {}).get(name, ""))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


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

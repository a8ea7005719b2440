"""What a workload on Kubernetes has and lacks for being tuned, and for what is missing the patch that would add it.

A pure function of the objects as they were read. What blocks keeps a study from beginning; the rest is said so that
nobody is surprised (guards rules 3 and 5).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autotuner.domain.manifests import Manifest
from autotuner.domain.needs import Answer, Check
from autotuner.domain.target import Target
from autotuner.domain.workload import RouteKind, Workload, WorkloadKind

EXPLICIT = "--model-control-mode=explicit"
GPU = "nvidia.com/gpu"


@dataclass(frozen=True)
class Facts:
    """Objects as they were read; None or empty for what is not there or was not read."""

    workload: Manifest
    pods: tuple[Manifest, ...] = ()
    service: Manifest | None = None
    route: Manifest | None = None
    config_map: Manifest | None = None
    scalers: tuple[Manifest, ...] = ()
    budgets: tuple[Manifest, ...] = ()


def blocking(target: Target, facts: Facts) -> tuple[str, ...]:
    """Return why no study of the target can begin, one sentence each."""
    return tuple(each.sentence for each in _of_the_template(target, facts) if each.answer is Answer.NO)


def preflight(target: Target, facts: Facts) -> tuple[Check, ...]:
    """Return everything there is to say before a study, what is missing and what was found."""
    return (
        *_of_the_template(target, facts),
        *_of_replicas(target, facts),
        *_of_the_traffic(target, facts),
        *_of_the_configuration(target, facts),
        *_of_owners(facts),
    )


def git_owner(manifest: Manifest) -> str:
    """Return which GitOps tool owns an object, by the marks it leaves; empty when none does.

    Sources: Argo CD, "Resource Tracking"; Flux, labels of kustomize-controller and helm-controller.
    """
    metadata = manifest.get("metadata", {})
    marks = {**(metadata.get("labels") or {}), **(metadata.get("annotations") or {})}
    for mark, tool in GIT_MARKS.items():
        if mark in marks:
            return f"{tool} ({mark}={marks[mark]})"
    return ""


GIT_MARKS = {
    "argocd.argoproj.io/tracking-id": "Argo CD",
    "argocd.argoproj.io/instance": "Argo CD",
    "kustomize.toolkit.fluxcd.io/name": "Flux",
    "helm.toolkit.fluxcd.io/name": "Flux",
}


def _of_the_template(target: Target, facts: Facts) -> Iterator[Check]:
    workload = _workload(target)
    containers = _containers(facts)
    found = _container(containers, workload.container)
    if found is None:
        names = ", ".join(each["name"] for each in containers)
        detail = f"which container runs tritonserver? set kubernetes.container to one of: {names}"
        yield _missing("container", detail)
        return
    number, container = found
    yield _explicit_control(workload, number, container)
    limits = container.get("resources", {}).get("limits", {})
    gpus = limits.get(GPU)
    detail = (
        f"{gpus} of {GPU} for each pod" if gpus else f"no {GPU} in the container's limits: it runs on the CPU"
    )
    yield _there("gpu", detail)
    spec = facts.workload["spec"]["template"]["spec"]
    where = {key: spec[key] for key in ("nodeSelector", "tolerations") if spec.get(key)}
    yield _there("placement", json.dumps(where, sort_keys=True) if where else "any node")
    yield from _of_revisions(workload)


def _of_revisions(workload: Workload) -> Iterator[Check]:
    if workload.kind is WorkloadKind.INFERENCE_SERVICE and not workload.config_map:
        detail = (
            "the end of a study makes a new revision, whose pods start anew: set kubernetes.config_map, "
            "or what was promoted is gone with them"
        )
        yield _missing("configuration", detail)


def _containers(facts: Facts) -> Sequence[Manifest]:
    """The containers of the pod template, or those of a pod where the template leaves them to a runtime."""
    spec = facts.workload["spec"]["template"]["spec"]
    made = facts.pods[0]["spec"]["containers"] if facts.pods else []
    found: Sequence[Manifest] = spec.get("containers") or made
    return found


def _explicit_control(workload: Workload, number: int, container: Manifest) -> Check:
    said = " ".join([*container.get("command", []), *container.get("args", [])])
    if EXPLICIT in said or EXPLICIT.replace("=", " ") in said:
        return _there("model control", "explicit")
    detail = (
        f"tritonserver must be started with {EXPLICIT}, and --load-model={{MODEL}} for each model it serves"
    )
    if workload.kind is WorkloadKind.INFERENCE_SERVICE:
        return _missing("model control", f"{detail}: set it in the predictor or its runtime")
    path = f"/spec/template/spec/containers/{number}/args"
    operation: dict[str, Any] = {"op": "add", "path": f"{path}/-", "value": EXPLICIT}
    if not container.get("args"):
        operation = {"op": "add", "path": path, "value": [EXPLICIT]}
    patch = f"kubectl -n {workload.namespace} patch {workload.kind.lower()} {workload.name} --type=json -p "
    return _missing("model control", detail, f"{patch}'{json.dumps([operation])}'")


def _container(containers: Sequence[Manifest], name: str) -> tuple[int, Manifest] | None:
    for number, each in enumerate(containers):
        if each["name"] == name or (not name and len(containers) == 1):
            return number, each
    return None


def _of_replicas(target: Target, facts: Facts) -> Iterator[Check]:
    ready, wanted = len(facts.pods), len(target.stable)
    detail = f"{ready} ready pods, and the target has {wanted}"
    yield _there("replicas", detail) if ready == wanted else _missing("replicas", detail)
    name = facts.workload["metadata"]["name"]
    for scaler in facts.scalers:
        if scaler["spec"]["scaleTargetRef"].get("name") == name:
            spec = scaler["spec"]
            detail = (
                f"{scaler['metadata']['name']} scales from {spec.get('minReplicas', 1)} to {spec['maxReplicas']}: "
                "while it does windows are void"
            )
            yield _there("autoscaler", detail)
    for budget in facts.budgets:
        selector = budget["spec"].get("selector", {}).get("matchLabels", {})
        labels = facts.workload["spec"]["template"]["metadata"].get("labels", {})
        if selector and selector.items() <= labels.items():
            yield _there("disruption budget", f"{budget['metadata']['name']}; the canary's pod is not in it")


def _of_the_traffic(target: Target, facts: Facts) -> Iterator[Check]:
    workload = _workload(target)
    if facts.service is None:
        yield _missing("service", f"there is no Service {workload.service}")
    elif not workload.route.kind.makes_canary:
        selector = facts.service["spec"].get("selector") or {}
        labels = facts.workload["spec"]["template"]["metadata"].get("labels", {})
        if not selector or not selector.items() <= labels.items():
            detail = f"Service {workload.service} does not select the pods of {workload}"
            yield _missing("service", detail)
    if workload.route.kind is RouteKind.SERVICE:
        share = f"{target.only_share:.0%} of the requests, or none" if target.only_share else ""
        yield _there("route", f"Service {workload.service} has no weights: the canary gets {share}")
    elif facts.route is None:
        detail = f"there is no {workload.route.kind} {workload.route.name}"
        yield _missing("route", detail)
    else:
        yield _there("route", f"{workload.route.kind} {workload.route.name}, rule {workload.route.rule}")


def _of_the_configuration(target: Target, facts: Facts) -> Iterator[Check]:
    workload = _workload(target)
    if not workload.config_map:
        detail = "no ConfigMap is named: a promotion lives in the servers' memory until they restart"
        yield _there("configuration", detail)
    elif facts.config_map is None or workload.config_key not in facts.config_map.get("data", {}):
        detail = f"there is no ConfigMap {workload.config_map} with the key {workload.config_key}"
        yield _missing("configuration", detail)
    else:
        yield _there("configuration", f"ConfigMap {workload.config_map}, key {workload.config_key}")


def _of_owners(facts: Facts) -> Iterator[Check]:
    owned: Mapping[str, Manifest | None] = {
        "workload": facts.workload,
        "route": facts.route,
        "configuration": facts.config_map,
    }
    for what, manifest in owned.items():
        owner = git_owner(manifest) if manifest is not None else ""
        if owner and what == "configuration":
            yield _there("git", f"{owner} owns the {what}: a promotion there has to go through Git")
        elif owner and what == "route":
            yield _there("git", f"{owner} owns the {what}: let it ignore the weights, or it sets them back")


def _there(what: str, detail: str) -> Check:
    return Check(what, Answer.YES, detail)


def _missing(what: str, detail: str, patch: str = "") -> Check:
    return Check(what, Answer.NO, detail, patch)


def _workload(target: Target) -> Workload:
    assert target.workload is not None
    return target.workload

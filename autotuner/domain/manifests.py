"""The objects that a canary is made of, computed from what production is made of. Nothing is asked or sent here.

The canary is a clone of the stable pods as far as they decide how fast a model is: image digest, resources, node
selector, tolerations, volumes, service account. Its labels are its own alone, so that no Service, autoscaler or
budget of production catches it unasked (guards rule 5), and all that is made here carries the marks by which it is
found and removed again.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from autotuner.domain.provenance import Provenance
from autotuner.domain.workload import Workload
from autotuner.errors import Refused

Manifest = Mapping[str, Any]
"""An object of Kubernetes as JSON has it."""

FIELD_MANAGER = "autotuner"
"""The name under which every change is made."""

MANAGED_BY = "app.kubernetes.io/managed-by"
TARGET, ROLE, EXPIRES_AT, TEMPLATE = (
    "autotuner/target",
    "autotuner/role",
    "autotuner/expires-at",
    "autotuner/template",
)
ROUTE_BEFORE = "autotuner/route-before"
"""Annotation of our Service: what the route was before the canary had a place in it, as JSON."""

SERVED_BEFORE = "autotuner/served-before"
"""Annotation of what is kept of a ConfigMap: the fingerprint of the configuration its text means."""

WRITTEN = "autotuner/written"
"""Annotation of the same: digests of the texts that were written in its place, before they were; empty at first."""

LONGEST_NAME = 45
"""A Deployment's name with two suffixes (11 and 6 characters) has to fit into the 63 of a pod's host name."""

DIGEST = "@sha256:"


def canary_name(workload: Workload, target: str) -> str:
    """Return the name of everything that is made for a target: always the same one, so that making it twice is once."""
    name = f"{workload.name}-canary-{target}"
    if len(name) <= LONGEST_NAME:
        return name
    mark = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{name[: LONGEST_NAME - 9].rstrip('-.')}-{mark}"


def canary_labels(target: str) -> dict[str, str]:
    """Return the labels that all objects of a target's canary carry, and nothing else does."""
    return {MANAGED_BY: FIELD_MANAGER, TARGET: target, ROLE: "canary"}


def is_of_canary(made: Manifest) -> bool:
    """Say whether an object belongs to a canary of ours."""
    labels = made["metadata"].get("labels") or {}
    return labels.get(MANAGED_BY) == FIELD_MANAGER and labels.get(ROLE) == "canary"


def template_digest(stable: Manifest) -> str:
    """Return a digest of the pod template of a workload: another one means that somebody rolled out something."""
    text = json.dumps(stable["spec"]["template"], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def canary_deployment(
    workload: Workload, target: str, stable: Manifest, images: Mapping[str, str], expires_at: datetime
) -> dict[str, Any]:
    """Return the canary's Deployment.

    stable: the workload as it is. images: the image each container really runs, by container, as a digest where it is
    known. Raises Refused for a StatefulSet whose pods have volumes of their own: a clone would have none.
    """
    if stable["spec"].get("volumeClaimTemplates"):
        raise Refused(f"{workload} makes volumes for each pod: its pods cannot be cloned")
    labels = canary_labels(target)
    metadata = _metadata(workload, target, stable, expires_at)
    metadata["annotations"][TEMPLATE] = template_digest(stable)
    template = copy.deepcopy(stable["spec"]["template"])
    template["metadata"] = {"labels": labels, **_kept_annotations(template)}
    template["spec"]["containers"] = [
        {**container, "image": images.get(container["name"], container["image"])}
        for container in template["spec"]["containers"]
    ]
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata,
        "spec": {
            "replicas": 1,
            "revisionHistoryLimit": 1,
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": labels},
            "template": template,
        },
    }


def canary_service(
    workload: Workload, target: str, owner: Manifest, service: Manifest, expires_at: datetime
) -> dict[str, Any]:
    """Return the Service in front of the canary: the ports of the stable one, the pods of the canary alone.

    owner: with which it goes. It remembers what the route was, so that is the route.
    """
    given = service["spec"].get("ports") or [{"name": "http", "port": workload.ports.http}]
    ports = [{key: port[key] for key in PORT_FIELDS if key in port} for port in given]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(workload, target, owner, expires_at),
        "spec": {"selector": canary_labels(target), "ports": ports},
    }


PORT_FIELDS = ("name", "port", "targetPort", "protocol", "appProtocol")
"""What is taken over of a Service's port; a node port belongs to one Service alone."""


def kept_config(
    workload: Workload, target: str, owner: Manifest, served: str, expires_at: datetime
) -> dict[str, Any]:
    """Return the ConfigMap that keeps production's configuration text as it was, to the byte, while it is changed.

    owner: the ConfigMap whose text it is, and with which it goes. served: the fingerprint of what that text means.
    """
    metadata = _metadata(workload, target, owner, expires_at)
    metadata["annotations"] |= {SERVED_BEFORE: served, WRITTEN: ""}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "data": {workload.config_key: str(owner["data"][workload.config_key])},
    }


def _metadata(workload: Workload, target: str, owner: Manifest, expires_at: datetime) -> dict[str, Any]:
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
    }
    return {
        "name": canary_name(workload, target),
        "namespace": workload.namespace,
        "labels": canary_labels(target),
        "annotations": {EXPIRES_AT: expires_at.isoformat(timespec="seconds")},
        "ownerReferences": [reference],
    }


def _kept_annotations(template: Manifest) -> dict[str, Any]:
    found = template.get("metadata", {}).get("annotations")
    return {"annotations": dict(found)} if found else {}


def running_images(pods: Sequence[Manifest]) -> dict[str, str]:
    """Return the image that each container of the pods runs, by digest where the node tells it.

    Raises Refused when two pods run different ones: then there is no one production to compare a canary with.
    """
    found: dict[str, str] = {}
    for pod in pods:
        named = {each["name"]: each["image"] for each in pod["spec"]["containers"]}
        for status in pod.get("status", {}).get("containerStatuses", []):
            name = status["name"]
            image = _pinned(named.get(name, ""), status.get("imageID", ""))
            if found.setdefault(name, image) != image:
                raise Refused(
                    f"the stable pods run different images in {name}: {found[name]} and {image}; wait for the rollout"
                )
    return found


DEVICE_LABELS = (
    "nvidia.com/gpu.product",
    "cloud.google.com/gke-accelerator",
    "karpenter.k8s.aws/instance-gpu-name",
    "k8s.amazonaws.com/accelerator",
)
"""Labels by which nodes name their type of device: GPU feature discovery's, GKE's, Karpenter's, EKS's."""


def provenance_of(pod: Manifest, container: str = "") -> Provenance:
    """Return what a pod tells of what it runs: its image, and the type of device that it asks its node for.

    container: the one of tritonserver; empty for the pod's only one.
    """
    images = running_images([pod])
    only = next(iter(images), "") if len(images) == 1 else ""
    wanted = pod["spec"].get("nodeSelector", {})
    device_type = next((str(wanted[label]) for label in DEVICE_LABELS if label in wanted), "")
    return Provenance(image=images.get(container or only, ""), device_type=device_type)


def _pinned(image: str, image_id: str) -> str:
    """The image by digest: `REPOSITORY@sha256:…`; as it is named where no digest is known."""
    if DIGEST in image or DIGEST not in image_id:
        return image
    repository, slash, name = image.rpartition("/")
    return f"{repository}{slash}{name.partition(':')[0]}{DIGEST}{image_id.rpartition(DIGEST)[2]}"


def expired(made: Manifest, now: datetime) -> bool:
    """Say whether an object of ours is past its time; one that does not say when is not."""
    until = made["metadata"].get("annotations", {}).get(EXPIRES_AT, "")
    return bool(until) and datetime.fromisoformat(until) <= now

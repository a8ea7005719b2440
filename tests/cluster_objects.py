"""Objects of Kubernetes as the API server returns them, for tests of what is computed from them."""

from __future__ import annotations

from typing import Any

LABELS = {"app": "vision"}


def a_deployment(**spec: Any) -> dict[str, Any]:
    """A Deployment of Triton pods that can be tuned."""
    container = {
        "name": "triton",
        "image": "registry.example/triton:25.01",
        "args": ["--model-control-mode=explicit", "--load-model=vision"],
        "resources": {"limits": {"nvidia.com/gpu": "1"}},
    }
    pod = {
        "containers": [container],
        "serviceAccountName": "triton",
        "nodeSelector": {"accelerator": "l4"},
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
        "volumes": [{"name": "models", "persistentVolumeClaim": {"claimName": "models"}}],
    }
    template = {
        "metadata": {"labels": {**LABELS, "team": "search"}, "annotations": {"note": "kept"}},
        "spec": pod,
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "vision", "namespace": "prod", "uid": "0000-1111", "labels": LABELS},
        "spec": {"replicas": 2, "selector": {"matchLabels": LABELS}, "template": template, **spec},
    }


def a_pod(name: str = "vision-0", *, image_id: str = "", **status: Any) -> dict[str, Any]:
    """A ready pod of it. image_id: as the node reports it."""
    container = {
        "name": "triton",
        "ready": True,
        "restartCount": 0,
        "imageID": image_id,
        "state": {"running": {}},
    }
    conditions = [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "True"}]
    return {
        "metadata": {
            "name": name,
            "namespace": "prod",
            "labels": LABELS,
            "creationTimestamp": "2026-01-05T02:00:00Z",
        },
        "spec": {"containers": [{"name": "triton", "image": "registry.example/triton:25.01"}]},
        "status": {"phase": "Running", "conditions": conditions, "containerStatuses": [container], **status},
    }


def a_service(**spec: Any) -> dict[str, Any]:
    """The Service in front of the stable pods."""
    ports = [{"name": "http", "port": 8000, "targetPort": 8000, "protocol": "TCP", "nodePort": 31000}]
    return {
        "metadata": {"name": "vision", "namespace": "prod"},
        "spec": {"selector": LABELS, "ports": ports, "clusterIP": "10.0.0.7", **spec},
    }


def an_http_route(*backends: dict[str, Any]) -> dict[str, Any]:
    """An HTTPRoute whose only rule has these backends; the stable Service when none is given."""
    found = list(backends) or [{"group": "", "kind": "Service", "name": "vision", "port": 8000, "weight": 1}]
    return {"metadata": {"name": "vision", "namespace": "prod"}, "spec": {"rules": [{"backendRefs": found}]}}

"""A namespace as a team has it: a Deployment of two Triton pods behind a Service and an HTTPRoute, and a ConfigMap."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.kubernetes.api import Api

NAMESPACE, NAME, CONFIG = "prod", "vision", "vision-config"
MODEL = "quick"
LABELS = {"app": NAME}
CANARY = f"{NAME}-canary-{NAME}"
CANARY_LABELS = {"autotuner/target": NAME, "autotuner/role": "canary"}
CORE, APPS = f"/api/v1/namespaces/{NAMESPACE}", f"/apis/apps/v1/namespaces/{NAMESPACE}"
ROUTES = f"/apis/gateway.networking.k8s.io/v1/namespaces/{NAMESPACE}/httproutes"
INGRESSES = f"/apis/networking.k8s.io/v1/namespaces/{NAMESPACE}/ingresses"
VOLATILE = ("resourceVersion", "generation", "managedFields", "creationTimestamp", "uid")

SERVICE = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": NAME},
    "spec": {"selector": LABELS, "ports": [{"name": "http", "port": 8000, "targetPort": 8000}]},
}
ROUTE = {
    "apiVersion": "gateway.networking.k8s.io/v1",
    "kind": "HTTPRoute",
    "metadata": {"name": NAME},
    "spec": {
        "parentRefs": [{"name": "public"}],
        "rules": [{"backendRefs": [{"name": NAME, "port": 8000}]}],
    },
}


def deployment(
    repository: Path, *, image: str = "registry.example/triton:25.01", gpus: int = 1
) -> dict[str, Any]:
    """The stable Deployment; its pods read the model from the node and config.pbtxt from the ConfigMap."""
    mounts = [
        {"name": "models", "mountPath": "/models"},
        {"name": "config", "mountPath": f"/models/{MODEL}/config.pbtxt", "subPath": "config.pbtxt"},
    ]
    container = {
        "name": "triton",
        "image": image,
        "command": ["tritonserver"],
        "args": ["--model-repository=/models", "--model-control-mode=explicit", f"--load-model={MODEL}"],
        "ports": [{"containerPort": port} for port in (8000, 8001, 8002)],
        "resources": {"limits": {"nvidia.com/gpu": str(gpus), "cpu": "2", "memory": "4Gi"}},
        "readinessProbe": {"httpGet": {"path": "/v2/health/ready", "port": 8000}},
        "volumeMounts": mounts,
    }
    volumes = [
        {"name": "models", "hostPath": {"path": str(repository)}},
        {"name": "config", "configMap": {"name": CONFIG}},
    ]
    spec = {
        "containers": [container],
        "volumes": volumes,
        "nodeSelector": {"accelerator": "emulated"},
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": NAME, "labels": LABELS},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": LABELS},
            "template": {"metadata": {"labels": LABELS}, "spec": spec},
        },
    }


def found(api: Api, repository: Path, text: str) -> None:
    """Make what the team has made. text: of the model's config.pbtxt."""
    config = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": CONFIG},
        "data": {"config.pbtxt": text},
    }
    api.create(f"{CORE}/configmaps", config)
    api.create(f"{CORE}/services", SERVICE)
    api.create(f"{APPS}/deployments", deployment(repository))
    api.create(ROUTES, ROUTE)


def ready(api: Api, labels: dict[str, str] | None = None) -> list[dict[str, Any]]:
    """Ready pods with these labels, the stable ones' when none are named."""
    wanted = (labels or LABELS).items()
    return [
        pod
        for pod in api.items(f"{CORE}/pods")
        if wanted <= pod["metadata"].get("labels", {}).items() and is_ready(pod)
    ]


def is_ready(pod: dict[str, Any]) -> bool:
    """Whether a pod takes traffic."""
    conditions = {c["type"]: c["status"] for c in pod.get("status", {}).get("conditions", [])}
    return conditions.get("Ready") == "True" and not pod["metadata"].get("deletionTimestamp")


def snapshot(api: Api) -> dict[str, Any]:
    """Every object of the namespace without what changes by itself: names and content."""
    kinds = {
        "ConfigMap": f"{CORE}/configmaps",
        "Service": f"{CORE}/services",
        "Deployment": f"{APPS}/deployments",
        "HTTPRoute": ROUTES,
        "Ingress": INGRESSES,
    }
    seen = {}
    for kind, path in kinds.items():
        for each in api.items(path):
            metadata = {k: v for k, v in each["metadata"].items() if k not in VOLATILE}
            content = {k: v for k, v in each.items() if k not in ("metadata", "status")}
            seen[f"{kind}/{metadata['name']}"] = {**content, "metadata": metadata}
    return seen


def evict(api: Api, pod: str) -> None:
    """Evict a pod, as `kubectl drain` does."""
    metadata = {"name": pod, "namespace": NAMESPACE}
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
    api.create(f"{CORE}/pods/{pod}/eviction", body)


def drain(api: Api, node: str) -> None:
    """Let a node take no more pods, and evict those it has."""
    api.merge(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": True}})
    for pod in api.items(f"{CORE}/pods"):
        if pod["spec"].get("nodeName") == node and not pod["metadata"].get("deletionTimestamp"):
            evict(api, pod["metadata"]["name"])

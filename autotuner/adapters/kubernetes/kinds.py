"""The kinds of objects that are read or written, with the address of each and the permission it takes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """One kind: its group and version (empty group: the core), and its plural, which permissions name."""

    name: str
    group: str
    version: str
    plural: str

    @property
    def resource(self) -> str:
        """What a role calls it: `httproutes.gateway.networking.k8s.io`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(self, namespace: str, name: str) -> str:
        """Return the path of an object, or of all of its kind in a namespace when `name` is empty."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        whole = f"{root}/namespaces/{namespace}/{self.plural}"
        return f"{whole}/{name}" if name else whole


KINDS = {
    kind.name: kind
    for kind in (
        Kind("Pod", "", "v1", "pods"),
        Kind("Event", "", "v1", "events"),
        Kind("Service", "", "v1", "services"),
        Kind("ConfigMap", "", "v1", "configmaps"),
        Kind("Deployment", "apps", "v1", "deployments"),
        Kind("StatefulSet", "apps", "v1", "statefulsets"),
        Kind("HorizontalPodAutoscaler", "autoscaling", "v2", "horizontalpodautoscalers"),
        Kind("PodDisruptionBudget", "policy", "v1", "poddisruptionbudgets"),
        Kind("Ingress", "networking.k8s.io", "v1", "ingresses"),
        Kind("HTTPRoute", "gateway.networking.k8s.io", "v1", "httproutes"),
        Kind("GRPCRoute", "gateway.networking.k8s.io", "v1", "grpcroutes"),
        Kind("VirtualService", "networking.istio.io", "v1", "virtualservices"),
        Kind("InferenceService", "serving.kserve.io", "v1beta1", "inferenceservices"),
        Kind("SeldonDeployment", "machinelearning.seldon.io", "v1", "seldondeployments"),
        Kind("Experiment", "mlops.seldon.io", "v1alpha1", "experiments"),
    )
}


def kind_of(name: str) -> Kind:
    """Return a kind by its name; one that is not here is a mistake of ours."""
    return KINDS[name]

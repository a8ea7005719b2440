"""The door to Kubernetes: workloads, canaries and routes through the API server, and nothing else."""

from autotuner.adapters.kubernetes.canary import KubernetesCanary
from autotuner.adapters.kubernetes.client import Cluster
from autotuner.adapters.kubernetes.production import LocatedServing, Production
from autotuner.adapters.kubernetes.reaper import reap
from autotuner.adapters.kubernetes.route import KubernetesRoute
from autotuner.adapters.kubernetes.sighting import ready_pods, route_seen
from autotuner.adapters.kubernetes.survey import survey
from autotuner.adapters.kubernetes.whereabouts import LocatedMetrics, Whereabouts

__all__ = [
    "Cluster",
    "KubernetesCanary",
    "KubernetesRoute",
    "LocatedMetrics",
    "LocatedServing",
    "Production",
    "Whereabouts",
    "ready_pods",
    "reap",
    "route_seen",
    "survey",
]

"""What the controllers, the scheduler and the nodes of a cluster do, at once: Deployments have pods, pods have places.

A pod is ready `START` after it was made, on the first node that has a GPU for it.
"""

from __future__ import annotations

import copy
import hashlib
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.cluster.server import Object, Place, SimulatedApiServer

START = timedelta(seconds=2)
LASTING = timedelta(seconds=3)
"""How long a namespace that was deleted is still there."""

IMAGE_DIGEST = "sha256:" + "ab" * 32


@dataclass
class Controllers:
    """All of them. nodes: how many GPUs each has. unpullable: pods whose names begin so get no image."""

    server: SimulatedApiServer
    nodes: dict[str, int]
    unpullable: tuple[str, ...] = ()
    _made: int = 0
    _restarts: dict[str, tuple[int, datetime, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in self.nodes:
            self.server.make(Place("", "nodes", "", name), {"apiVersion": "v1", "kind": "Node", "spec": {}})
        self.server.controllers.append(self.settle)

    def settle(self) -> None:
        """Do everything that there is to do now."""
        self._finish_namespaces()
        deployments = {
            found["metadata"]["uid"]: (place, found) for place, found in self.server.of("deployments")
        }
        for uid, (place, deployment) in deployments.items():
            self._replicate(place, uid, deployment)
        for place, pod in self.server.of("pods"):
            self._schedule(pod)
            self._run(place, pod)

    def restart(self, name: str, reason: str = "OOMKilled") -> None:
        """End the container of the pod whose name begins so; it starts again."""
        pod = next(pod for place, pod in self.server.of("pods") if place.name.startswith(name))
        uid, now = pod["metadata"]["uid"], self.server.clock.now()
        self._restarts[uid] = (self._restarts.get(uid, (0, now, ""))[0] + 1, now, reason)
        self.settle()

    def _finish_namespaces(self) -> None:
        for place, space in list(self.server.of("namespaces")):
            gone = space["metadata"].get("deletionTimestamp")
            if gone and self.server.clock.now() - datetime.fromisoformat(gone) >= LASTING:
                self.server.drop(place)

    def _replicate(self, place: Place, uid: str, deployment: Object) -> None:
        template = deployment["spec"]["template"]
        text = json.dumps(template, sort_keys=True)
        mark = hashlib.sha256(f"{text}{uid}".encode()).hexdigest()[:8]
        mine = [
            (where, pod)
            for where, pod in self.server.of("pods", place.namespace)
            if pod["metadata"]["ownerReferences"][0]["uid"] == uid
        ]
        for where, pod in mine:
            if pod["metadata"]["annotations"]["template"] != mark:
                self.server.drop(where)
        mine = [(where, pod) for where, pod in mine if pod["metadata"]["annotations"]["template"] == mark]
        wanted = deployment["spec"].get("replicas", 1)
        for where, _ in mine[wanted:]:
            self.server.drop(where)
        for _ in range(wanted - len(mine)):
            self._make_pod(place, uid, mark, template)

    def _make_pod(self, place: Place, uid: str, mark: str, template: Object) -> None:
        self._made += 1
        metadata: Object = copy.deepcopy(template.get("metadata", {}))
        metadata["annotations"] = {**metadata.get("annotations", {}), "template": mark}
        metadata["ownerReferences"] = [{"kind": "Deployment", "name": place.name, "uid": uid}]
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": metadata,
            "spec": copy.deepcopy(template["spec"]),
            "status": {"podIP": f"10.0.{self._made // 250}.{1 + self._made % 250}"},
        }
        name = f"{place.name}-{mark[:6]}-{self._made:05}"
        self.server.make(Place("", "pods", place.namespace, name), pod)

    def _schedule(self, pod: Object) -> None:
        if pod["spec"].get("nodeName"):
            return
        for place, node in self.server.of("nodes"):
            there = [p for _, p in self.server.of("pods") if p["spec"].get("nodeName") == place.name]
            free = self.nodes.get(place.name, 0) - sum(map(_gpus, there))
            if not node["spec"].get("unschedulable") and free >= _gpus(pod):
                pod["spec"]["nodeName"] = place.name
                return

    def _run(self, place: Place, pod: Object) -> None:
        now = self.server.clock.now()
        if not pod["spec"].get("nodeName"):
            why = f"0/{len(self.nodes)} nodes are available: Insufficient nvidia.com/gpu."
            conditions = [_told("PodScheduled", "False", why)]
            pod["status"] = {**pod["status"], "phase": "Pending", "conditions": conditions}
            return
        restarts, at, reason = self._restarts.get(pod["metadata"]["uid"], (0, now, ""))
        made = datetime.strptime(pod["metadata"]["creationTimestamp"], "%Y-%m-%dT%H:%M:%SZ").replace(
            tzinfo=UTC
        )
        since = at if restarts else made
        ready = now - since >= START
        image = pod["spec"]["containers"][0]["image"]
        state: Object = {"waiting": {"reason": "ContainerCreating"}}
        if place.name.startswith(self.unpullable or ("\0",)):
            missing = f"manifest of {image} not found"
            ready, state = False, {"waiting": {"reason": "ErrImagePull", "message": missing}}
        elif ready:
            state = {"running": {"startedAt": since.isoformat()}}
        last: Object = {"lastState": {"terminated": {"exitCode": 137, "reason": reason}}} if restarts else {}
        container = {
            "name": pod["spec"]["containers"][0]["name"],
            "image": image,
            "imageID": f"{image.partition('@')[0].rpartition(':')[0] or image}@{IMAGE_DIGEST}",
            "ready": ready,
            "restartCount": restarts,
            "state": state,
            **last,
        }
        pod["status"] = {
            "podIP": pod["status"]["podIP"],
            "phase": "Running" if "running" in state else "Pending",
            "conditions": [_told("PodScheduled", "True"), _told("Ready", str(ready))],
            "containerStatuses": [container],
        }


def _gpus(pod: Object) -> int:
    return sum(
        int(each.get("resources", {}).get("limits", {}).get("nvidia.com/gpu", 0))
        for each in pod["spec"]["containers"]
    )


def _told(kind: str, status: str, message: str = "") -> Any:
    why = {"reason": "Unschedulable", "message": message} if message else {}
    return {"type": kind, "status": status, **why}

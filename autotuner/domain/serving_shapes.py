# ruff: noqa: ARG002 - the arguments are those of every shape
"""Routes of model servers' own controllers: KServe and Seldon Core divide the traffic and make the canary's pods.

None of these controllers is here to be tried. What they do with what is changed is as their sources have it:
KServe `pkg/controller/v1beta1/inferenceservice/reconcilers/knative/ksvc_reconciler.go`, Seldon Core
`operator/controllers/seldondeployment_controller.go` (v1) and `operator/apis/mlops/v1alpha1/experiment_types.go` (v2).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from autotuner.domain.manifests import Manifest, canary_labels
from autotuner.domain.route_shapes import Operation, Place, RouteShape, WeightedList
from autotuner.domain.workload import CANARY, STABLE, RouteKind, Workload, WorkloadKind
from autotuner.errors import Refused, Unavailable

PERCENT, LABELS = "canaryTrafficPercent", "labels"
SCALE = ("minReplicas", "maxReplicas")
ISVC_PODS = {"component": "predictor"}
ISVC_NAME = "serving.kserve.io/inferenceservice"
"""Label of the pods of an InferenceService."""


class Predictors(WeightedList):
    """A SeldonDeployment: its predictors are the backends, and each makes a Deployment of its own."""

    def _beside(self, backend: Manifest, place: Place) -> dict[str, Any]:
        """The stable predictor once more, with one replica, and labels that its pods get."""
        made = super()._beside(backend, place)
        made["labels"] = {**(backend.get("labels") or {}), **place.labels}
        made["replicas"] = 1
        scaled = ("replicas", "hpaSpec", "kedaSpec")
        if "componentSpecs" in made:
            made["componentSpecs"] = [
                {key: value for key, value in each.items() if key not in scaled}
                for each in made["componentSpecs"]
            ]
        return made


@dataclass(frozen=True)
class Revisions:
    """An InferenceService over Knative: the canary is a newer revision of the same predictor, told apart by labels.

    It gets `canaryTrafficPercent`, the revision before it the rest. Without that field the newest ready revision gets
    everything at once: so the predictor is put back first, and the field is taken away only when the revision that this
    makes is ready and the canary's is gone.
    """

    kind: RouteKind = RouteKind.INFERENCE_SERVICE

    def weights(self, route: Manifest, workload: Workload, place: Place) -> dict[str, int]:
        """Return the weights by backend."""
        predictor = _predictor(route)
        if not marked(predictor, place.labels):
            return {STABLE: place.total}
        canary = int(predictor.get(PERCENT, place.total))
        return {STABLE: place.total - canary, CANARY: canary}

    def admit(self, route: Manifest, workload: Workload, place: Place) -> list[Operation]:
        """Return the change that makes the canary's revision, without traffic; none when it is made. Raises Refused."""
        predictor = _predictor(route)
        if marked(predictor, place.labels):
            return []
        labels = {**(predictor.get(LABELS) or {}), **place.labels}
        scale = {"minReplicas": 1, "maxReplicas": 1}
        return _exchanged(predictor, {**predictor, LABELS: labels, PERCENT: 0, **scale})

    def weigh(
        self, route: Manifest, workload: Workload, place: Place, weights: Mapping[str, int]
    ) -> list[Operation]:
        """Return the change that sets the percentage; none when it is set. Raises Refused without a canary."""
        predictor = _predictor(route)
        if not marked(predictor, place.labels):
            raise Refused(f"{workload.route.kind} {workload.route.name} has no revision for {place.canary}")
        if predictor.get(PERCENT) == weights[CANARY]:
            return []
        return _exchanged(predictor, {**predictor, PERCENT: weights[CANARY]})

    def before(self, route: Manifest, workload: Workload, place: Place) -> str:
        """Return the fields that will be changed, as they are. Raises Refused while somebody rolls out a revision."""
        predictor = _predictor(route)
        if marked(predictor, place.labels) or predictor.get(PERCENT, 100) != 100:
            raise Refused(
                f"{workload.route.kind} {workload.route.name} has {PERCENT} {predictor.get(PERCENT)}: "
                "a rollout is under way"
            )
        kept = {key: predictor[key] for key in (PERCENT, *SCALE) if key in predictor}
        return json.dumps(kept, sort_keys=True)

    def dismiss(self, route: Manifest, workload: Workload, place: Place, before: str) -> list[Operation]:
        """Return the change that makes a revision like the one before the canary's; the canary's loses its traffic."""
        predictor = _predictor(route)
        if not marked(predictor, place.labels):
            return []
        kept = json.loads(before) if before else {}
        return _exchanged(predictor, {**_template(predictor, place.labels), **kept, PERCENT: 0})

    def finish(self, route: Manifest, workload: Workload, place: Place, before: str) -> list[Operation]:
        """Return the change that gives the percentage back once the newest revision is ready. Raises Unavailable."""
        predictor, kept = _predictor(route), json.loads(before) if before else None
        if predictor.get(PERCENT) != 0 or kept is None:
            return []
        status = route.get("status", {}).get("components", {}).get("predictor", {})
        created, ready = status.get("latestCreatedRevision"), status.get("latestReadyRevision")
        if created != ready:
            raise Unavailable(str(workload.route.kind), f"{created} is not ready yet, {ready} is")
        rest = {key: value for key, value in predictor.items() if key != PERCENT}
        return _exchanged(predictor, {**rest, **{key: kept[key] for key in (PERCENT,) if key in kept}})


def marked(predictor: Manifest, labels: Mapping[str, str]) -> bool:
    """Whether the newest revision is the canary's."""
    return labels.items() <= (predictor.get(LABELS) or {}).items()


def _template(predictor: Manifest, labels: Mapping[str, str]) -> dict[str, Any]:
    """What a predictor says of its pods alone: without scale, percentage and labels of ours."""
    made = {key: value for key, value in predictor.items() if key not in (PERCENT, *SCALE)}
    rest = {key: value for key, value in (made.pop(LABELS, None) or {}).items() if key not in labels}
    return {**made, LABELS: rest} if rest else made


def as_workload(workload: Workload, target: str, found: Manifest) -> Manifest:
    """Return an InferenceService as a Deployment would say the same: its pods' labels and their template."""
    if workload.kind is not WorkloadKind.INFERENCE_SERVICE:
        return found
    labels = {ISVC_NAME: workload.name, **ISVC_PODS}
    template = {
        "metadata": {"labels": labels},
        "spec": _template(_predictor(found), canary_labels(target)),
    }
    return {**found, "spec": {"selector": {"matchLabels": labels}, "template": template}}


def _predictor(route: Manifest) -> Manifest:
    found: Manifest = route.get("spec", {}).get("predictor", {})
    return found


def _exchanged(found: Manifest, wanted: Manifest) -> list[Operation]:
    path = "/spec/predictor"
    return [
        {"op": "test", "path": path, "value": dict(found)},
        {"op": "replace", "path": path, "value": dict(wanted)},
    ]


SHAPES: Mapping[RouteKind, RouteShape] = {
    RouteKind.HTTP_ROUTE: WeightedList(RouteKind.HTTP_ROUTE, "rules", "backendRefs", ("name",), 1),
    RouteKind.GRPC_ROUTE: WeightedList(RouteKind.GRPC_ROUTE, "rules", "backendRefs", ("name",), 1),
    RouteKind.VIRTUAL_SERVICE: WeightedList(
        RouteKind.VIRTUAL_SERVICE, "http", "route", ("destination", "host"), 100
    ),
    RouteKind.INFERENCE_SERVICE: Revisions(),
    RouteKind.SELDON_DEPLOYMENT: Predictors(
        RouteKind.SELDON_DEPLOYMENT, "", "predictors", ("name",), 0, "traffic"
    ),
    RouteKind.EXPERIMENT: WeightedList(RouteKind.EXPERIMENT, "", "candidates", ("name",), 0),
}
"""Kinds whose own object holds the weights. An Ingress has a second one of ours beside it, a Service has none."""

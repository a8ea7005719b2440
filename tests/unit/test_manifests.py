"""What a canary is made of: a clone where speed is decided, and nothing of production's identity."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autotuner.domain.manifests import (
    EXPIRES_AT,
    canary_deployment,
    canary_labels,
    canary_name,
    canary_service,
    expired,
    kept_config,
    running_images,
    template_digest,
)
from autotuner.errors import Refused
from tests.builders import at
from tests.closed_loop.pooled import a_workload
from tests.cluster_objects import LABELS, a_deployment, a_pod, a_service, an_http_route

DIGEST = "sha256:" + "ab" * 32


def made(stable: dict[str, Any] | None = None, images: dict[str, str] | None = None) -> dict[str, Any]:
    return canary_deployment(a_workload(), "vision", stable or a_deployment(), images or {}, at(3600))


def test_a_canary_has_all_of_production_that_decides_how_fast_it_is() -> None:
    stable = a_deployment()
    theirs, ours = stable["spec"]["template"]["spec"], made(stable)["spec"]["template"]["spec"]
    for field in ("serviceAccountName", "nodeSelector", "tolerations", "volumes"):
        assert ours[field] == theirs[field]
    assert ours["containers"][0]["resources"] == theirs["containers"][0]["resources"]
    assert ours["containers"][0]["args"] == theirs["containers"][0]["args"]


def test_no_label_of_production_is_on_the_canary() -> None:
    canary = made()
    labels = canary["spec"]["template"]["metadata"]["labels"]
    assert labels == canary["spec"]["selector"]["matchLabels"] == canary_labels("vision")
    assert not labels.keys() & {"app", "team"}
    assert canary["spec"]["replicas"] == 1


def test_the_canary_goes_with_its_owner_and_says_when_it_is_past_its_time() -> None:
    metadata = made()["metadata"]
    assert metadata["ownerReferences"][0]["uid"] == "0000-1111"
    assert metadata["annotations"][EXPIRES_AT] == at(3600).isoformat()
    assert not expired({"metadata": metadata}, at(3599))
    assert expired({"metadata": metadata}, at(3600))
    assert not expired({"metadata": {}}, at(10**8))


def test_the_canary_runs_the_very_image_that_production_runs() -> None:
    images = running_images(
        [a_pod(image_id=f"registry.example/triton@{DIGEST}"), a_pod("b", image_id=f"x@{DIGEST}")]
    )
    assert images == {"triton": f"registry.example/triton@{DIGEST}"}
    assert made(images=images)["spec"]["template"]["spec"]["containers"][0]["image"] == images["triton"]


def test_an_image_without_a_digest_is_taken_as_it_is_named() -> None:
    assert running_images([a_pod()]) == {"triton": "registry.example/triton:25.01"}


def test_pods_of_two_images_are_no_production_to_compare_with() -> None:
    other = f"registry.example/triton@sha256:{'cd' * 32}"
    with pytest.raises(Refused, match="wait for the rollout"):
        running_images([a_pod(image_id=f"registry.example/triton@{DIGEST}"), a_pod("b", image_id=other)])


def test_a_stateful_set_with_volumes_of_its_own_is_refused() -> None:
    with pytest.raises(Refused, match="cannot be cloned"):
        made(a_deployment(volumeClaimTemplates=[{"metadata": {"name": "cache"}}]))


def test_names_are_always_the_same_and_never_too_long() -> None:
    workload = a_workload()
    assert canary_name(workload, "vision") == canary_name(workload, "vision") == "vision-canary-vision"
    long = replace(workload, name="a" * 60)
    names = {canary_name(long, "vision"), canary_name(long, "speech")}
    assert len(names) == 2
    assert all(len(name) <= 45 for name in names)


def test_the_service_of_the_canary_selects_the_canary_and_takes_no_node_port() -> None:
    route = {"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute"} | an_http_route()
    route["metadata"]["uid"] = "0000-2222"
    service = canary_service(a_workload(), "vision", route, a_service(), at(0))
    assert service["metadata"]["ownerReferences"][0]["uid"] == "0000-2222"
    assert service["spec"]["selector"] == canary_labels("vision")
    assert not service["spec"]["selector"].items() & LABELS.items()
    assert service["spec"]["ports"] == [{"name": "http", "port": 8000, "targetPort": 8000, "protocol": "TCP"}]


def test_the_text_of_production_is_kept_to_the_byte() -> None:
    metadata = {"name": "vision-config", "namespace": "prod", "uid": "0000-3333"}
    data = {"config.pbtxt": "name: 'x'\t\n", "other": "kept by nobody"}
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
    kept = kept_config(a_workload(), "vision", owner, "print", at(0))
    assert kept["metadata"]["ownerReferences"][0]["uid"] == "0000-3333"
    assert kept["data"] == {"config.pbtxt": "name: 'x'\t\n"}


def test_another_template_has_another_digest_and_a_scaled_workload_the_same() -> None:
    stable = a_deployment()
    rolled = a_deployment()
    rolled["spec"]["template"]["spec"]["containers"][0]["image"] = "registry.example/triton:25.02"
    assert template_digest(stable) == template_digest(a_deployment(replicas=5)) != template_digest(rolled)

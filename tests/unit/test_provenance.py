"""What is known of two replicas and differs is said; what nobody told proves nothing."""

from __future__ import annotations

import pytest

from autotuner.domain.manifests import DEVICE_LABELS, provenance_of
from autotuner.domain.provenance import UNKNOWN, Provenance, differences, ordered, together
from tests.cluster_objects import a_pod

WHOLE = Provenance(("1",), "2.51.0", "triton@sha256:ab", "NVIDIA-A100")


def test_what_differs_is_said_part_by_part() -> None:
    other = Provenance(("2", "3"), "2.52.0", "triton@sha256:cd", "NVIDIA-H100")
    assert differences(WHOLE, other) == (
        "version 2 and 3 of the model instead of 1",
        "Triton 2.52.0 instead of 2.51.0",
        "the image triton@sha256:cd instead of triton@sha256:ab",
        "the device NVIDIA-H100 instead of NVIDIA-A100",
    )


@pytest.mark.parametrize(("before", "now"), [(WHOLE, WHOLE), (WHOLE, UNKNOWN), (UNKNOWN, WHOLE)])
def test_what_is_the_same_or_unknown_is_no_difference(before: Provenance, now: Provenance) -> None:
    assert differences(before, now) == ()


def test_replicas_together_are_known_by_whoever_tells() -> None:
    assert together([Provenance(triton="2.51.0"), Provenance(("1",)), WHOLE]) == WHOLE


def test_versions_are_ordered_as_numbers_and_named_once() -> None:
    assert ordered(["10", "9", "10"]) == ("9", "10")


@pytest.mark.parametrize("label", DEVICE_LABELS)
def test_a_pod_tells_its_image_and_the_device_that_it_asks_for(label: str) -> None:
    pod = a_pod("vision-1")
    pod["spec"]["nodeSelector"] = {"zone": "a", label: "NVIDIA-A100"}
    name = pod["spec"]["containers"][0]["name"]
    told = provenance_of(pod, name)
    assert told.device_type == "NVIDIA-A100"
    assert told.image
    assert told == provenance_of(pod)


def test_which_of_two_containers_runs_triton_must_be_said() -> None:
    pod = a_pod("vision-1")
    side = {"name": "side", "image": "side:1"}
    pod["spec"]["containers"].append(side)
    pod["status"]["containerStatuses"].append({**side, "imageID": ""})
    assert provenance_of(pod).image == ""
    assert provenance_of(pod, "side").image == "side:1"

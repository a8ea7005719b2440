"""What a pod waits for is said with the reason that the cluster gives."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from autotuner.domain.pod_status import is_ready, running_since, waits_for
from tests.cluster_objects import a_pod

PENDING = [
    {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "Insufficient nvidia.com/gpu",
    }
]
STARTED = [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "False"}]


def container(state: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
    return [{"name": "triton", "state": state, **more}]


@pytest.mark.parametrize(
    ("pod", "says"),
    [
        (None, "no pod yet"),
        (a_pod(conditions=PENDING), "not scheduled: Unschedulable: Insufficient nvidia.com/gpu"),
        (
            a_pod(
                conditions=STARTED,
                containerStatuses=container({"waiting": {"reason": "ErrImagePull", "message": "no"}}),
            ),
            "container triton is not started: ErrImagePull: no",
        ),
        (
            a_pod(
                conditions=STARTED,
                containerStatuses=container(
                    {"waiting": {"reason": "CrashLoopBackOff"}},
                    lastState={"terminated": {"reason": "OOMKilled", "exitCode": 137}},
                ),
            ),
            "ended before with OOMKilled (exit code 137)",
        ),
        (
            a_pod(
                conditions=STARTED,
                containerStatuses=container({"terminated": {"reason": "Error", "exitCode": 1}}),
            ),
            "container triton ended with Error (exit code 1)",
        ),
        (a_pod(conditions=STARTED), "started but not ready"),
        (
            a_pod(phase="Failed", reason="Evicted", message="low on memory"),
            "the pod failed: Evicted: low on memory",
        ),
    ],
)
def test_a_pod_that_is_not_ready_says_why(pod: dict[str, Any] | None, says: str) -> None:
    assert says in waits_for(pod)


def test_a_ready_pod_waits_for_nothing() -> None:
    assert waits_for(a_pod()) == ""
    assert is_ready(a_pod())


def test_a_pod_on_its_way_out_is_not_ready() -> None:
    pod = a_pod()
    pod["metadata"]["deletionTimestamp"] = "2026-01-05T02:00:00Z"
    assert not is_ready(pod)
    assert waits_for(pod) == "the pod is being deleted"


def test_the_newest_warning_explains_where_nothing_else_does() -> None:
    events = [
        {"type": "Warning", "reason": "FailedCreate", "message": "quota exceeded"},
        {"type": "Normal", "reason": "Scaled", "message": "up"},
    ]
    assert waits_for(None, events) == "no pod yet: FailedCreate: quota exceeded"


def test_since_when_a_server_runs_is_what_its_container_says() -> None:
    running = {"running": {"startedAt": "2026-01-05T02:00:07Z"}}
    pod = a_pod(containerStatuses=[{"name": "proxy", "state": {}}, *container(running)])
    assert running_since(pod, "triton") == datetime(2026, 1, 5, 2, 0, 7, tzinfo=UTC)
    assert running_since(pod, "proxy") is None
    assert running_since(a_pod(containerStatuses=container(running)), "") is not None
    assert running_since(a_pod(containerStatuses=[]), "") is None

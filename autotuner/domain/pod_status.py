"""What a pod waits for, in words: which of scheduled, pulled, started and ready, and the event that explains it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from autotuner.domain.manifests import Manifest

LONGEST_CHARACTERS = 300


def is_ready(pod: Manifest) -> bool:
    """Say whether a pod takes traffic: ready, and not on its way out."""
    return not pod["metadata"].get("deletionTimestamp") and _condition(pod, "Ready").get("status") == "True"


def running_since(pod: Manifest, container: str) -> datetime | None:
    """Return since when a container of a pod runs, None when that is not told. container: empty for the only one."""
    for status in pod.get("status", {}).get("containerStatuses", []):
        if status["name"] == container or not container:
            since = status.get("state", {}).get("running", {}).get("startedAt")
            return datetime.fromisoformat(since) if since else None
    return None


def waits_for(pod: Manifest | None, events: Sequence[Manifest] = ()) -> str:
    """Return what a pod is waiting for and why, one sentence; empty when it is ready.

    pod: None when there is none yet. events: of the pod and what owns it, oldest first.
    """
    if pod is None:
        return _told("no pod yet", _newest(events, "Warning"))
    if pod["metadata"].get("deletionTimestamp"):
        return "the pod is being deleted"
    if pod.get("status", {}).get("phase") == "Failed":
        return _told("the pod failed", _why(pod.get("status", {})))
    scheduled = _condition(pod, "PodScheduled")
    if scheduled.get("status") != "True":
        return _told("not scheduled", _why(scheduled) or _newest(events, "Warning"))
    for status in pod.get("status", {}).get("containerStatuses", []):
        stuck = _container(status)
        if stuck:
            return stuck
    if not is_ready(pod):
        return _told("started but not ready", _newest(events, "Warning"))
    return ""


def _container(status: Manifest) -> str:
    name, state = status["name"], status.get("state", {})
    last = status.get("lastState", {}).get("terminated", {})
    if "waiting" in state:
        waiting = state["waiting"]
        why = _why(waiting)
        if last:
            why = f"{why}; it ended before with {_ended(last)}"
        return _told(f"container {name} is not started", why)
    if "terminated" in state:
        return f"container {name} ended with {_ended(state['terminated'])}"
    return ""


def _ended(terminated: Manifest) -> str:
    reason = terminated.get("reason") or "an error"
    return f"{reason} (exit code {terminated.get('exitCode', '?')})"


def _condition(pod: Manifest, kind: str) -> Mapping[str, str]:
    for each in pod.get("status", {}).get("conditions", []):
        if each.get("type") == kind:
            return dict(each)
    return {}


def _why(status: Manifest) -> str:
    return ": ".join(part for part in (status.get("reason", ""), status.get("message", "")) if part)


def _newest(events: Sequence[Manifest], kind: str) -> str:
    for event in reversed(events):
        if event.get("type") == kind:
            return _why(event)
    return ""


def _told(what: str, why: str) -> str:
    text = f"{what}: {' '.join(why.split())}" if why else what
    return text if len(text) <= LONGEST_CHARACTERS else text[: LONGEST_CHARACTERS - 1] + "…"

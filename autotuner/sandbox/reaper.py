"""Ends what its parent leaves behind; run as a script, one for each process that starts children.

A parent-death signal reaches only the direct child: a killed tritonserver leaves its Python stubs blocked on a queue
that nobody serves, for ever. So this process is told every process group that was started. When a group's leader
ends, however it ends, the rest of the group is killed; when the parent ends, everything is, and the files that
only a running group needs are removed.

Standard input carries JSON lines, {"group": ID} or {"files": PATTERN}; its end is the parent's end.
Imports nothing but the standard library: it runs isolated from any environment.
"""

import contextlib
import json
import os
import select
import signal
import sys
import time
from pathlib import Path

POLL_SECONDS = 0.02
PARENT_CHECK_MILLISECONDS = 1000


def kill_group(group_id: int, patience_seconds: float = 5.0) -> None:
    """Send SIGKILL to a process group until nothing in it runs any more (zombies do not count)."""
    give_up = time.monotonic() + patience_seconds
    while time.monotonic() < give_up:
        try:
            os.killpg(group_id, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            return
        if not group_members(group_id):
            return
        time.sleep(POLL_SECONDS)


def group_members(group_id: int) -> list[int]:
    """Ids of the running (not zombie) processes of a process group, as /proc tells."""
    members = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            state, _, group = (entry / "stat").read_text().rpartition(")")[2].split()[:3]
            if int(group) == group_id and state not in "ZX":
                members.append(int(entry.name))
    return sorted(members)


class Reaper:
    """The groups and files that are watched."""

    def __init__(self) -> None:
        self._groups: dict[int, int] = {}
        self._patterns: list[str] = []
        self._poll = select.poll()
        self._poll.register(0, select.POLLIN | select.POLLHUP)

    def run(self, parent: int) -> None:
        """Watch until the parent ends, then end everything."""
        ended = False
        while not ended:
            for descriptor, _ in self._poll.poll(PARENT_CHECK_MILLISECONDS):
                if descriptor == 0:
                    ended = not self._read()
                else:
                    self._leader_ended(descriptor)
            # A forked child of the parent may hold the pipe open: its end is not the only sign.
            ended = ended or os.getppid() != parent
        for group in self._groups.values():
            kill_group(group)
        for pattern in self._patterns:
            for path in Path("/").glob(pattern.lstrip("/")):
                path.unlink(missing_ok=True)

    def _read(self) -> bool:
        lines = os.read(0, 65_536).decode().splitlines()
        for line in lines:
            told = json.loads(line)
            if "group" in told:
                self._watch(told["group"])
            else:
                self._patterns.append(told["files"])
        return bool(lines)

    def _watch(self, group: int) -> None:
        try:
            self._groups[leader := os.pidfd_open(group)] = group
        except ProcessLookupError:  # ended already
            kill_group(group)
        else:
            self._poll.register(leader, select.POLLIN)

    def _leader_ended(self, leader: int) -> None:
        self._poll.unregister(leader)
        os.close(leader)
        kill_group(self._groups.pop(leader))


if __name__ == "__main__":
    Reaper().run(int(sys.argv[1]))

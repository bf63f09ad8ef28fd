"""Compiling GPU sources in an environment: whether this machine can do it, and the variables of the build."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from envsolve.errors import UsageError
from envsolve.machine.model import HostCompiler, Machine
from envsolve.machine.tools import find_compilers, read_compiler
from envsolve.planning.lock import Building
from envsolve.toolchain.model import SITE_PACKAGES
from envsolve.values import CudaVersion, DriverVersion

# Bytes that one compiler of GPU code takes; flash-attention's README warns of as much for each job.
_JOB_BYTES = 4_000_000_000
_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


@dataclass(frozen=True, slots=True)
class Host:
    """The host compiler to build with.

    Attributes:
        cc: Path of the C compiler.
        cxx: Path of the C++ compiler.
    """

    cc: str
    cxx: str


def host_compiler(building: Building, machine: Machine | None, environ: Mapping[str, str]) -> Host:
    """The host compiler of this machine that is within the limits: the one that ``CXX`` names, ``g++``, then others.

    Raises:
        UsageError: It is missing; nothing has been downloaded or compiled by then.
    """
    found = [*_named(environ), *_others(machine, environ)]
    for compiler in found:
        host = _pair(compiler)
        if host is not None and _serves(compiler, building):
            return host
    limits, what = limits_of(building), ", ".join(building.packages)
    if not found:
        raise UsageError(
            f"{what} must be compiled from source, but g++ is not installed on this machine (the build accepts "
            f"{limits})",
            hint=f"install {_install_hint(building)}",
        )
    have = ", ".join(dict.fromkeys(f"{one.kind} {one.version or '?'}" for one in found))
    raise UsageError(
        f"{what} must be compiled from source, which requires {limits}; this machine has {have}",
        hint=f"install a suitable version ({_install_hint(building)}), or set CC and CXX to one",
    )


def limits_of(building: Building) -> str:
    """``gcc 11 to 15``."""
    first, last = building.gcc_min, building.gcc_max
    if first is not None and last is not None:
        return f"gcc {first} to {last}"
    return f"gcc {last} or older" if last is not None else f"gcc {first} or newer" if first is not None else "a gcc"


def own_toolkit(building: Building, machine: Machine | None) -> Path | None:
    """The toolkit of this machine that has the nvcc to build with, or None."""
    wanted = building.nvcc
    if wanted is None:
        return None
    toolkits = [t for t in (machine.toolkits if machine else None) or () if t.nvcc and t.path and t.version]
    fitting = [t.path for t in toolkits if t.path and CudaVersion.parse(t.version or "0") == CudaVersion.parse(wanted)]
    if building.cuda_home in fitting or (not toolkits and (Path(building.cuda_home or "/none") / "bin/nvcc").is_file()):
        return Path(building.cuda_home or "")
    return Path(fitting[0]) if fitting else None


def no_toolkit(building: Building, machine: Machine | None, other_way: str | None) -> UsageError:
    """The error for a missing toolkit.

    Args:
        other_way: What would bring one, in words.
    """
    wanted, what = building.nvcc, ", ".join(building.packages)
    if wanted is None:
        return UsageError(
            f"{what} must be compiled from source, but no known nvcc can compile it for this machine",
            hint="give the driver and the GPUs of the machine: --target, --machine",
        )
    toolkits = [t for t in (machine.toolkits if machine else None) or () if t.nvcc and t.path and t.version]
    have = ", ".join(f"nvcc {t.version} in {t.path}" for t in toolkits)
    by_hand = (
        "`envsolve plan` with the same requirements shows how to get this nvcc; then set CUDA_HOME to its directory"
    )
    return UsageError(
        f"{what} must be compiled from source, which requires nvcc {wanted}; this machine has {have or 'no nvcc'}",
        hint="; or: ".join(filter(None, (other_way, by_hand))),
    )


def home_in(building: Building, site_packages: Path) -> Path | None:
    """The toolkit that packages of the environment make up; None if it is the machine's own."""
    if building.nvcc_from != "pip" or building.cuda_home is None:
        return None
    return Path(building.cuda_home.replace(SITE_PACKAGES, str(site_packages)))


def variables(
    building: Building, home: Path, host: Host, environment: Path, site_packages: Path, before: Mapping[str, str]
) -> dict[str, str]:
    """Variables that a build gets in addition to those it has.

    Args:
        building: What is built, for which GPUs.
        home: ``CUDA_HOME``.
        host: The host compiler.
        environment: The environment that is built in; its programs (ninja) are found first.
        site_packages: Its directory of packages.
        before: The variables of the package manager's process. ``MAX_JOBS`` in it is kept.
    """
    libraries = [str(home / "lib64"), str(home / "lib64" / "stubs")]
    jobs = before.get("MAX_JOBS") or str(max_jobs())
    told = {
        "CUDA_HOME": str(home),
        "CUDA_PATH": str(home),
        "CUDACXX": str(home / "bin" / "nvcc"),
        "PATH": _joined([str(home / "bin"), str(environment / "bin")], before.get("PATH", os.defpath)),
        "LIBRARY_PATH": _joined(libraries, before.get("LIBRARY_PATH")),
        "LDFLAGS": " ".join(filter(None, (before.get("LDFLAGS"), *_run_paths(home, site_packages)))),
        "CC": host.cc,
        "CXX": host.cxx,
        "NVCC_CCBIN": host.cxx,
        "CUDAHOSTCXX": host.cxx,
        "MAX_JOBS": jobs,
        "CMAKE_BUILD_PARALLEL_LEVEL": jobs,
        # Of flash-attention and its kin, whose every job would be four compilers for four GPUs.
        "NVCC_THREADS": before.get("NVCC_THREADS") or "1",
        # One build at a time: each runs as many compilers as the machine bears.
        "UV_CONCURRENT_BUILDS": "1",
        **building.environment,
    }
    # Headers of torch's own CUDA 12 wheels, for a toolkit that has the compiler alone.
    found = sorted(folder for folder in site_packages.glob("nvidia/*/include") if folder != home / "include")
    headers = [str(folder) for folder in found]
    return told | ({"CPATH": _joined([str(home / "include"), *headers], before.get("CPATH"))} if headers else {})


def max_jobs() -> int:
    """The number of parallel compilers: one for each processor, if the memory is enough."""
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return max(1, min(processors, min([memory, *_memory_limits()]) // _JOB_BYTES))


def _memory_limits() -> Iterator[int]:
    """CPU and memory limits of the container that this runs in."""
    for name in _CGROUP_LIMITS:
        try:
            text = Path(name).read_text(encoding="ascii").strip()
        except OSError:
            continue
        if text.isdigit():
            yield int(text)


def _run_paths(home: Path, site_packages: Path) -> Iterator[str]:
    """Where a built file finds the runtime's libraries: beside itself, if they are packages of the environment."""
    if not home.is_relative_to(site_packages):
        yield f"-Wl,-rpath,{home / 'lib64'}"
        return
    inside = home.relative_to(site_packages) / "lib"
    # Of a module in the directory of packages, in a package, and in a package of a package.
    yield from (f"-Wl,-rpath,$ORIGIN/{up}{inside}" for up in ("", "../", "../../"))


def _named(environ: Mapping[str, str]) -> Iterator[HostCompiler]:
    """The compilers that the user names."""
    for name in ("CXX", "CC"):
        words = shlex.split(environ.get(name, ""))
        path = shutil.which(words[0]) if words else None
        read = read_compiler(Path(path), environ) if path else None
        if read is not None:
            yield read


def _others(machine: Machine | None, environ: Mapping[str, str]) -> list[HostCompiler]:
    """The compilers of this machine: ``g++``, then those with a version in their name, the newest first."""
    known = machine.host_compilers if machine else None
    found = (
        known if known is not None else [c for path in find_compilers(environ) if (c := read_compiler(path, environ))]
    )
    newest = sorted(found, key=lambda one: DriverVersion.parse(one.version or "0"), reverse=True)
    return sorted(newest, key=lambda one: "-" in Path(one.path or "").name)


def _serves(compiler: HostCompiler, building: Building) -> bool:
    major = DriverVersion.parse(compiler.version or "")[:1]
    if compiler.kind != "gcc" or not major:
        return False
    return (building.gcc_min or 0) <= major[0] <= (building.gcc_max or major[0])


def _pair(compiler: HostCompiler) -> Host | None:
    """The C and the C++ compiler that belong together; None if one of them is missing."""
    if compiler.path is None:
        return None
    name = Path(compiler.path).name
    cxx = Path(compiler.path).with_name(name.replace("gcc", "g++"))
    cc = cxx.with_name(cxx.name.replace("g++", "gcc"))
    return Host(str(cc), str(cxx)) if cxx.exists() and cc.exists() else None


def _install_hint(building: Building) -> str:
    major = building.gcc_max or building.gcc_min
    return f"g++-{major} with the system's package manager" if major else "g++ with the system's package manager"


def _joined(first: list[str], rest: str | None) -> str:
    return os.pathsep.join([*first, *([rest] if rest else [])])


# Directories to build from, without the output of earlier builds. An object compiled for other GPUs would pass for up
# to date.

_LEFT_BEHIND = ("__pycache__", "_skbuild", ".tox", ".nox")
_BUILT = ("lib", "temp", "bdist")
_BLOCK = 1 << 20


def copy_sources(directory: Path, target: Path) -> None:
    """Copy a directory for a build, which may write into it; environments in it are left out.

    Raises:
        OSError: A part of it cannot be read.
    """
    shutil.copytree(directory, target, symlinks=True, ignore=_left_out)


def source_digest(directory: Path) -> str:
    """The sha256 of all that :func:`copy_sources` copies, the records of version control left out.

    Raises:
        OSError: A part of it cannot be read.
    """
    whole = hashlib.sha256()
    for name, path in _files(directory):
        whole.update(f"{name}\0{'x' if os.access(path, os.X_OK) else ''}\0".encode("utf-8", "surrogateescape"))
        whole.update(_entry_content(path))
    return whole.hexdigest()


def _files(directory: Path) -> Iterator[tuple[str, Path]]:
    for place, directories, files in os.walk(directory):
        out = _left_out(place, [*directories, *files])
        directories[:] = sorted(name for name in directories if name not in out and name != ".git")
        for name in sorted(name for name in (*files, *directories) if name not in out):
            path = Path(place, name)
            if path.is_symlink() or name not in directories:
                yield str(path.relative_to(directory)), path


def _entry_content(path: Path) -> bytes:
    if path.is_symlink():
        return os.fsencode(path.readlink())
    part = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            part.update(block)
    return part.digest()


def _left_out(place: str, names: list[str]) -> set[str]:
    """The names in a directory that do not belong to its sources."""
    found = {name for name in names if name in _LEFT_BEHIND or name.endswith((".egg-info", ".pyc"))}
    if Path(place).name == "build":
        found |= {name for name in names if name.startswith(_BUILT)}
    # A pipe would be waited on for ever; a socket or a device is nothing that is built either.
    found |= {name for name in names if not _is_copied(Path(place, name))}
    found |= {name for name in names if name.endswith((".envsolve", ".envsolve.lock")) and name.startswith(".")}
    return found | {name for name in names if Path(place, name, "pyvenv.cfg").is_file()}


def _is_copied(path: Path) -> bool:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:  # an editor's, which came and went
        return False
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)

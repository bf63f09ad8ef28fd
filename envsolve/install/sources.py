"""The GPU sources of an environment: compiled in it, after everything else is installed."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from envsolve.errors import IndexUnavailableError
from envsolve.install import building, record
from envsolve.install import files as trees
from envsolve.install.building import Host
from envsolve.install.errors import InstallError, Progress, Step
from envsolve.install.files import File, Wanted
from envsolve.install.interpreters import Target
from envsolve.install.staging import Staging
from envsolve.machine.model import Machine
from envsolve.planning.lock import Building
from envsolve.rules.platform import assumed
from envsolve.system.processes import capture
from envsolve.toolchain.model import SITE_PACKAGES

# The CUDA toolkit that packages of an environment make up, with what they leave out for linking.
#
# NVIDIA's wheels hold ``lib/libcudart.so.13`` and no ``libcudart.so``, no ``lib64``, and no stub of the driver's
# library. A linker requires the first, older builds the second, and code that calls the driver itself the third.
# (Measured: the packages of CUDA 13.0 and 13.2 on the default index; a ``CUDAExtension`` fails to link because
# ``-lcudart`` is not found.)


_LIBRARY = re.compile(r"(?P<name>lib[\w+-]+\.so)(?:\.\d+)+")
_FUNCTION = re.compile(r"\bcu[A-Z]\w*\b")


def complete(home: Path, compiler: str | None) -> None:
    """Add the file names that linkers and builds look for to a toolkit made of packages.

    Args:
        home: ``site-packages/nvidia/cu13``.
        compiler: A C compiler; without one, no stub of the driver's library is made.

    Raises:
        InstallError: The compiler does not run.
    """
    libraries = home / "lib"
    if not (home / "lib64").exists():
        (home / "lib64").symlink_to("lib")
    for library in sorted(libraries.iterdir()):
        match = _LIBRARY.fullmatch(library.name)
        if match and not (libraries / match["name"]).exists():
            (libraries / match["name"]).symlink_to(library.name)
    stub, headers = libraries / "stubs" / "libcuda.so", sorted((home / "include").glob("cuda*.h"))
    if compiler is not None and headers and not stub.exists():
        _write_stub(stub, headers, compiler)


def _write_stub(stub: Path, headers: Sequence[Path], compiler: str) -> None:
    """A library to link against instead of the driver's: it has every name of its headers, and does nothing.

    Programs linked against it load ``libcuda.so.1``, which is the driver's own on the machine that runs them.
    """
    stub.parent.mkdir(exist_ok=True)
    texts = (header.read_text(encoding="utf-8", errors="replace") for header in headers)
    names = sorted({name for text in texts for name in _FUNCTION.findall(text)})
    source = stub.with_suffix(".c")
    source.write_text("".join(f"void {name}(void) {{}}\n" for name in names), encoding="ascii")
    command = [compiler, "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", str(stub), str(source)]
    try:
        done = capture(command, os.environ, limit=120)
    except OSError as error:
        raise InstallError(
            f"{compiler} does not run: {error}", hint="install a C compiler, or set CC to one"
        ) from error
    source.unlink()
    if done.returncode != 0:
        why = "the compiler took more than two minutes" if done.returncode is None else done.stderr.strip()
        raise InstallError(
            f"{compiler} cannot link a library:\n{why}", hint="check that the compiler is installed completely"
        )


# A CUDA toolkit out of conda packages, in a directory of the environment, where neither the machine nor PyPI has one.
#
# For CUDA 12 the default index has ptxas, libNVVM and headers, and no nvcc; conda-forge has all of it. The directory
# is a conda prefix of its own beside NVIDIA's packages: nothing else of the environment is conda's.


_EXTRA = "envsolve[conda]"


def place(building: Building) -> str:
    """The toolkit's directory below the environment's packages."""
    return f"nvidia/cuda-{building.nvcc}"


def can_bring(building: Building) -> bool:
    """Whether such packages are known, and their installer is present."""
    return bool(building.conda) and importlib.util.find_spec("rattler") is not None


def way(building: Building) -> str | None:
    """How to get a toolkit, in words; None if no packages are known."""
    if not building.conda:
        return None
    return f"install {_EXTRA} (pip install '{_EXTRA}'); the same command then gets nvcc from conda-forge"


def bring(building: Building, machine: Machine | None, stage: Staging, progress: Progress) -> Path:
    """Install the toolkit into the environment that is being made; its directory.

    Raises:
        IndexUnavailableError: The channel cannot be read, or has no such packages for this machine.
        InstallError: rattler fails.
    """
    from envsolve.install import conda_fill
    from envsolve.install.conda import carry_out
    from envsolve.packages.conda_inputs import read_spec
    from envsolve.rules.conda import subdir_of
    from envsolve.solve.conda import system_packages
    from envsolve.solve.conda_channels import Channels, UnsolvableError

    home = record.site_packages(stage.environment) / place(building)
    platform = assumed(machine.platform if machine else None)
    channels = tuple(dict.fromkeys(line.rpartition("::")[0] for line in building.conda))
    specs = [read_spec(line.rpartition("::")[2], "the plan's toolchain", {}) for line in building.conda]
    progress(Step("packages", f"installing nvcc {building.nvcc} from {', '.join(channels)}"))
    try:
        subdir = subdir_of(platform)
        virtual = tuple(system_packages([Machine(platform=platform)]))
        found = Channels(channels).solve(specs, (), virtual, subdir, {})
    except UnsolvableError as failure:
        raise IndexUnavailableError(
            f"{', '.join(channels)} has no nvcc {building.nvcc} for this machine: {failure}",
            hint="install this CUDA toolkit yourself, and set CUDA_HOME to its directory",
        ) from None
    packages = tuple(conda_fill.Package(f"{one.name} =={one.version}", one.url, one.hashes) for one in found)
    addresses = tuple(dict.fromkeys(one.channel for one in found))
    final = stage.prefix / home.relative_to(stage.environment)
    carry_out(conda_fill.Order(packages, addresses, subdir, str(home), str(final)), stage, progress)
    _link_targets(home)
    return home


def _link_targets(home: Path) -> None:
    """Give the headers and libraries of conda's ``targets/x86_64-linux`` the places of any other toolkit's."""
    for kind in ("include", "lib"):
        for target in sorted(home.glob(f"targets/*/{kind}")):
            folder = home / kind
            folder.mkdir(exist_ok=True)
            for path in sorted(target.iterdir()):
                link = folder / path.name
                if not link.exists() and not link.is_symlink():
                    link.symlink_to(Path("..") / path.relative_to(home))


_LOG = "build.log"


@dataclass(frozen=True, slots=True)
class Sources:
    """The packages to compile, and the tools for it; found before anything is downloaded.

    Attributes:
        files: Source distributions and source trees.
        building: Requirements of compiling them.
        host: The host compiler; None if it is not installed, or nothing is compiled here.
        home: The machine's own toolkit; None if packages of the environment are the toolkit.
        machine: This machine, for which conda packages are chosen.
    """

    files: tuple[File, ...]
    building: Building
    host: Host | None
    home: Path | None
    machine: Machine | None = None

    @classmethod
    def of(cls, wanted: Wanted, machine: Machine | None) -> Sources | None:
        """Check that this machine can compile the sources; None if there is nothing to compile.

        Raises:
            UsageError: No host compiler within the limits is here, or no nvcc of the right version, nor what brings it.
        """
        stated = wanted.assumptions.building if wanted.assumptions else None
        if stated is None:
            return None
        names = {canonicalize_name(name) for name in stated.packages}
        files = tuple(f for f in wanted.files if f.kind in ("sdist", "tree") and canonicalize_name(f.name) in names)
        own = stated.nvcc_from != "pip"
        if files:
            host = building.host_compiler(stated, machine, os.environ)
            home = building.own_toolkit(stated, machine) if own else None
            if own and home is None and not can_bring(stated):
                raise building.no_toolkit(stated, machine, way(stated))
            return cls(files, stated, host, home, machine)
        cc = shutil.which("gcc")
        # Packages that are the toolkit of what is compiled where it runs.
        return None if own else cls((), stated, Host(cc, cc) if cc else None, None)

    def others(self, wanted: Wanted) -> Wanted:
        """The remaining packages, which are installed first."""
        return replace(wanted, files=tuple(file for file in wanted.files if file not in self.files))

    @property
    def from_conda(self) -> bool:
        """Whether the toolkit is installed from conda packages."""
        return bool(self.files) and self.home is None and self.building.nvcc_from != "pip"

    def variables(self) -> Mapping[str, str]:
        """Variables that the environment must set at run time, for a toolkit that no plan could name."""
        home = f"{SITE_PACKAGES}/{place(self.building)}"
        return {"CUDA_HOME": home, "PATH": f"{home}/bin:$PATH"} if self.from_conda else {}

    def told(self, stage: Staging, before: Mapping[str, str]) -> dict[str, str]:
        """The variables of the build; if packages are the toolkit, complete its tree first."""
        packages = record.site_packages(stage.environment)
        home = self.home or self._inside(packages)
        assert home is not None and self.host is not None  # `of` found them, or the plan has them
        return building.variables(self.building, home, self.host, stage.environment, packages, before)

    def _inside(self, packages: Path) -> Path | None:
        """The toolkit in the environment; None if it is the machine's own."""
        if self.from_conda:
            return packages / place(self.building)
        return building.home_in(self.building, packages)

    def complete(self, stage: Staging, progress: Progress) -> None:
        """Install a toolkit from conda packages if needed, and complete a toolkit made of packages for linking.

        That is for what is compiled here, and for code that is compiled as it runs.

        Raises:
            IndexUnavailableError: The conda packages cannot be had.
            InstallError: The packages that the lock counts on are not in the environment.
        """
        if self.from_conda:
            bring(self.building, self.machine, stage, progress)
        home = self._inside(record.site_packages(stage.environment))
        if home is None:
            return
        if not (home / "bin" / "nvcc").is_file():
            raise InstallError(
                f"the packages of nvcc {self.building.nvcc} are not in the environment",
                hint="make the lock again with envsolve plan",
            )
        complete(home, self.host.cc if self.host else None)


@contextmanager
def logged(stage: Staging, progress: Progress) -> Iterator[Progress]:
    """Progress that also writes every line of a build to a file, which is kept beside the prefix where it fails."""
    path = stage.folder / _LOG
    with path.open("w", encoding="utf-8") as log:
        try:
            yield lambda step: _write(log, step, progress)
        except InstallError as error:
            log.flush()
            kept = stage.prefix.with_name(f"{stage.prefix.name}.{_LOG}")
            # Moved, not copied: a link of that name is replaced, and what it points to stays as it is.
            path.replace(kept)
            advice = f"the full log is in {kept}; to explain it: envsolve diagnose --log {kept}"
            raise InstallError(error.message, hint=f"{error.hint}; {advice}" if error.hint else advice) from error


def _write(log: TextIO, step: Step, progress: Progress) -> None:
    if step.stage == "output":
        log.write(f"{step.text}\n")
    progress(step)


def copies(files: Sequence[File], stage: Staging) -> list[File]:
    """Source trees as they are built: directories are copied, so that a build cannot change them."""
    place = stage.folder / "trees"
    place.mkdir(exist_ok=True)
    return [replace(file, url=trees.staged(file.name, file.url, place)) for file in files]


def unmet(environment: Path, built: Collection[str], target: Target) -> tuple[str, ...]:
    """Requirements of source trees that were found when they were built, and that the environment lacks."""
    there = {canonicalize_name(dist.name): dist for dist in record.installed(environment)}
    markers: dict[str, str | Set[str]] = {name: str(value) for name, value in target.markers.items()}
    found = []
    for name in built:
        for line in there[canonicalize_name(name)].requires or ():
            need = Requirement(line)
            if need.marker is not None and not need.marker.evaluate(markers | {"extra": ""}):
                continue
            dist = there.get(canonicalize_name(need.name))
            if dist is None or not need.specifier.contains(dist.version, prereleases=True):
                have = f"the environment has {dist.version}" if dist else "the environment has none"
                found.append(
                    f"{name} requires {need.name}{need.specifier}, but {have}; request {need.name} together with {name}"
                )
    return tuple(found)


def in_words(sources: Sources, told: Mapping[str, str]) -> str:
    """The packages that are compiled, in words."""
    names = ", ".join(f"{file.name} {file.version or ''}".strip() for file in sources.files)
    return f"compiling {names} with nvcc {sources.building.nvcc} and {told['CXX']}, {told['MAX_JOBS']} files at a time"

"""The CUDA sources of an environment: compiled in it, after all else is there."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from envsolve.install import building, condatoolkit, record, toolkit, trees
from envsolve.install.building import Host
from envsolve.install.errors import InstallError
from envsolve.install.files import File, Wanted
from envsolve.install.interpreters import Target
from envsolve.install.progress import Progress, Step
from envsolve.install.staging import Staging
from envsolve.lock import Building
from envsolve.machine.model import Machine

_LOG = "build.log"


@dataclass(frozen=True, slots=True)
class Sources:
    """What is compiled, and with what; found before anything is downloaded.

    Attributes:
        files: Source distributions and source trees.
        building: What compiling them takes.
        host: The host compiler; None where there is none, and nothing is compiled here.
        home: The machine's own toolkit; None where packages of the environment are the toolkit.
        machine: This machine, for which conda packages are chosen.
    """

    files: tuple[File, ...]
    building: Building
    host: Host | None
    home: Path | None
    machine: Machine | None = None

    @classmethod
    def of(cls, wanted: Wanted, machine: Machine | None) -> Sources | None:
        """See that this machine can compile what is to be compiled; None where nothing is.

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
            if own and home is None and not condatoolkit.can_bring(stated):
                raise building.no_toolkit(stated, machine, condatoolkit.way(stated))
            return cls(files, stated, host, home, machine)
        cc = shutil.which("gcc")
        # Packages that are the toolkit of what is compiled where it runs.
        return None if own else cls((), stated, Host(cc, cc) if cc else None, None)

    def others(self, wanted: Wanted) -> Wanted:
        """All else, which is installed first."""
        return replace(wanted, files=tuple(file for file in wanted.files if file not in self.files))

    @property
    def from_conda(self) -> bool:
        """Whether the toolkit is brought out of conda packages."""
        return bool(self.files) and self.home is None and self.building.nvcc_from != "pip"

    def variables(self) -> Mapping[str, str]:
        """What the environment must have set where it runs, for a toolkit that no plan could name."""
        return condatoolkit.variables(self.building) if self.from_conda else {}

    def told(self, stage: Staging, before: Mapping[str, str]) -> dict[str, str]:
        """The variables of the build; where packages are the toolkit, it is made whole first."""
        packages = record.site_packages(stage.environment)
        home = self.home or self._inside(packages)
        assert home is not None and self.host is not None  # `of` found them, or the plan has them
        return building.variables(self.building, home, self.host, stage.environment, packages, before)

    def _inside(self, packages: Path) -> Path | None:
        """The toolkit in the environment; None where it is the machine's own."""
        if self.from_conda:
            return packages / condatoolkit.place(self.building)
        return building.home_in(self.building, packages)

    def complete(self, stage: Staging, progress: Progress) -> None:
        """Bring a toolkit that is to come out of conda packages, and give one of packages what it lacks for linking.

        That is for what is compiled here, and for code that is compiled as it runs.

        Raises:
            IndexUnavailableError: The conda packages cannot be had.
            InstallError: The packages that the lock counts on are not in the environment.
        """
        if self.from_conda:
            condatoolkit.bring(self.building, self.machine, stage, progress)
        home = self._inside(record.site_packages(stage.environment))
        if home is None:
            return
        if not (home / "bin" / "nvcc").is_file():
            raise InstallError(
                f"the packages of nvcc {self.building.nvcc} are not in the environment",
                hint="make the lock again with envsolve plan",
            )
        toolkit.complete(home, self.host.cc if self.host else None)


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
            shutil.copyfile(path, kept)
            advice = f"the whole log is {kept}; what it means: envsolve diagnose --log {kept}"
            raise InstallError(error.message, hint=f"{error.hint}; {advice}" if error.hint else advice) from error


def _write(log: TextIO, step: Step, progress: Progress) -> None:
    if step.stage == "output":
        log.write(f"{step.text}\n")
    progress(step)


def copies(files: Sequence[File], stage: Staging) -> list[File]:
    """Source trees as they are built: folders are copied, so that a build leaves nothing in them, and takes nothing."""
    place = stage.folder / "trees"
    place.mkdir(exist_ok=True)
    return [replace(file, url=trees.staged(file.name, file.url, place)) for file in files]


def unmet(environment: Path, built: Collection[str], target: Target) -> tuple[str, ...]:
    """What source trees turned out to need, once they were built, and the environment does not have."""
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
                found.append(f"{name} needs {need.name}{need.specifier}; {have}: ask for it beside {name}")
    return tuple(found)


def in_words(sources: Sources, told: Mapping[str, str]) -> str:
    """What is compiled, for a person."""
    names = ", ".join(f"{file.name} {file.version or ''}".strip() for file in sources.files)
    return f"compiling {names} with nvcc {sources.building.nvcc} and {told['CXX']}, {told['MAX_JOBS']} at a time"

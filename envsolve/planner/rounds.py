"""The rounds of a plan: the request is solved, and once more with what is known only by then.

Which torch sources are compiled against, which ready wheel of an extension goes with that torch, which ptxas its Triton
needs, and what compiling takes. An answer in which torch moved is thrown away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec
from msgspec.structs import replace
from packaging.requirements import Requirement

from envsolve.compat.forward import lifted
from envsolve.compat.triton import TRITON
from envsolve.compat.versions import minor
from envsolve.errors import IndexUnavailableError
from envsolve.plan import Caution, Toolchain
from envsolve.planner.assembler import Assembler, assemblers
from envsolve.planner.pinning import Pinned
from envsolve.planner.sources import Compiled, compiled_packages, compiled_when_used
from envsolve.planner.toolchain import build_needs, toolchain_for
from envsolve.planner.windows import is_windows, on_windows
from envsolve.resolve.family import Family, Option
from envsolve.resolve.limits import Limits
from envsolve.resolve.outcome import Conflict
from envsolve.resolve.outside import Ready, ready
from envsolve.resolve.provider import Provider
from envsolve.resolve.requirements import Need
from envsolve.resolve.solve import Solution


class Resolved(msgspec.Struct, frozen=True):
    """What the solver chose, and what it chose from.

    Attributes:
        needs: What was asked, and what was added to it.
        ready: Wheels that are on no index, of packages that would be compiled.
        assembler: The ptxas that was added for Triton.
    """

    needs: Sequence[Need]
    solution: Solution
    pinned: Pinned
    provider: Provider
    family: Family
    limits: Limits
    ready: Ready
    assembler: Assembler | None = None

    @property
    def torch(self) -> Option | None:
        """The torch in the solution; None where there is none, or it was asked for by address."""
        chosen = self.solution.chosen.get("torch")
        return chosen.candidate.option if chosen else None

    def version(self, package: str) -> str | None:
        """The version of a package in the solution; None where it is not in it."""
        chosen = self.solution.chosen.get(package)
        return str(chosen.candidate.version) if chosen else None


Resolve = Callable[[Sequence[Need], Family, Ready], Resolved]


class NothingFitsError(Exception):
    """The request has no answer."""

    def __init__(self, conflict: Conflict) -> None:
        super().__init__("nothing fits")
        self.conflict = conflict


def with_torch(found: Resolved, resolve: Resolve) -> Resolved:
    """The same with torch, and what else is known to be needed, for what is compiled and does not say so itself.

    Raises:
        NothingFitsError: No torch goes with it.
    """
    compiled = compiled_packages(found.pinned.packages, found.family.catalogue)
    needs = [need for one in compiled for need in _unsaid(one, found)]
    return resolve((*found.needs, *needs), found.family, found.ready) if needs else found


def _unsaid(one: Compiled, found: Resolved) -> Iterator[Need]:
    """What a package needs beside what its metadata, as far as it was read, says."""
    if one.needs_torch and "torch" not in found.solution.chosen:
        limit = one.project.torch or "" if one.project else ""
        yield Need(Requirement(f"torch{limit}"), f"compiling {one.name}")
    package = next(package for package in found.pinned.packages if package.name == one.name)
    if package.tree is not None and not package.tree.exact and one.project is not None:
        yield from (Need(Requirement(line), f"{one.name} needs it") for line in one.project.requires or ())


def with_ready_wheels(found: Resolved, resolve: Resolve) -> Resolved:
    """The same with wheels off the indexes for what would be compiled, where there are any for its very torch."""
    torch = found.torch
    if torch is None:
        return found
    compiled = compiled_packages(found.pinned.packages, found.family.catalogue)
    wheels = {one.name: ready(one.name, torch, found.family) for one in compiled}
    if not any(wheels.values()):
        return found
    try:
        again = resolve(found.needs, found.family, wheels)
    except NothingFitsError:
        return found
    return again if again.torch and again.torch.identity == torch.identity else found


def with_assembler(found: Resolved, resolve: Resolve) -> Resolved:
    """The same with a ptxas out of a package, where Triton's own does not serve every card and torch stays as it is."""
    triton, family = found.version(TRITON), found.family
    if triton is None:
        return found
    for assembler in assemblers(triton, family.machines, family.facts, family.catalogue.compilers):
        try:
            facts = assembler.among(family.facts)
            again = resolve((*found.needs, *assembler.needs), replace(family, facts=facts), found.ready)
        except (NothingFitsError, IndexUnavailableError):
            continue
        if all(again.version(package) == found.version(package) for package in ("torch", TRITON)):
            return replace(again, assembler=assembler)
    return found


def with_build_tools(found: Resolved, asked: Sequence[str], resolve: Resolve) -> Resolved:
    """The same with what compiling its sources takes, the nvcc included where packages have it.

    So it stands in the lock with the rest, and what is compiled with it is the same everywhere.
    """
    compiled = compiled_in(found, asked)
    if not compiled:
        return found
    toolchain, _ = toolchain_of(found, compiled)
    kept = ("torch", TRITON, *(one.name for one in compiled))
    # An index of one's own may have no nvcc.
    for needs in (build_needs(toolchain), build_needs(replace(toolchain, nvcc_from=None))):
        try:
            again = resolve((*found.needs, *needs), found.family, found.ready)
        except (NothingFitsError, IndexUnavailableError):
            continue
        if all(again.version(package) == found.version(package) for package in kept):
            return replace(again, assembler=found.assembler)
    return found


def compiled_in(found: Resolved, asked: Sequence[str]) -> tuple[Compiled, ...]:
    """What compiles CUDA code against the torch of a solution, or needs none."""
    packages, catalogue = found.pinned.packages, found.family.catalogue
    compiled = (*compiled_packages(packages, catalogue), *compiled_when_used(packages, asked, catalogue))
    if "torch" not in found.solution.chosen:
        return tuple(one for one in compiled if one.project and not one.needs_torch)
    # Of a torch that was asked for by address nothing is known.
    return compiled if found.torch else ()


def toolchain_of(found: Resolved, compiled: Sequence[Compiled]) -> tuple[Toolchain, tuple[Caution, ...]]:
    """The toolchain that compiles sources for the machines of a plan, and what to know about it."""
    torch, family = found.torch, found.family
    known = [driver.cuda if (driver := lifted(m, family.facts.forward)) else None for m in family.machines]
    versions = [cuda for cuda in known if cuda]
    driver_cuda = min(versions, key=minor) if versions and len(versions) == len(known) else None
    made = toolchain_for(compiled, torch.build if torch else None, family.machines, driver_cuda, family.catalogue)
    return on_windows(*made) if is_windows(family.machines) else made

"""A ptxas out of a package, for a Triton whose own ones do not serve the cards (rule 6)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec
from msgspec.structs import replace
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from envsolve.catalogue.model import CompilerPackages, Ptxas, Toolkit, TritonRelease
from envsolve.compat.facts import Facts
from envsolve.compat.forward import lifted
from envsolve.compat.toolchain import ptxas_packages
from envsolve.compat.triton import chosen_ptxas, triton_runs
from envsolve.compat.verdict import Reason
from envsolve.compat.versions import minor
from envsolve.machine.cc import ComputeCapability
from envsolve.machine.model import Driver, Machine
from envsolve.plan import SITE_PACKAGES, Caution
from envsolve.resolve.requirements import Need


class Assembler(msgspec.Struct, frozen=True):
    """A ptxas out of a package in place of those of a Triton release that do not serve the cards.

    Attributes:
        release: The release as it is with this ptxas.
        needs: The package that holds it.
        environment: The variables that name it, ``TRITON_PTXAS_PATH``.
        because: Why the release's own does not do.
    """

    release: TritonRelease
    needs: tuple[Need, ...]
    environment: Mapping[str, str]
    because: str

    @property
    def package(self) -> str:
        """Name of the package that holds it."""
        return canonicalize_name(self.needs[0].requirement.name)

    def among(self, facts: Facts) -> Facts:
        """The facts as they are where this ptxas is in use."""
        return replace(facts, tritons={**facts.tritons, self.release.version: self.release})

    def caution(self, version: str | None) -> Caution:
        """What a user should know of it.

        Args:
            version: The package's version in the plan.
        """
        names = " and ".join(self.environment)
        text = f"{self.because}; the plan has {self.package} {version}, whose ptxas takes its place through {names}"
        remedy = f"envsolve install sets {names} for PREFIX/bin/python, unless you set it; elsewhere set it yourself"
        return Caution("triton-assembler", text, remedy)


class _Card(msgspec.Struct, frozen=True):
    """A compute capability among the machines, with the driver beside it."""

    cc: ComputeCapability
    driver: Driver | None
    os: str | None

    def runs(self, release: TritonRelease, facts: Facts) -> Reason:
        """Rule 6."""
        return triton_runs(release, self.cc, self.driver, self.os, facts.toolkits, facts.floors)


def assemblers(
    triton: str, machines: Sequence[Machine], facts: Facts, compilers: Sequence[CompilerPackages]
) -> Iterator[Assembler]:
    """The ptxas programs of packages with which a Triton serves every card that its own leave out.

    Those that ask the least of drivers come first, and of one CUDA family the newest. Nothing where the Triton's own
    serve all cards, where what it can be given was not measured, or where a card is too old for it whatever the ptxas.

    Args:
        triton: Version of Triton in the plan.
        machines: As they are judged.
        facts: The tables of the rules.
        compilers: What the package managers have.
    """
    release = facts.tritons.get(triton)
    if release is None:
        return
    cards = tuple(dict.fromkeys(_cards(machines, facts)))
    failures = {card: reason for card in cards if (reason := card.runs(release, facts)).ok is False}
    if not failures:
        return
    replaced = {p.override for card in failures if (p := chosen_ptxas(release, card.cc))}
    for toolkit in sorted(facts.toolkits, key=lambda t: (minor(t.version)[0], -minor(t.version)[1])):
        packages = ptxas_packages(toolkit.version, compilers)
        if packages is None or not _takes(release, toolkit.version):
            continue
        given = _given(release, replaced, toolkit, packages)
        if all(_serves(given, replaced, card, facts) for card in cards):
            origin = f"Triton {triton}, whose own ptxas does not serve every GPU"
            filled = (Requirement(line.format(cuda=toolkit.version)) for line in packages.ptxas_packages)
            yield Assembler(
                given,
                tuple(Need(requirement, origin) for requirement in filled),
                dict.fromkeys(sorted(replaced), f"{SITE_PACKAGES}/{packages.ptxas}"),
                next(iter(failures.values())).text,
            )


def _cards(machines: Sequence[Machine], facts: Facts) -> Iterator[_Card]:
    for machine in machines:
        os = machine.platform.os if machine.platform else None
        for gpu in machine.gpus or ():
            if gpu.cc is not None:
                yield _Card(gpu.cc, lifted(machine, facts.forward), os)


def _takes(release: TritonRelease, cuda: str) -> bool:
    """Whether a Triton writes the PTX that the ptxas of a CUDA version reads."""
    if release.ptxas_first is None or minor(cuda) < minor(release.ptxas_first):
        return False
    return release.ptxas_last is None or minor(cuda) <= minor(release.ptxas_last)


def _given(release: TritonRelease, replaced: set[str], toolkit: Toolkit, packages: CompilerPackages) -> TritonRelease:
    name = Requirement(packages.ptxas_packages[0].format(cuda=toolkit.version)).name

    def instead(own: Ptxas) -> Ptxas:
        if own.override not in replaced:
            return own
        file = f"the ptxas of {name}"
        return replace(own, file=file, cuda=toolkit.version, ptx_isa=toolkit.ptx_isa, archs=toolkit.archs)

    return replace(release, ptxas=tuple(map(instead, release.ptxas)))


def _serves(release: TritonRelease, replaced: set[str], card: _Card, facts: Facts) -> bool:
    """Whether a card is served, or at least not known not to be, by what the release is given."""
    ptxas = chosen_ptxas(release, card.cc)
    if ptxas is not None and ptxas.override in replaced and str(card.cc) not in release.targets:
        return False
    return card.runs(release, facts).ok is not False

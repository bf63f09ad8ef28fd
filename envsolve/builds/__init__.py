"""Every build of a package and its verdict: the ``envsolve.builds/1`` value."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from packaging.utils import canonicalize_name
from packaging.version import Version

from envsolve.catalogue.load import Catalogue
from envsolve.compat.facts import Facts
from envsolve.compat.judge import Judge
from envsolve.compat.settle import as_judged
from envsolve.compat.verdict import Verdict
from envsolve.errors import UsageError
from envsolve.machine.model import Gpu, Machine
from envsolve.resolve.family import Family, Option


@dataclass(frozen=True, slots=True)
class ReasonLine:
    """One rule's word, with the title of its source."""

    rule: str
    ok: bool | None
    text: str
    evidence: str | None
    source: str | None


@dataclass(frozen=True, slots=True)
class BuildLine:
    """One build on one GPU.

    Attributes:
        gpu: The GPU that the verdict is for; None where the machine has none or they are not known.
        codes: GPU code that it carries.
        triton: Whether kernels of its own Triton run there.
        local: Local version in its file name, ``+cu12torch2.8cxx11abiTRUE``.
        torch: Specifier on the torch that it was compiled for, where it is for certain ones.
        cxx11_abi: Whether it uses libstdc++'s C++11 ABI, where known; torch must use the same.
    """

    package: str
    version: str
    variant: str
    platform: str
    pythons: tuple[str, ...]
    index: str
    gpu: str | None
    verdict: Literal["native", "family", "ptx", "none", "unknown"]
    codes: tuple[str, ...]
    driver_required: str | None
    triton: bool | None
    reasons: tuple[ReasonLine, ...]
    local: str = ""
    torch: str | None = None
    cxx11_abi: bool | None = None


@dataclass(frozen=True, slots=True)
class BuildList:
    """The answer of ``envsolve builds``, newest first."""

    schema: Literal["envsolve.builds/1"]
    builds: tuple[BuildLine, ...]


def list_builds(package: str, machines: Sequence[Machine], python: str | None, catalogue: Catalogue) -> BuildList:
    """Judge every build of a package that the catalogue describes.

    Raises:
        UsageError: The catalogue describes no builds of that package.
    """
    name = canonicalize_name(package)
    if name not in catalogue.packages():
        known = ", ".join(catalogue.packages())
        raise UsageError(f"the catalogue describes no builds of {package}", hint=f"it describes {known}")
    facts = Facts.of(catalogue)
    judged = [as_judged(machine, None, catalogue.drivers) for machine in machines]
    family = Family(catalogue, facts, tuple(judged), python)
    lines: dict[BuildLine, None] = {}
    for options in (family.judged(name), family.judged_outside(name)):
        found = [line for option in options for line in _lines(option, judged, python, facts, catalogue)]
        lines |= dict.fromkeys(sorted(found, key=_newness, reverse=True))
    return BuildList("envsolve.builds/1", tuple(lines))


def _newness(line: BuildLine) -> tuple[Version, Version]:
    """Of builds of one version, those for the newest torch come first: as text, 2.9 would stand before 2.10."""
    torch = re.search(r"\d+(\.\d+)*", line.torch or "")
    return Version(line.version), Version(torch[0] if torch else "0")


def _lines(
    option: Option, machines: Sequence[Machine], python: str | None, facts: Facts, catalogue: Catalogue
) -> list[BuildLine]:
    found = []
    for build, machine in zip(option.builds, machines, strict=True):
        gpus: Sequence[Gpu | None] = machine.gpus or (None,)
        verdicts = Judge(machine, facts).verdicts(build, python)
        for gpu, verdict in zip(gpus if len(verdicts) == len(gpus) else (None,), verdicts, strict=True):
            found.append(
                BuildLine(
                    build.package,
                    build.version,
                    build.variant,
                    build.platform,
                    build.pythons,
                    build.index,
                    gpu.label if gpu else None,
                    verdict.level.value,
                    build.code or (),
                    verdict.driver_required,
                    verdict.triton,
                    _reasons(verdict, catalogue),
                    build.local,
                    build.torch,
                    build.cxx11_abi,
                )
            )
    return found


def _reasons(verdict: Verdict, catalogue: Catalogue) -> tuple[ReasonLine, ...]:
    lines = []
    for reason in verdict.reasons:
        source = catalogue.source(reason.source)
        lines.append(ReasonLine(reason.rule, reason.ok, reason.text, reason.evidence, source.title if source else None))
    return tuple(lines)

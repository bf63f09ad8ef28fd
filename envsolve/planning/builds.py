"""Every build of a package and its verdict: the ``envsolve.builds/1`` value."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from msgspec.structs import replace
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from envsolve.errors import UsageError
from envsolve.facts.builds import Build
from envsolve.facts.catalogue import Catalogue
from envsolve.facts.choices import check_python
from envsolve.machine.known import machines_or_host
from envsolve.machine.model import Gpu, Machine
from envsolve.packages.requirements import Asked, Need
from envsolve.planning.request import check_python_text
from envsolve.rules.judge import as_judged, fast_paths_of, judge_of, python_of, with_assumed_driver, worst
from envsolve.rules.nvidia import Facts
from envsolve.rules.verdict import FastPath, Verdict
from envsolve.solve.family import Family, Option
from envsolve.solve.limits import Limits, best_of


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
        gpu: The GPU that the verdict is for; None if the machine has none or they are not known.
        codes: GPU code that it carries.
        triton: Whether kernels of its own Triton run there.
        local: Local version in its file name, ``+cu12torch2.8cxx11abiTRUE``.
        torch: Specifier on the torch that it was compiled for, if it is for certain ones.
        cxx11_abi: Whether it uses libstdc++'s C++11 ABI, if known; torch must use the same.
        fast_paths: What its own kernels offer, if that was measured.
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
    fast_paths: tuple[FastPath, ...] = ()


@dataclass(frozen=True, slots=True)
class Recommended:
    """The build that ``envsolve plan`` chooses if nothing else is requested."""

    package: str
    version: str
    variant: str
    index: str


@dataclass(frozen=True, slots=True)
class BuildList:
    """The answer of ``envsolve builds``, newest first."""

    schema: Literal["envsolve.builds/1"]
    builds: tuple[BuildLine, ...]
    recommended: Recommended | None = None


def builds(package: str, machines: Sequence[Machine] | None = None, *, python: str | None = None) -> BuildList:
    """Judge every published build of a torch-family package on each GPU of the machines.

    Args:
        package: Its name, and versions if wanted: ``torch``, ``torch>=2.9``.
        machines: This host if None.
        python: ``3.12``; the machine's own if None.

    Raises:
        UsageError: The catalogue has no builds of the package, or no builds at all for the Python.
    """
    here, catalogue = machines_or_host(machines), Catalogue()
    named = check_python_text(python)
    return list_builds(package, here, check_python(named, catalogue) if named else python_of(here), catalogue)


def judge(build: Build, machine: Machine | None = None, *, python: str | None = None) -> Verdict:
    """Judge one build on a machine; if it has several GPUs, the verdict is that of the GPU that supports it the least.

    Args:
        build: A record of the catalogue, such as ``facts("torch", "2.9.1", "cu126").builds[0]``.
        machine: This host if None.
        python: ``3.12``; the machine's own if None.
    """
    catalogue = Catalogue()
    (here,) = machines_or_host([machine] if machine else None)
    named = check_python_text(python)
    checked = check_python(named, catalogue) if named else python_of([here])
    judged = as_judged(here, None, catalogue.drivers)
    return worst(judge_of(judged, Facts.of(catalogue)).verdicts(build, checked))


def list_builds(package: str, machines: Sequence[Machine], python: str | None, catalogue: Catalogue) -> BuildList:
    """Judge every build of a package that the catalogue describes.

    Raises:
        UsageError: The catalogue describes no builds of that package.
    """
    name, admitted = _named(package)
    if name not in catalogue.packages():
        from difflib import get_close_matches  # costs time, and is seldom needed

        near = get_close_matches(name, catalogue.packages(), n=1)
        guess = f"did you mean {near[0]}? " if near else ""
        known = ", ".join(catalogue.packages())
        raise UsageError(
            f"the catalogue has no builds of {package}",
            hint=f"{guess}to judge a wheel of your own: envsolve index measure "
            f"FILE.whl; the catalogue describes {known}",
        )
    facts = Facts.of(catalogue)
    judged = [as_judged(machine, None, catalogue.drivers) for machine in machines]
    family = Family(catalogue, facts, tuple(judged), python)
    lines: dict[BuildLine, None] = {}
    for listed in (family.judged(name), family.judged_outside(name)):
        options = [option for option in listed if option.build.version in admitted]
        found = [line for option in options for line in _lines(option, judged, python, facts, catalogue)]
        lines |= dict.fromkeys(sorted(found, key=_newness, reverse=True))
    if not lines:
        raise UsageError(f"the catalogue has no build of {package}", hint=f"list all: envsolve builds {name}")
    return BuildList("envsolve.builds/1", tuple(lines), _recommended(name, admitted, family))


def _named(text: str) -> tuple[str, SpecifierSet]:
    """The name and the releases of ``torch``, ``torch>=2.9`` or ``torch==2.9.*``."""
    try:
        requirement = Requirement(text)
    except InvalidRequirement as error:
        raise UsageError(f"{text!r} is not a package: {error}", hint="write torch, or 'torch>=2.9'") from None
    if requirement.extras or requirement.marker or requirement.url:
        raise UsageError(f"{text!r} has more than a name and versions", hint="write torch, or 'torch>=2.9'")
    return canonicalize_name(requirement.name), requirement.specifier


def _recommended(package: str, admitted: SpecifierSet, family: Family) -> Recommended | None:
    """The best build of a package with the best torch for it, for the Python that a plan would choose."""
    if family.python is None:
        # Planning imports the resolver and the package indexes, which a listing for a known Python does not need.
        from envsolve.solve.pins import choose_python

        asked = Asked((Need(Requirement(f"{package}{admitted}"), "builds"),))
        family = replace(family, python=choose_python(asked, family.machines, family))
    facts = family.catalogue
    supposed = tuple(with_assumed_driver(one, facts.architectures, facts.drivers) for one in family.machines)
    limits = Limits({package: admitted}, None)
    best = best_of(replace(family, machines=supposed), limits) or best_of(family, limits) or ()
    return next((Recommended(package, *o.identity) for o in best if o.build.package == package), None)


def _newness(line: BuildLine) -> tuple[Version, Version]:
    """Sort key: of builds of one version, those for the newest torch first (as text, 2.9 would precede 2.10)."""
    torch = re.search(r"\d+(\.\d+)*", line.torch or "")
    return Version(line.version), Version(torch[0] if torch else "0")


def _lines(
    option: Option, machines: Sequence[Machine], python: str | None, facts: Facts, catalogue: Catalogue
) -> list[BuildLine]:
    found = []
    for build, machine in zip(option.builds, machines, strict=True):
        gpus: Sequence[Gpu | None] = machine.gpus or (None,)
        verdicts = judge_of(machine, facts).verdicts(build, python)
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
                    tuple(fast_paths_of(build, gpu, facts, catalogue)) if gpu and verdict.level.usable else (),
                )
            )
    return found


def _reasons(verdict: Verdict, catalogue: Catalogue) -> tuple[ReasonLine, ...]:
    lines = []
    for reason in verdict.reasons:
        source = catalogue.source_title(reason.source)
        lines.append(ReasonLine(reason.rule, reason.ok, reason.text, reason.evidence, source))
    return tuple(lines)


# The builds of a package in words, for a person. Pure.


# Lines; of some packages hundreds of builds run on one GPU.
_SCREEN = 40


def describe(found: BuildList, *, every: bool = False, reasons: bool = False) -> str:
    """The list as text: a line per build and GPU, then why verdicts are unknown, if some are.

    Args:
        found: The list.
        every: All builds, those that do not run included, each with what forbids it; otherwise the newest that run.
        reasons: All reasons of every line.
    """
    running = [build for build in found.builds if every or build.verdict != "none"]
    if not running:
        return _nothing(found.builds)
    shown = running if every else _newest(running)
    # A machine whose platform is not known has one build for several.
    told = Counter((_version(build), build.variant, build.index, build.gpu) for build in shown)
    platforms = max(told.values()) > 1
    lines = [line for build in shown for line in _describe_lines(build, reasons, platforms)]
    if not reasons:
        lines += _unknowns(shown)
    if len(shown) < len(running):
        lines.append(_older(running[len(shown) :]))
    return "\n".join(lines)


def describe_fast_paths(found: BuildList) -> str:
    """The fast paths of the builds that run, by the code in their wheels; builds with the same ones share a section."""
    sections: dict[tuple[str | None, tuple[FastPath, ...]], list[str]] = {}
    for build in found.builds:
        if build.fast_paths:
            name = f"{_version(build)} {build.variant}"
            names = sections.setdefault((build.gpu, build.fast_paths), [])
            names += [] if name in names else [name]
    package = found.builds[0].package
    if not sections:
        return f"none of the builds of {package} whose fast paths are known runs on the machine"
    lines = []
    for (gpu, paths), names in sections.items():
        lines.append(f"{package} {', '.join(names)} on {gpu}")
        for one in paths:
            has = f"it has {' '.join(one.codes)}" if one.codes else "the build has none"
            lines.append(f"    {one.path:<26} " + (f"yes, {one.code}" if one.code else f"no: {has}"))
    lines.append(
        "These are the kernels in the wheel itself. Kernels of cuBLAS and cuDNN are not listed; envsolve verify "
        "--fast-paths runs them."
    )
    return "\n".join(lines)


def _newest(builds: Sequence[BuildLine]) -> Sequence[BuildLine]:
    """The builds of the newest versions, complete versions only, until a screen is full."""
    if len(builds) <= _SCREEN:
        return builds
    last = builds[_SCREEN - 1]
    same = (number for number, build in enumerate(builds) if number >= _SCREEN and build.version != last.version)
    return builds[: next(same, len(builds))]


def _older(builds: Sequence[BuildLine]) -> str:
    versions = {build.version for build in builds}
    return f"and {len(builds)} more of {len(versions)} version{'s' * (len(versions) != 1)}: --all lists every build"


def _describe_lines(build: BuildLine, reasons: bool, platforms: bool) -> Iterator[str]:
    triton = "  without Triton" if build.triton is False else ""
    gpu = f"  on {build.gpu}" if build.gpu else ""
    place = f"{build.index}, {build.platform}" if platforms else build.index
    yield f"{build.package} {_version(build):<8} {build.variant:<6} {build.verdict:<8}{gpu}{triton}  ({place})"
    for reason in build.reasons:
        if reasons or (build.verdict == "none" and reason.ok is False):
            mark = {True: "+", False: "-", None: "?"}[reason.ok]
            yield f"    {mark} {reason.text}" + (f" [{reason.evidence}]" if reason.evidence else "")


def _version(build: BuildLine) -> str:
    """The version, with a local part that says more than the variant does."""
    return build.version if build.local == f"+{build.variant}" else build.version + build.local


def _unknowns(builds: Sequence[BuildLine]) -> list[str]:
    """The unknown facts that decide: of each rule the first text, since the others differ only in their versions."""
    words: dict[str, dict[str, None]] = {}
    for build in builds:
        if build.verdict != "unknown":
            continue
        for reason in build.reasons:
            # Whether its Triton runs decides nothing about another package.
            if reason.ok is None and (build.package == "triton" or not reason.rule.startswith("triton")):
                words.setdefault(reason.rule, {})[reason.text] = None
    return [
        f"unknown: {next(iter(texts))}"
        + (f" (and {len(texts) - 1} similar reasons; --verbose shows all)" if len(texts) > 1 else "")
        for texts in words.values()
    ]


def _nothing(builds: Sequence[BuildLine]) -> str:
    """Why no build is listed: the machine cannot exist, or none runs on it."""
    life = [reason.text for build in builds for reason in build.reasons if reason.rule == "life" and reason.ok is False]
    if life:
        return "\n".join(f"this machine cannot exist: {text}" for text in dict.fromkeys(life))
    name = builds[0].package
    return (
        f"no published build of {name} runs on the machine; --all shows why, and `envsolve plan {name}` shows what "
        "would help"
    )

"""Which torch runs on given machines instead of the installed one: one ranking for every command.

``plan`` tries torch builds in the order of :meth:`envsolve.solve.family.Family.options`, and conda builds in that of
:func:`envsolve.rules.conda.tiers`. Everything that proposes a torch takes it from here, in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec
from msgspec.structs import replace
from packaging.markers import Marker
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from envsolve._default_index import DEFAULT_INDEX
from envsolve.facts.builds import ANY, Build, CondaBuild, IndexPlace
from envsolve.facts.catalogue import Catalogue
from envsolve.machine.model import Gpu, Machine, Platform
from envsolve.packages.model import read_version
from envsolve.packages.requirements import Source, variant_of
from envsolve.rules.judge import judge_of, worst
from envsolve.rules.nvidia import Facts
from envsolve.rules.nvidia.code import best_code
from envsolve.rules.platform import Environment, environments_of, python_tag, same_system
from envsolve.rules.verdict import Level, Verdict
from envsolve.solve.family import Family, Option
from envsolve.solve.outcome import PlanWarning
from envsolve.solve.preferences import DEFAULT, too_late

#: Companions that most environments with torch have, and that must move with it.
_CLOSE = ("torchvision", "torchaudio", "torchcodec")


class Installed(msgspec.Struct, frozen=True):
    """Facts about an environment whose torch is to be replaced.

    Attributes:
        versions: Public versions of its packages, by normalized name.
        torch: Public version of its torch; None if unknown.
        variant: The variant of its torch, ``cu126``; None if unknown.
        also: Companions that it has in releases that are not known.
    """

    versions: Mapping[str, str] = {}
    torch: str | None = None
    variant: str | None = None
    also: tuple[str, ...] = ()

    def has(self, build: Build) -> bool:
        """Whether a build is the installed torch."""
        return self.torch is not None and (self.torch, self.variant) == (build.version, build.variant)


# Wheels.


def replacements(
    family: Family, installed: Installed, variants: Sequence[str] | None = None
) -> tuple[tuple[Option, ...], ...]:
    """Torch builds that run on the machines, each followed by the companions that are compatible with it.

    Args:
        family: The torch family on the machines and the environment's Python.
        installed: The environment. The first answer keeps its torch version in another variant, if possible.
        variants: Only these variants.
    """
    wanted: list[Mapping[str, SpecifierSet]] = [{}]
    if installed.torch and read_version(installed.torch):  # a report may hold half a version
        wanted.insert(0, {"torch": SpecifierSet(f"=={installed.torch}")})
    chosen = (pairing for asked in wanted if (pairing := _first(family, asked, installed, variants)))
    return tuple({tuple(o.identity[:2] for o in pairing): pairing for pairing in chosen}.values())


def _first(
    family: Family, asked: Mapping[str, SpecifierSet], installed: Installed, variants: Sequence[str] | None
) -> tuple[Option, ...] | None:
    """The best pairing. Companions keep their versions if possible; otherwise the close ones change too."""
    versions = installed.versions
    bound = [name for name in versions if family.follows_torch(name)]
    exact = {name: SpecifierSet(f"=={versions[name]}") for name in bound}
    loose = {name: SpecifierSet() for name in bound}
    close = {name: SpecifierSet() for name in _CLOSE if name in versions}
    also = {name: SpecifierSet() for name in installed.also if name not in versions}
    ways = [{**also, **ways} for ways in (exact, loose, close)] if also else []
    for companions in (*ways, exact, loose, close):
        for found in family.pairings({**asked, **companions}):
            build = found[0].build
            if may_run(found[0]) and not installed.has(build) and (variants is None or build.variant in variants):
                return found
    return None


def may_run(option: Option) -> bool:
    """Whether an option is worth proposing: it runs on the GPUs, or only a fact about the machine is missing."""
    return option.build.variant != "cpu" and option.verdict.level is not Level.NONE


def preference(family: Family, package: str) -> Callable[[str, str], int]:
    """The place of a build, by its public version and variant, in the order in which ``plan`` tries them, from 0.

    Builds that the machines rule out share the last place.
    """
    places: dict[tuple[str, str], int] = {}
    for option in family.options(package):
        places.setdefault(option.identity[:2], len(places))
    # The only build of a companion is an option beside every variant of torch.
    return lambda version, variant: places.get((version, variant), places.get((version, ANY), len(places)))


def with_another_python(family: Family, pythons: Sequence[str]) -> Iterator[tuple[str, Option, Family]]:
    """The Pythons for which a torch for these machines is published, each with the best torch."""
    for python in pythons:
        there = replace(family, python=python)
        best = next((option for option in there.options("torch") if may_run(option)), None)
        if best is not None:
            yield python, best, there


def on_named_index(option: Option, family: Family) -> Option:
    """The same version and variant on the index whose file names contain the variant, if there is one."""
    build = option.build
    for other in family.options(build.package):
        same = (other.build.version, other.build.variant) == (build.version, build.variant)
        if same and other.build.local and other.verdict.level is option.verdict.level:
            return other
    return option


def install_command(options: Sequence[Option], indexes: Mapping[str, IndexPlace], installer: str = "pip") -> str:
    """The one-line command that installs options.

    Versions have their local part, since an installer uses ``2.8.0+cu118`` as a match for ``==2.8.0``. One command has
    all of them: a second one that reinstalls a package with what it requires would fetch torch from the default index.
    """
    names = " ".join(f"{o.build.package}=={o.build.version}{o.build.local}" for o in options)
    variant = next((o.build.variant for o in options if o.build.variant != ANY), "cpu")
    named = dict.fromkeys(option.build.index for option in options)
    urls = [indexes[name].url.format(variant=variant) for name in named if name != DEFAULT and name in indexes]
    force = " --force-reinstall" if DEFAULT in named else ""
    where = "".join(f" --{'extra-' if number else ''}index-url {url}" for number, url in enumerate(urls))
    if urls and DEFAULT in named and not installer.startswith("uv"):
        where += f" --extra-index-url {DEFAULT_INDEX.rstrip('/')}"
    return f"{installer} install{force} {names}{where}"


def ready_wheel(package: str, torch: Build, family: Family) -> tuple[Build, str] | None:
    """The best wheel of an extension that is on no index, for a torch, with the command that installs it.

    Args:
        package: Name of the extension.
        torch: The torch that it must be compatible with.
        family: What is published, and the machines, with the Python.
    """
    for build, kind, url in _off_index(package, torch, family):
        wanted = f"{package}=={build.version} -f {url}" if kind == "links" else url
        return build, f"pip install --force-reinstall --no-deps {wanted}"
    return None


def page_with_wheels(package: str, torch: Build, family: Family) -> tuple[Build, str] | None:
    """The best wheel of an extension for a torch that a page of links names, with the URL of the page."""
    found = ((build, url) for build, kind, url in _off_index(package, torch, family) if kind == "links")
    return next(found, None)


def _off_index(package: str, torch: Build, family: Family) -> Iterator[tuple[Build, str, str]]:
    """The wheels of an extension for a torch, best first: each with the kind of its place, and the URL there."""
    # Its modules reach those of HTTP, which take 0.2 s to import.
    from envsolve.solve.candidate_selector import ready
    from envsolve.solve.files import place_words

    places = family.catalogue.indexes
    for option in ready(package, torch, family) if family.python else ():
        build = option.build
        tag, place = python_tag(build.pythons, family.python or ""), places.get(build.index)
        if tag is None or place is None:
            continue
        yield build, place.kind, place.url.format_map(place_words(build, place, build.filename(tag)))


def wheel_torches(package: str, family: Family) -> tuple[str, ...]:
    """The torch minors for which an extension has ready wheels that fit the machines, oldest first."""
    from envsolve.solve.candidate_selector import torches_served

    return torches_served(package, family)


def in_words(options: Sequence[Option], gpus: Sequence[Gpu], facts: Facts, *, keeps_torch: bool = False) -> str:
    """A sentence that proposes options and says which code the GPUs run."""
    torch, *companions = options
    build = torch.build
    others = ", ".join(
        f"{o.build.package} {o.build.version}" + ("" if o.build.variant in (ANY, "cpu") else f" [{o.build.variant}]")
        for o in companions
    )
    if companions and keeps_torch:
        return f"Keep torch {build.version} [{build.variant}], and install {others}, which is built for it."
    required = torch.verdict.driver_required
    needs = f"requires driver {required} or newer" if required else ""
    why = "; ".join(filter(None, (_code_of(build, gpus, facts), needs)))
    text = f"Install torch {build.version} [{build.variant}]" + (f", {others}" if others else "")
    return text + (f": {why}." if why else ".")


def _code_of(build: Build, gpus: Sequence[Gpu], facts: Facts) -> str:
    """Which code of a build each GPU runs."""
    if not gpus:
        return "the report does not say enough to tell whether it supports the GPU"
    codes: dict[str, list[str]] = {}
    for gpu in gpus:
        _, arch = best_code(build.code or (), gpu.cc, facts.architectures) if gpu.cc else (None, None)
        if arch:
            codes.setdefault(arch.name, []).append(gpu.name or f"cc {gpu.compute_capability}")
    return ", ".join(f"{code} runs on {' and '.join(names)}" for code, names in codes.items())


# Indexes of variants that projects name.


def about_sources(sources: Sequence[Source], taken: str | None, family: Family) -> Iterator[PlanWarning]:
    """Indexes of a variant that a project names, if the plan takes another variant: why, and the line to change.

    Args:
        sources: What the project names.
        taken: The variant of the plan; None if it has none.
        family: On the machines.
    """
    environments = environments_of(family.machines, family.python or family.catalogue.pythons[0])
    here = [source for source in sources if any(one.wants(source.marker) for one in environments)]
    for source in here if taken else ():
        named = source.variant
        if named == taken or not family.owns(source.package):
            continue
        fits = any(option.build.variant == named for option in family.options("torch"))
        why = "" if fits else _why_not(named, family)
        says = f", whose builds do not run on the machines: {why}" if why else ""
        text = f"{source.origin}: the project takes {source.package} from {source.url}{says}; the plan uses {taken}"
        change = f'change the line to: url = "{source.url.rstrip("/").removesuffix(named)}{taken}"'
        running = [(option, url) for option, url in source.others if variant_of(url) in family.variants]
        if running:
            option, url = min(running, key=lambda other: family.variants.index(variant_of(other[1])))
            change = f"choose {option} instead, whose {variant_of(url)} runs there"
        yield PlanWarning("source-does-not-run" if why else "source-differs", text, change)


def _why_not(variant: str, family: Family) -> str:
    """Why the newest torch of a variant does not run on the machines; empty if it has none for their systems."""
    reasons: dict[str, None] = {}
    for machine in family.machines:
        judge = judge_of(machine, family.facts)
        here = [
            build
            for build in family.catalogue.builds("torch")
            if build.variant == variant and same_system(build.made_for, machine.platform or Platform())
        ]
        if here:
            newest = max(here, key=lambda build: Version(build.version))
            reasons |= dict.fromkeys(r.text for r in worst(judge.verdicts(newest, family.python)).failures)
    return "; ".join(reasons)


def about_environments(
    declared: Sequence[tuple[Marker, str]], machines: Sequence[Environment]
) -> Iterator[PlanWarning]:
    """Machines for which the project's tool does not lock, whatever the plan has for them."""
    for environment in machines if declared else ():
        if not any(environment.wants(marker) for marker, _ in declared):
            text = (
                f"{declared[0][1]}: no marker matches {environment.system}, so the project's tool does not lock for "
                "this system"
            )
            os, arch = environment.platform.os, environment.platform.arch
            system = {"windows": "win32", "macos": "darwin"}.get(os or "", os)
            hint = f"add \"sys_platform == '{system}' and platform_machine == '{arch}'\""
            yield PlanWarning("environment-not-locked", text, hint)


# Packages of conda-forge.


class CondaOption(msgspec.Struct, frozen=True):
    """A build of conda-forge's pytorch with the worst verdict of all machines and GPUs."""

    record: CondaBuild
    build: Build
    verdict: Verdict

    @property
    def command(self) -> str:
        """The requirement that installs it, with the build: without a driver in sight conda takes the CPU build."""
        record = self.record
        pinned = f'"pytorch={record.version}={record.build}" "cuda-version={record.cuda}"'
        # Builds for servers and for Jetson differ only in this package; without it the solver takes either.
        pinned += f' "arm-variant=*={record.arm}"' if record.arm else ""
        return f"conda install -c {record.channel} {pinned}"


def conda_replacements(
    machines: Sequence[Machine], python: str | None, catalogue: Catalogue, exclude_newer: str | None = None
) -> tuple[CondaOption, ...]:
    """The CUDA builds of conda-forge's pytorch that run on all of the machines, best first: as conda is solved.

    Args:
        machines: As they are judged.
        python: Only builds for it; None for any.
        catalogue: The facts.
        exclude_newer: First instant that is too late.
    """
    from envsolve.rules.conda import CondaJudge, as_build, subdir_of, tiers

    try:
        subdirs = {subdir_of(machine.platform) for machine in machines}
    except KeyError:
        return ()
    judge = CondaJudge(machines, Facts.of(catalogue), ())
    options = [
        CondaOption(record, build, judge.verdict(build))
        for record in catalogue.conda
        if (record.channel, record.package) == ("conda-forge", "pytorch")
        and record.cuda
        and {record.subdir} == subdirs
        and (python is None or not record.pythons or python in record.pythons)
        and not too_late(record.released, exclude_newer)
        for build in (as_build(record),)
    ]
    ranked = (option for tier in tiers(options) for option in sorted(tier, key=_newness, reverse=True))
    return tuple({id(option): option for option in ranked}.values())


def _newness(option: CondaOption) -> tuple[Version, Version]:
    return Version(option.build.version), Version(option.build.cuda or "0")

"""The torch family: its published builds as options of the solve, judged and in the order of preference."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property

import msgspec
from msgspec.structs import replace
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from envsolve.facts.builds import ANY, Build
from envsolve.facts.catalogue import Catalogue, pythons
from envsolve.facts.evidence import GpuSupport
from envsolve.facts.files import GPU_SUPPORT
from envsolve.machine.model import Machine, Platform
from envsolve.rules.judge import Judge, judge_of, worst
from envsolve.rules.nvidia import Facts
from envsolve.rules.nvidia.code import TRITON, agrees, cuda_suffix, serves_cuda
from envsolve.rules.platform import admits_python, same_system
from envsolve.rules.verdict import Level, Verdict
from envsolve.solve.preferences import (
    NamedVariants,
    Preferences,
    in_order,
    published_version,
    too_late,
    variants_in_front,
)
from envsolve.values import CudaVersion

_ALL = ">0"  # a specifier that takes every release
# Rules that a companion's own GPU code answers to; the others are those of the torch beside it.
_CODE_RULES = ("sass", "driver-ptx")


class Option(msgspec.Struct, frozen=True, dict=True):
    """One (version, variant) of a family package, as published on one index, for all machines of the plan.

    Attributes:
        builds: The build for each machine, in their order.
        verdict: The worst of all machines and GPUs.
    """

    builds: tuple[Build, ...]
    verdict: Verdict

    @property
    def identity(self) -> tuple[str, str, str]:
        """Its identity among the package's options: version, variant, index."""
        return self.build.version, self.build.variant, self.build.index

    @property
    def build(self) -> Build:
        """The build for the first machine, for which the rest of the environment is resolved."""
        return self.builds[0]

    @cached_property
    def version(self) -> Version:
        """The full version as the file name has it."""
        return published_version(self.build.version + self.build.local)

    @property
    def label(self) -> str:
        """``torch 2.11.0 [cu128]``."""
        return f"{self.build.package} {self.build.version} [{self.build.variant}]"

    def matches(self, specifier: SpecifierSet) -> bool:
        """Whether a specifier takes this option; a default-index build also answers to ``==2.9.1+cu128``."""
        if specifier.contains(self.version, prereleases=True):
            return True
        named = self._named
        return named is not None and specifier.contains(named, prereleases=True)

    @cached_property
    def _named(self) -> Version | None:
        """The version with the variant that its file name leaves out."""
        build = self.build
        return None if build.variant == ANY or build.local else published_version(f"{build.version}+{build.variant}")


class Family(msgspec.Struct, frozen=True, eq=False, dict=True):
    """The options of every torch-family package on given machines and one Python.

    Attributes:
        python: ``3.12``; None judges without regard to Python.
        exclude_newer: First instant that is too late (:func:`parse_exclude_newer`).
        gone: File names that the catalogue lists and their index no longer has.
        preferences: Versions to choose if the request and the machines allow them.
        named: Variants whose indexes the request names.
        requires_python: What the projects of the request require, ``>=3.12``.
        decisive: Requested packages whose GPU code must run: those of a request that does not lead to torch.
    """

    catalogue: Catalogue
    facts: Facts
    machines: tuple[Machine, ...]
    python: str | None
    exclude_newer: str | None = None
    gone: frozenset[str] = frozenset()
    preferences: Preferences = {}
    named: NamedVariants = NamedVariants()
    requires_python: str | None = None
    decisive: frozenset[str] = frozenset()
    _judge_of: dict[tuple[int, int], tuple[Machine, Judge]] = {}

    # Of this very family: a changed copy begins with none of it.
    @cached_property
    def _judged(self) -> dict[str, tuple[Option, ...]]:
        return {}

    @cached_property
    def _ordered(self) -> dict[str, tuple[Option, ...]]:
        return {}

    @cached_property
    def pythons(self) -> tuple[str, ...]:
        """The Pythons with builds that the projects' ``requires-python`` allows, oldest first."""
        return tuple(python for python in pythons(self.catalogue) if admits_python(self.requires_python, python))

    def without(self, filename: str) -> Family:
        """The same family without a build that no longer exists."""
        return replace(self, gone=self.gone | {filename})

    def owns(self, package: str) -> bool:
        """Whether a package's builds come only from the catalogue, and not from an index that lists the same name."""
        return package in self.catalogue.family and bool(self.catalogue.builds(package))

    def undeclared(self, package: str, version: Version) -> tuple[str, ...]:
        """Requirements that a release is known to have although its metadata does not declare them."""
        release = self.facts.tritons.get(version.public) if package == TRITON else None
        return release.needs if release else ()

    def stand_ins(self, wanted: Collection[str]) -> dict[str, str]:
        """Requested packages that can replace another, requested or not, by the name of the one they replace.

        Many requirement files name onnxruntime and onnxruntime-gpu; pip then keeps the files of whichever comes last.
        """
        return {
            one.owner: one.package for one in self.catalogue.shared_files if one.stands_in and one.package in wanted
        }

    def files_of(self, package: str, version: Version | None) -> Iterator[str]:
        """The packages whose files a release is known to install, itself included if another one installs them.

        Args:
            package: Normalised name.
            version: The release; None for files that all its releases install.
        """
        for shared in self.catalogue.shared_files:
            if package == shared.package:
                installs = version in SpecifierSet(shared.versions) if version else shared.versions == _ALL
                yield from (shared.owner,) if installs else ()
            elif package == shared.owner:
                yield shared.owner

    @cached_property
    def documented(self) -> Mapping[str, Sequence[GpuSupport]]:
        """The GPUs that releases of packages support by their documentation, by package."""
        found: dict[str, list[GpuSupport]] = {}
        for one in self.catalogue.records(GPU_SUPPORT) if self.catalogue.has(GPU_SUPPORT) else ():
            for package in one.packages:
                found.setdefault(package, []).append(one)
        return found

    @cached_property
    def runtime(self) -> frozenset[str]:
        """The projects of the CUDA libraries that builds of torch pin, without the CUDA in their names."""
        pinned = {line for build in self.catalogue.builds("torch") for line in build.requires or ()}
        return frozenset(found[0] for found in map(cuda_suffix, pinned) if found)

    def follows_torch(self, package: str) -> bool:
        """Whether each build of a package is compatible only with certain builds of torch."""
        return package != "torch" and self.owns(package) and self.catalogue.family[package].agrees_on != "nothing"

    def needs_torch(self, asked: Iterable[str]) -> bool:
        """Whether torch is among packages, or is compatible with one of them."""
        return any(name == "torch" or self.follows_torch(name) for name in asked)

    def pairings(self, asked: Mapping[str, SpecifierSet]) -> Iterator[tuple[Option, ...]]:
        """Torch options, best first, each with the best option of every companion that matches it.

        Args:
            asked: Requirements on family packages; each of them must have an option.
        """
        companions = [self._kinds(name, specifier) for name, specifier in asked.items() if name != "torch"]
        # Before a torch beside which optional kernels of a companion are not loaded, those beside which they are.
        for answers in ((True,), (True, None)):
            for torch in self.options("torch"):
                if not torch.matches(asked.get("torch", SpecifierSet())):
                    continue
                found = [next((o for o in kinds if self._agree(o, torch) in answers), None) for kinds in companions]
                paired = tuple(option for option in found if option is not None)
                if len(paired) == len(found):
                    yield (torch, *paired)

    def _kinds(self, package: str, specifier: SpecifierSet) -> tuple[Option, ...]:
        """The best option of each way in which a companion is bound to torch."""
        kinds: dict[tuple[object, ...], Option] = {}
        for option in self.options(package):
            if option.matches(specifier):
                build = option.build
                kinds.setdefault((build.variant, build.cuda, build.torch, build.torch_cuda), option)
        return tuple(kinds.values())

    def _agree(self, companion: Option, torch: Option) -> bool | None:
        agrees_on = self.catalogue.family[companion.build.package].agrees_on
        return agrees(companion.build, torch.build, agrees_on).ok

    def brings_torch(self, package: str, specifier: SpecifierSet) -> bool:
        """Whether the builds of a package that a specifier takes require torch: asking for these asks for torch."""
        builds = (option.build for option in self.options(package) if option.matches(specifier))
        return any(b.torch or any(line.startswith("torch") for line in b.requires or ()) for b in builds)

    def borrows(self, build: Build) -> int | None:
        """The CUDA major whose libraries a build loads from torch or another package; None if it needs none of them."""
        member = self.catalogue.family[build.package]
        alone = member.agrees_on == "nothing" and build.torch is None and not member.optional
        return build.cuda_version.major if alone and build.variant != ANY and build.cuda_version else None

    @cached_property
    def variants(self) -> tuple[str, ...]:
        """Every variant that torch is published in for the machines, those of the best builds first."""
        return tuple(dict.fromkeys(option.build.variant for option in self.options("torch")))

    def variants_with(self, build: Build) -> frozenset[str] | None:
        """The variants of an environment that a build can be part of; None for any."""
        agrees_on = self.catalogue.family[build.package].agrees_on
        if build.torch_cuda:
            return frozenset(v for v, cuda in self._cuda_of_variants.items() if serves_cuda(build, cuda))
        if build.variant == ANY or agrees_on == "nothing":
            return None
        if agrees_on == "variant" or build.cuda is None:
            return frozenset({build.variant})
        return self.variants_of(CudaVersion.parse(build.cuda).major)

    def variants_of(self, major: int) -> frozenset[str]:
        """The variants of torch that are built with a CUDA major."""
        return frozenset(v for v, cuda in self._cuda_of_variants.items() if CudaVersion.parse(cuda).major == major)

    @cached_property
    def _cuda_of_variants(self) -> Mapping[str, str]:
        return {b.variant: b.cuda for b in self.catalogue.builds("torch") if b.cuda}

    def options(self, package: str) -> tuple[Option, ...]:
        """The options that the machines do not rule out, best first."""
        if package not in self._ordered:
            self._ordered[package] = self._order(package)
        return self._ordered[package]

    @property
    def barren(self) -> tuple[str, ...]:
        """Packages whose options were requested, and that have none on these machines."""
        return tuple(package for package, options in self._ordered.items() if not options)

    def judged(self, package: str) -> tuple[Option, ...]:
        """All published options, those that do not run included, newest first."""
        if package not in self._judged:
            self._judged[package] = self._judge(self.catalogue.builds(package))
        return self._judged[package]

    def knows(self, package: str, specifier: SpecifierSet) -> bool:
        """Whether the catalogue describes a build of a package that a specifier takes."""
        return any(option.matches(specifier) for option in self.judged(package))

    def judged_outside(self, package: str) -> tuple[Option, ...]:
        """Likewise its builds that are on no package index; they are never options of the solve."""
        return self._judge(self.catalogue.builds_outside(package))

    def _judge(self, published: Sequence[Build]) -> tuple[Option, ...]:
        found = []
        for builds in _newest_first(published):
            chosen = [self._for_machine(builds, m, judge) for m, judge in zip(self.machines, self._judges, strict=True)]
            if not all(map(self._published, {id(build): build for build, _ in chosen}.values())):
                continue
            verdict = worst([v for _, verdicts in chosen for v in verdicts])
            found.append(Option(tuple(build for build, _ in chosen), verdict))
        return tuple(found)

    @cached_property
    def _judges(self) -> tuple[Judge, ...]:
        # A copy of this family for some of the machines, or for another Python, has the same judges. The machines
        # themselves are the key, and are kept alive, since the judge of one may be that of an equal one.
        keys = [(id(machine), id(self.facts)) for machine in self.machines]
        for key, machine in zip(keys, self.machines, strict=True):
            if key not in self._judge_of:
                self._judge_of[key] = machine, judge_of(machine, self.facts)
        return tuple(self._judge_of[key][1] for key in keys)

    def _order(self, package: str) -> tuple[Option, ...]:
        options = [option for option in self.judged(package) if self._usable(package, option)]
        lone: list[Option] = []  # CPU builds of versions that have no others here
        if package != "torch":
            installing = (option for option in self.judged(package) if self._installs(option))
            with_cuda = {o.version.public for o in installing if o.build.variant != "cpu"}
            lone = [_for_any_variant(o) for o in options if o.version.public not in with_cuda]
            options = [o for o in options if o.version.public in with_cuda]
        if self.catalogue.family[package].optional:
            best_first = in_order([*options, *lone], package, self.named)
            ordered = tuple(sorted(best_first, key=lambda option: not self._runs(option)))
        elif self.wants_cpu:
            ordered = in_order([*options, *lone], package, self.named)
        else:
            # On Windows and aarch64 the newest torchvision may be out for CPUs only, while an older one has GPU code.
            ordered = (*in_order(options, package, self.named), *in_order(lone, package, self.named))
        return self._kept_first(ordered, package)

    def _kept_first(self, options: Sequence[Option], package: str) -> tuple[Option, ...]:
        """Options in order, kept versions first; for torch only those known to run, if there are any."""
        kept = self.preferences.get(package, ())
        ordered = variants_in_front(options, kept, lambda o: o.version, lambda o: o.build.variant)
        if package == "torch" and kept:
            ordered = sorted(ordered, key=lambda option: not option.verdict.level.usable)
        return tuple(ordered)

    def _usable(self, package: str, option: Option) -> bool:
        """Whether an option belongs into the solve: torch if it runs; a companion if its own code does, beside a torch.

        Triton's kernels are a matter of preference, since much of torch works without them.
        """
        if self.is_optional(package) or (option.build.variant == "cpu" and self.catalogue.family[package].optional):
            return self._installs(option)
        if package == "torch" or not (self.follows_torch(package) or option.build.variant == ANY):
            return self._runs(option)
        runs_nothing = option.build.cuda and any(reason.rule in _CODE_RULES for reason in option.verdict.failures)
        return self._installs(option) and not runs_nothing

    def is_optional(self, package: str) -> bool:
        """Whether a package is taken even if its GPU code does not run on the machines, as it works on the CPU."""
        member = self.catalogue.family.get(package)
        return member is not None and member.optional and (package not in self.decisive or self.wants_cpu)

    def _runs(self, option: Option) -> bool:
        if option.build.variant == "cpu":
            return self.wants_cpu and option.verdict.level is not Level.NONE
        return option.verdict.level is not Level.NONE

    def _installs(self, option: Option) -> bool:
        return all(j.installs(build, self.python) for j, build in zip(self._judges, option.builds, strict=True))

    @property
    def wants_cpu(self) -> bool:
        """Whether a CPU build may be the answer: only if every machine is known to have no GPU."""
        return all(machine.gpus == () for machine in self.machines)

    def _published(self, build: Build) -> bool:
        if self.exclude_newer and too_late(
            build.released or self._release_dates(build.package).get(build.version), self.exclude_newer
        ):
            return False
        return not self.gone or not any(build.filename(p) in self.gone for p in build.pythons)

    def _release_dates(self, package: str) -> Mapping[str, str]:
        """When versions came out on the default index: other indexes do not say, and release with it."""
        return {build.version: build.released for build in self.catalogue.builds(package) if build.released}

    def _for_machine(
        self, builds: Sequence[Build], machine: Machine, judge: Judge
    ) -> tuple[Build, tuple[Verdict, ...]]:
        """The build of an option for a machine's platform, with its verdicts."""
        platform = machine.platform or Platform()
        here = [b for b in builds if same_system(b.made_for, platform)]
        judged = [(build, judge.verdicts(build, self.python)) for build in here or builds]
        if len(judged) == 1:
            return judged[0]
        return min(judged, key=lambda pair: (*_distance(worst(pair[1])), pair[0].platform == "any"))


def _for_any_variant(option: Option) -> Option:
    """The CPU build of a companion's version that has no other there: it loads beside a torch of any variant."""
    return replace(option, builds=tuple(replace(build, variant=ANY) for build in option.builds))


def _distance(verdict: Verdict) -> tuple[bool, int]:
    """Sort key: how far a build is from running; builds that do not even install come first."""
    return any(reason.rule == "platform" for reason in verdict.failures), verdict.level.rank


# By the records themselves, which the answer keeps alive: it is the same for every machine and Python.
_GROUPED: dict[int, tuple[Sequence[Build], tuple[list[Build], ...]]] = {}
_KEPT_GROUPS = 64


def _newest_first(published: Sequence[Build]) -> tuple[list[Build], ...]:
    """The builds of a package by the option that they are of, that of the newest version first."""
    if id(published) not in _GROUPED:
        if len(_GROUPED) >= _KEPT_GROUPS:
            _GROUPED.pop(next(iter(_GROUPED)), None)
        groups: dict[tuple[str, ...], list[Build]] = {}
        for build in published:
            # What a local version says besides the variant: the torch and the ABI of a release wheel.
            keys = build.local.removeprefix(f"+{build.variant}")
            groups.setdefault((build.version, build.variant, build.index, keys), []).append(build)
        versions = {key: published_version(some[0].version + some[0].local) for key, some in groups.items()}
        ordered = tuple(groups[key] for key in sorted(groups, key=versions.__getitem__, reverse=True))
        _GROUPED[id(published)] = published, ordered
    return _GROUPED[id(published)][1]

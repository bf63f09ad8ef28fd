"""A lock judged for machines: the builds that its tool would install there, by the rules that plans follow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from shlex import quote

import msgspec
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from envsolve.errors import UsageError
from envsolve.facts.builds import ANY, Build
from envsolve.facts.catalogue import Catalogue
from envsolve.facts.evidence import made_for
from envsolve.facts.files import WHEEL_NAMES
from envsolve.locks.builds import builds_of, wheel_of
from envsolve.locks.model import STATUSES, Finding, LockAnswer, Locked, LockFile, LockReport, MachineAnswer, Status
from envsolve.locks.read import as_its_tool_writes_it, read_lock_file
from envsolve.locks.uv import DEV
from envsolve.machine.known import target_of
from envsolve.machine.model import Machine, one_line
from envsolve.rules.judge import as_judged, judge_of, worst
from envsolve.rules.nvidia import Facts
from envsolve.rules.platform import Environment, admits_python, same_system
from envsolve.rules.verdict import Level, Verdict
from envsolve.system.limits import single_line
from envsolve.values import PythonVersion

_SHOWN = 4


def check_locks(
    paths: Sequence[Path],
    machines: Sequence[Machine],
    catalogue: Catalogue,
    chosen: Sequence[str] = (),
    python: str | None = None,
) -> LockReport:
    """The result of each lock on each machine.

    Args:
        paths: The locks.
        machines: The machines.
        catalogue: The facts.
        chosen: Extras, groups and environments, as options: ``--extra cu126``.
        python: The Python; that of each machine if None.

    Raises:
        UsageError: A lock cannot be read, or has no such extra.
    """
    return LockReport(tuple(_checked(path, machines, catalogue, chosen, python) for path in paths))


def _checked(
    path: Path, machines: Sequence[Machine], catalogue: Catalogue, chosen: Sequence[str], python: str | None
) -> LockAnswer:
    lock = read_lock_file(path)
    unknown = [choice for choice in chosen if choice not in lock.choices and choice != DEV]
    if unknown:
        known = f"it has {', '.join(lock.choices)}" if lock.choices else "the lock has no optional extras or groups"
        raise UsageError(f"{path} has no {unknown[0]}", hint=single_line(known))
    facts = Facts.of(catalogue)
    answers = []
    for machine in machines:
        judged = as_judged(machine, None, catalogue.drivers)
        version, fault = _python(lock, judged, python, catalogue)
        case = _Case(path, lock, judged, version, catalogue, facts, Environment.of(judged, version))
        answers.append(_best(case, chosen, fault))
    return LockAnswer(str(path), lock.kind, tuple(answers))


def _python(lock: LockFile, machine: Machine, python: str | None, catalogue: Catalogue) -> tuple[str, list[Finding]]:
    """The Python that the lock is installed for, and a finding if the machine has none that the lock allows."""
    if lock.python and python in (None, lock.python):
        return lock.python, []
    given = [machine.python, *(found.version for found in machine.pythons or ())]
    known = [python] if python else [str(PythonVersion.parse(one)) for one in given if one]
    allowed = [one for one in known if admits_python(lock.requires_python, one) and lock.python in (None, one)]
    if allowed:
        return allowed[0], []
    if not known:
        allowed = [one for one in catalogue.pythons if admits_python(lock.requires_python, one)]
        whole = (one for one in allowed if _has_wheels(lock, machine, one))
        return next(whole, [*allowed, catalogue.pythons[0]][0]), []
    wanted = lock.requires_python or lock.python
    text = f"the lock requires Python {wanted}; this machine has {', '.join(dict.fromkeys(known))}"
    return known[0], [Finding("python", "does not run", 1, text, ("install a suitable Python: uv python install",))]


def _has_wheels(lock: LockFile, machine: Machine, python: str) -> bool:
    """Whether a lock, with all extras, has a wheel for a Python of every package that has only wheels."""
    environment = Environment.of(machine, python)
    packages = lock.select(environment, lock.choices) or ()
    return all(
        one.source or not one.files or any(environment.rank(file) is not None for file in one.files) for one in packages
    )


def _best(case: _Case, chosen: Sequence[str], faults: Sequence[Finding]) -> MachineAnswer:
    """The result for the default install, or for the extra or group with which the lock runs."""
    fixed = [*chosen, *case.own_class]
    first = case.answer(fixed, faults)
    # Triton alone is what some lock without torch has left of it.
    has_any = any(not build.startswith("triton ") for build in first.builds)
    if chosen or not case.lock.choices or (has_any and first.status == "runs"):
        return first
    others = (case.answer([*fixed, choice], faults) for choice in case.lock.choices)
    with_torch = [one for one in others if any(build.startswith("torch ") for build in one.builds)]
    if has_any:
        return next((one for one in with_torch if one.status == "runs"), first)
    return max(with_torch, key=lambda one: STATUSES.index(one.status), default=first)


class _Taken(msgspec.Struct, frozen=True):
    """A locked package with the build that its file is, and the verdict that decides."""

    package: Locked
    build: Build
    verdict: Verdict

    @property
    def label(self) -> str:
        variant = "" if self.build.variant == ANY else f" [{self.build.variant}]"
        name = "pytorch" if self.package.conda else self.build.package
        return f"{name} {self.build.version}{variant}"


class _Case(msgspec.Struct, frozen=True):
    """One lock on one machine.

    Attributes:
        found: The builds that packages are beside a torch of a variant, as far as it was asked: extras share most
            packages.
    """

    path: Path
    lock: LockFile
    machine: Machine
    python: str
    catalogue: Catalogue
    facts: Facts
    environment: Environment
    found: dict[tuple[Locked, str | None], _Taken | None] = {}

    @property
    def own_class(self) -> list[str]:
        """The part for this machine of a lock that envsolve made for several classes of machines."""
        if not self.lock.assumptions:
            return []
        from envsolve.planning.lock import mismatches

        fitting = [name for name, one in self.lock.assumptions.items() if name and not mismatches(one, self.machine)]
        return [f"--group {fitting[0]}"] if fitting and f"--group {fitting[0]}" in self.lock.choices else []

    def answer(self, chosen: Sequence[str], faults: Iterable[Finding]) -> MachineAnswer:
        """The packages that are installed with some extras and groups, judged."""
        environment = self.environment
        with as_its_tool_writes_it(self.path, self.lock.kind):
            packages = self.lock.select(environment, chosen)
        taken: list[_Taken] = []
        findings = list(faults)
        if packages is None:
            text = f"the lock is not for {environment.platform.os} {environment.platform.arch}"
            findings.append(Finding("platform", "does not run", 1, text))
        else:
            findings += self._assumed()
            findings += self._without_wheel(packages, environment)
            known = {*self.catalogue.packages()}
            named = [p for p in packages if (p.name == "pytorch" if p.conda else p.name in known)]
            torch = next((self._taken(p, None) for p in named if p.name in ("torch", "pytorch")), None)
            for package in named:
                if one := self._taken(package, torch):
                    taken.append(one)
                else:
                    findings.append(self._unknown(package))
            findings += self._judged(taken, packages)
            findings += self._together(taken, packages, environment)
        ordered = tuple(sorted(dict.fromkeys(findings), key=lambda one: (STATUSES.index(one.status), one.line)))
        status = ordered[0].status if ordered else "runs"
        labels = tuple(one.label for one in taken)
        return MachineAnswer(one_line(self.machine), self.python, status, tuple(chosen), labels, ordered)

    def _of_conda(self, package: Locked) -> _Taken:
        from envsolve.locks.conda import conda_candidate  # most locks hold no conda packages
        from envsolve.rules.conda import CondaJudge

        (own,) = CondaJudge((self.machine,), self.facts, self.catalogue.conda).judged([conda_candidate(package)])
        return _Taken(package, own.build, own.verdict)

    def _taken(self, package: Locked, torch: _Taken | None) -> _Taken | None:
        """The build that a package is beside a torch, judged; None if the catalogue does not know it."""
        variant = torch.build.variant if torch else None
        if (package, variant) not in self.found:
            found = self._of_conda(package) if package.conda else self._of_wheel(package, variant)
            self.found[package, variant] = found
        return self.found[package, variant]

    def _of_wheel(self, package: Locked, variant: str | None) -> _Taken | None:
        judge = judge_of(self.machine, self.facts)
        judged = [
            _Taken(package, build, worst(judge.verdicts(build, self.python)))
            for build in builds_of(package, self.catalogue, self.environment, variant)
        ]
        # One build, or several that differ in nothing that the lock could say: the one that the rules like least.
        return max(judged, key=lambda one: one.verdict.level.rank, default=None)

    def _assumed(self) -> Iterator[Finding]:
        """The assumptions of a lock of envsolve's own about the machine."""
        if not self.lock.assumptions:
            return
        from envsolve.planning.lock import mismatches, unknowns

        names = {choice.rpartition(" ")[2] for choice in self.own_class}
        own = (one for name, one in self.lock.assumptions.items() if name in (names or {""}))
        for assumptions in own:
            for text in mismatches(assumptions, self.machine):
                again = (
                    f"envsolve plan --lock {quote(str(self.path))} --upgrade --target {quote(target_of(self.machine))}"
                )
                yield Finding("assumption", "does not run", 1, text, (f"make the lock again: {again}",))
            for text in unknowns(assumptions, self.machine):
                yield Finding("assumption", "unknown", 1, text)
        if self.lock.assumptions and not names and "" not in self.lock.assumptions:
            classes = ", ".join(self.lock.assumptions)
            yield Finding("assumption", "does not run", 1, f"the lock has no class for this machine, only: {classes}")

    def _without_wheel(self, packages: Sequence[Locked], environment: Environment) -> Iterator[Finding]:
        """Packages of which the lock has wheels only for other systems or Pythons."""
        lost = [p for p in packages if p.files and not p.source and wheel_of(p, environment) is None]
        if lost:
            names = ", ".join(f"{one.name} {one.version}" for one in lost[:_SHOWN])
            more = f" and {len(lost) - _SHOWN} more" if len(lost) > _SHOWN else ""
            where = f"Python {self.python} on {environment.platform.os} {environment.platform.arch}"
            libc = f" ({environment.platform.libc})" if environment.platform.libc else ""
            text = f"the lock has no wheel of {names}{more} for {where}{libc}"
            yield Finding("platform-wheel", "does not run", lost[0].line, text)

    def _unknown(self, package: Locked) -> Finding:
        text = f"{package.name} {package.version or ''}".strip()
        if package.source and not package.files and self.lock.kind != "requirements":
            fix = "`envsolve plan` with the same requirements and machine shows what the build requires"
            what = f"{text} has no wheel in the lock and is built from source on the machine"
            return Finding("source-build", "unknown", package.line, what, (fix,))
        what = f"{text}: the catalogue has no facts about this build"
        return Finding("unknown-build", "unknown", package.line, what)

    def _judged(self, taken: Sequence[_Taken], packages: Sequence[Locked]) -> Iterator[Finding]:
        """The rules' answer on each build; companions fail for the same reason as their torch."""
        torch = next((one for one in taken if one.build.package == "torch"), None)
        refused = torch is not None and torch.verdict.level is Level.NONE
        # Beside a torch of which nothing is known, a companion's CPU build says nothing of the GPU.
        beside = torch is not None or any(package.name in ("torch", "pytorch") for package in packages)
        for one in taken:
            companion = one.build.package != "torch" and beside
            if not companion or not (refused or one.build.variant == "cpu" or one.build.package == "triton"):
                yield from self._verdict(one, taken)

    def _verdict(self, one: _Taken, taken: Sequence[_Taken]) -> Iterator[Finding]:
        """The rules' objections to one build; none if it runs."""
        reasons = [r for r in one.verdict.failures if not r.rule.startswith("triton")] or one.verdict.failures
        text = "; ".join(reason.text for reason in reasons)
        source = next((self.catalogue.source_title(reason.source) for reason in reasons if reason.source), None)
        line = one.package.line
        if one.verdict.level is Level.NONE:
            optional = (member := self.catalogue.family.get(one.build.package)) is not None and member.optional
            code = "gpu-unused" if optional else "cpu-build" if one.build.variant == "cpu" else "build-does-not-run"
            status: Status = "unknown" if optional else "does not run"
            yield Finding(code, status, line, f"{one.label}: {text}", self._fixes(one, taken), source)
        elif one.verdict.level is Level.UNKNOWN:
            open_ = "; ".join(reason.text for reason in one.verdict.reasons if reason.ok is None)
            yield Finding("unknown", "unknown", line, f"{one.label}: {open_}")
        elif one.verdict.triton is False:
            text = f"{one.label} runs, but its Triton kernels (torch.compile) do not: {text}"
            yield Finding("triton-does-not-run", "incomplete", line, text, self._fixes(one, taken), source)

    def _fixes(self, one: _Taken, taken: Sequence[_Taken]) -> tuple[str, ...]:
        """The torch that runs instead, with its companions, in the order of every other command."""
        if one.build.package != "torch" or one.package.conda or self.machine.accelerators == ():
            return ()
        # Most checks find nothing, and importing these takes as long as the check of a lock of 200 packages.
        from envsolve.advice.torch import Installed, in_words, install_command, replacements
        from envsolve.solve.family import Family

        family = Family(self.catalogue, self.facts, (self.machine,), self.python)
        versions = {each.build.package: each.build.version for each in taken}
        found = replacements(family, Installed(versions, one.build.version, one.build.variant))
        if not found:
            return ("`envsolve plan torch` with the same machine shows what would fit",)
        command = install_command(found[0], self.catalogue.indexes)
        return in_words(found[0], self.machine.gpus or (), self.facts), f"lock what this installs: {command}"

    def _together(
        self, taken: Sequence[_Taken], packages: Sequence[Locked], environment: Environment
    ) -> Iterator[Finding]:
        """Requirements of the builds on each other and on the rest of the lock."""
        # What conda installs is found by pip's packages too; only names differ, and those of the family are judged.
        versions: dict[str, str | None] = {}
        for package in packages:
            versions[canonicalize_name(package.name)] = None if package.conda else package.version
        for one in taken:
            if not one.package.conda:
                yield from self._required(one, versions, environment)
        yield from self._compiled(packages, versions)
        yield from self._without_gpu(packages, versions)
        torch = next((one for one in taken if one.build.package == "torch"), None)
        for one in taken if torch else ():
            assert torch is not None
            if one is not torch and self._mixed(one, torch):
                text = f"{one.label} is not for the variant of {torch.label}"
                fix = f"use the same index for {one.build.package} as for torch, and lock again"
                yield Finding("variant-mix", "does not run", one.package.line, text, (fix,))
            if one.build.torch and not SpecifierSet(one.build.torch).contains(torch.build.version, prereleases=True):
                text = f"{one.label} works with torch{one.build.torch} only; the lock has {torch.label}"
                yield Finding("version-mismatch", "does not run", one.package.line, text)
        if torch:
            listed = {one.package for one in taken}
            yield from self._named([p for p in packages if not p.conda and p not in listed], torch)

    def _compiled(self, packages: Sequence[Locked], versions: Mapping[str, str | None]) -> Iterator[Finding]:
        """Packages that work only with other versions of a package of the lock, whatever their metadata says."""
        lines = {package.name: package.line for package in packages if not package.conda}
        for one in self.catalogue.compiled_against:
            own, module = versions.get(one.package), versions.get(one.module)
            if own and module and _takes(one.versions, own) and not _takes(one.module_versions, module):
                text = f"{one.package} {own} is built for {one.module}{one.module_versions}; the lock has {module}"
                source = self.catalogue.source_title(one.source)
                # torch runs; what imports the package does not, and that is not known.
                yield Finding("version-mismatch", "unknown", lines[one.package], text, (), source)

    def _without_gpu(self, packages: Sequence[Locked], versions: Mapping[str, str | None]) -> Iterator[Finding]:
        """Packages that run on the CPU although the machine has a GPU, unless something outside the lock helps them."""
        for package in packages if self.machine.gpus else ():
            name = canonicalize_name(package.name)
            parts = [
                p for p in self.catalogue.gpu_parts if not package.conda and p.is_about(name, package.version or "")
            ]
            parts = [p for p in parts if p.is_for(self.environment.system) and not (p.requested or p.source_build)]
            if parts and not any(other in versions for part in parts for other in part.provided_by):
                text = f"{name} {package.version} does not use the GPU: the lock lacks {parts[0].lacks}"
                asked = (f"request {parts[0].ask}",) if parts[0].ask and len(parts) == 1 else ()
                source = self.catalogue.source_title(parts[0].source)
                yield Finding("gpu-unused", "unknown", package.line, text, asked, source)

    def _named(self, packages: Sequence[Locked], torch: _Taken) -> Iterator[Finding]:
        """Wheels that the catalogue does not list and whose names state another torch or CUDA than the lock's."""
        for package in packages:
            file = wheel_of(package, self.environment)
            place = package.index if package.index and package.index.endswith(".whl") else file
            if not file or not place or not ("+" in file or "://" in place):
                continue
            made = made_for(place, self.catalogue.records(WHEEL_NAMES))
            if made.torch and not SpecifierSet(made.torch).contains(torch.build.version, prereleases=True):
                text = f"{file} was compiled for torch{made.torch}; the lock has {torch.label}"
                yield Finding("version-mismatch", "does not run", package.line, text)
            major, cuda = made.major, torch.build.cuda_version
            if major and cuda and major != cuda.major:
                text = f"{file} was compiled for CUDA {major}; the lock has {torch.label}"
                yield Finding("variant-mix", "does not run", package.line, text)

    def _mixed(self, one: _Taken, torch: _Taken) -> bool:
        member = self.catalogue.family.get(one.build.package)
        if member is None or one.build.variant == ANY or member.agrees_on == "nothing":
            return False
        if member.agrees_on == "variant":
            # A release that is only a CPU build, on this system or on this index, loads beside every torch.
            builds = [b for b in self.catalogue.builds(one.build.package) if b.version == one.build.version]
            here = {b.variant for b in builds if same_system(b.made_for, self.environment.platform)}
            there = {b.variant for b in builds if b.index == one.build.index}
            return one.build.variant != torch.build.variant and {"cpu"} not in (here, there)
        cuda, of_torch = one.build.cuda_version, torch.build.cuda_version
        return bool(cuda and of_torch and cuda.major != of_torch.major)

    def _required(self, one: _Taken, versions: Mapping[str, str | None], environment: Environment) -> Iterator[Finding]:
        lost = []
        for line in one.build.requires or ():
            requirement = Requirement(line)
            if not environment.wants(requirement.marker):
                continue
            name = canonicalize_name(requirement.name)
            if name not in versions:
                lost.append(name)
                continue
            version = versions[name]
            if version and not requirement.specifier.contains(version, prereleases=True):
                text = f"{one.label} requires {name}{requirement.specifier}; the lock has {version}"
                status: Status = "does not run" if name in self.catalogue.family else "unknown"
                yield Finding("version-mismatch", status, one.package.line, text)
        if lost:
            names = ", ".join(lost[:_SHOWN]) + (f" and {len(lost) - _SHOWN} more" if len(lost) > _SHOWN else "")
            where = f"{environment.platform.os} {environment.platform.arch}"
            text = f"{one.label} requires {names}, which the lock does not have for {where}"
            fix = "lock again without the override or marker that leaves them out, or on such a system"
            yield Finding("requirement-missing", "incomplete", one.package.line, text, (fix,))


def _takes(specifier: str, version: str) -> bool:
    return SpecifierSet(specifier).contains(version, prereleases=True)

"""A bundle: every file of a plan in a directory or an archive, with an installer that needs no network."""

from __future__ import annotations

import shutil
import stat
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from envsolve._default_index import DEFAULT_INDEX
from envsolve.errors import EnvsolveError, UsageError
from envsolve.facts.catalogue import Catalogue
from envsolve.facts.evidence import FirstUse
from envsolve.formats._packages import hashed, strong_hashes
from envsolve.formats.pip import Words, install_commands, is_compiled
from envsolve.install.fetch import BundledFile, Fetch
from envsolve.install.files import Lock, read_lock
from envsolve.machine.model import one_line
from envsolve.packages.model import is_archive
from envsolve.planning.plan import Plan
from envsolve.planning.plans import plan as make_plan
from envsolve.planning.request import Request
from envsolve.rules.platform import assumed
from envsolve.solve.outcome import PlannedPackage
from envsolve.system import progress
from envsolve.system.files import dump, is_folder, parse_toml, read_regular, replace_file
from envsolve.system.limits import count_of

if TYPE_CHECKING:
    from envsolve.packages.settings import IndexSettings

SCHEMA: Literal["envsolve.bundle/1"] = "envsolve.bundle/1"
_INSTALLER = Path(__file__).with_name("offline_installer.py")
# What pip builds with if a project names nothing: PEP 518, "build-system table"; pip before 25.1 also takes wheel.
_BUILD_REQUIRES = ("setuptools>=40.8.0", "wheel")
_WORDS = Words(("python", "-m", "pip", "install"), "--index-url", ("--no-build-isolation", "--no-cache-dir"), "python")


class Later(msgspec.Struct, frozen=True):
    """Downloads and compilations of a package at its first use.

    Attributes:
        provided: What in the bundle, or on the machine, provides it; None if nothing does.
        fix: What to do beforehand.
    """

    package: str
    what: str
    kind: Literal["download", "compile"]
    provided: str | None
    fix: str


class Bundle(msgspec.Struct, frozen=True):
    """Contents of a bundle; its ``bundle.json``.

    Attributes:
        python: ``3.12``; None if the lock does not say.
        machines: In words.
        platforms: Operating systems and architectures that it is for; empty if they are not known.
        environment: Variables to set where the environment runs.
        compile: Shell commands that compile sources after the wheels are installed.
        later: What is downloaded or compiled at the first use.
        missing: What of that nothing provides, in words.
    """

    schema: Literal["envsolve.bundle/1"] = SCHEMA
    requirements: tuple[str, ...] = ()
    python: str | None = None
    machines: tuple[str, ...] = ()
    platforms: tuple[tuple[str, str], ...] = ()
    files: tuple[BundledFile, ...] = ()
    environment: Mapping[str, str] = {}
    compile: tuple[str, ...] = ()
    later: tuple[Later, ...] = ()
    missing: tuple[str, ...] = ()


def read_plan(path: Path) -> Plan:
    """The plan in a file: its JSON, or a ``pylock.toml`` of one class of machines.

    Raises:
        UsageError: The file is neither.
    """
    if path.suffix == ".json":
        try:
            return Plan.from_json(read_regular(path))
        except OSError as error:
            raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    lock = read_lock(path)
    # One requirements.txt per bundle: markers of several classes would install the files of all of them.
    if lock.classes:
        hint = "make a separate plan and bundle for each class: envsolve plan ... --format json -o plan.json"
        raise UsageError(
            f"{path} is for several classes of machines ({', '.join(lock.classes)}), but a bundle is for one", hint=hint
        )
    return _plan_of(lock)


def _plan_of(lock: Lock) -> Plan:
    packages = []
    for package in lock.pylock.packages:
        files: list[Any] = [*(package.wheels or ()), *filter(None, (package.sdist, package.archive))]
        if not files:
            hint = f"build a wheel and request the wheel instead: pip wheel --no-deps {package.name}"
            raise UsageError(
                f"the lock has only a source tree of {package.name}, and a bundle requires a file", hint=hint
            )
        # All wheels of a lock: which one fits is known on the other machine only. Of source archives one is enough.
        for file in files[: 1 if package.wheels is None else len(package.wheels)]:
            url = file.url or (lock.path.absolute().parent / file.path).as_uri()
            name = getattr(file, "name", None) or urlsplit(url).path.rpartition("/")[2]
            if not is_archive(name):
                raise UsageError(f"{name!r} in the lock is not a file name of {package.name}", hint="plan again")
            kind: Literal["wheel", "sdist"] = "wheel" if name.endswith(".whl") else "sdist"
            version = str(package.version or name.split("-")[1])
            packages.append(
                PlannedPackage(package.name, version, None, package.index, name, url, file.hashes, kind, size=file.size)
            )
    made = lock.assumptions
    return Plan(python=lock.python, packages=tuple(packages), environment=dict(made.environment) if made else {})


def make_bundle(
    plan: Plan, place: Path, catalogue: Catalogue, settings: IndexSettings, *, offline: bool = False
) -> Bundle:
    """Download every file of a plan, and write them with an installer.

    A bundle that was interrupted goes on where it ended, if it is made again in the same place.

    Args:
        plan: The plan.
        place: A directory, which is made; or an archive, ``NAME.tar``, which is written at the end.
        catalogue: The facts.
        settings: How to reach the files.
        offline: Whether nothing may be downloaded: only files of this machine can be in the bundle.

    Raises:
        ImpossibleError: The plan is impossible.
        IndexUnavailableError: A file cannot be downloaded, or has another hash than the plan says.
        UsageError: A source tree is in the plan, or a file without a hash; or a link lies in the place.
    """
    packages = hashed(plan)
    archive = place.suffix == ".tar"
    # A name of its own, kept after an interruption: 3 GB should not be downloaded twice.
    directory = place.with_name(f"{place.name}.partial") if archive else place
    fetch = Fetch(directory / "wheels", settings, offline=offline)
    try:
        # The place is often a shared disk or a stick, and files of an earlier plan are deleted below.
        _refuse_links(directory, may_be_one=not archive)
        (directory / "wheels").mkdir(parents=True, exist_ok=True)
        with fetch:
            files = fetch.all(packages, "package")
            if builders := _builders(plan, packages, directory / "wheels", offline=offline):
                files += fetch.all([one for one in builders if one.filename not in _names(files)], "build")
        for path in sorted((directory / "wheels").iterdir()):
            if path.name not in _names(files):
                path.unlink()  # of an earlier plan in the same place
        bundle = _described(plan, files, catalogue)
        replace_file(directory / "requirements.txt", _requirements(plan, packages))
        replace_file(directory / "bundle.json", dump(msgspec.to_builtins(bundle)) + "\n")
        replace_file(directory / "README.txt", read_me(bundle))
        shutil.copyfile(_INSTALLER, directory / "install.py")
        if archive:
            _pack(directory, place)
    except OSError as error:
        what = f"cannot write {place}: {error.strerror or error}"
        raise EnvsolveError(what, hint="choose another place with -o; run the command again to continue") from error
    return bundle


def _refuse_links(directory: Path, *, may_be_one: bool) -> None:
    """Refuse an output path with links or devices, through which files elsewhere would be written or deleted."""
    if directory.is_symlink() and not may_be_one:
        _refuse_link(directory)
    for folder in (directory, directory / "wheels"):
        for place in folder.iterdir() if is_folder(folder) else ():
            _refuse_link(place)


def _refuse_link(place: Path) -> None:
    if stat.S_IFMT(place.lstat().st_mode) not in (stat.S_IFREG, stat.S_IFDIR):
        hint = "delete it, or choose another place with -o"
        raise UsageError(f"{place} is a link, a pipe or a device", hint=hint)


def _names(files: Sequence[BundledFile]) -> set[str]:
    return {file.filename for file in files}


def _requirements(plan: Plan, packages: Sequence[PlannedPackage]) -> str:
    lines = []
    for package in packages:
        if not is_compiled(package, plan):
            hashes = " ".join(f"--hash={name}:{digest}" for name, digest in strong_hashes(package).items())
            lines.append(f"{package.name}=={package.version} {hashes}")
    return "\n".join(lines) + "\n"


def _described(plan: Plan, files: Sequence[BundledFile], catalogue: Catalogue) -> Bundle:
    # Everything is at hand: a package of another index, or of a URL, is found by its name like all others.
    known = [replace(p, index=DEFAULT_INDEX) for p in plan.packages if is_compiled(p, plan)]
    compile_ = install_commands(replace(plan, packages=tuple(known)), _WORDS) if known else ()
    later = tuple(_later(plan, catalogue))
    platforms = {(str(p.os), str(p.arch)) for p in (assumed(machine.platform) for machine in plan.machines)}
    return Bundle(
        requirements=plan.requirements,
        python=plan.python,
        machines=tuple(map(one_line, plan.machines)),
        platforms=tuple(sorted(platforms)),
        files=tuple(sorted(files, key=lambda file: file.filename)),
        environment=plan.environment,
        compile=compile_,
        later=later,
        missing=tuple(f"{one.package} {one.what} at its first use: {one.fix}" for one in later if not one.provided),
    )


def _later(plan: Plan, catalogue: Catalogue) -> Iterator[Later]:
    """Downloads and compilations of the packages of a plan at their first use."""
    versions = {package.name: package.version for package in plan.packages}
    # Only if it is known of all machines: a bundle must not promise a compiler that one of them lacks.
    compilers = [machine.host_compilers for machine in plan.machines]
    first = compilers[0][0] if compilers and all(compilers) and compilers[0] else None
    here = " ".join(filter(None, (first.kind, first.version, "of the machine"))) if first else None
    for fact in catalogue.first_uses:
        if fact.package not in versions:
            continue
        by = _provider(fact, versions) or (here if fact.host_compiler else None)
        yield Later(fact.package, fact.what, fact.kind, by, fact.fix)
    for name in plan.toolchain.compiles_at_use if plan.toolchain else ():
        if not any(fact.package == name for fact in catalogue.first_uses):
            nvcc = plan.toolchain.nvcc_from if plan.toolchain else None
            by = {"machine": "the machine's nvcc", "pip": "the nvcc in the plan's packages"}.get(nvcc or "")
            fix = "install the CUDA toolkit of torch's CUDA version on the machine"
            yield Later(name, "compiles kernels with nvcc", "compile", by, fix)


def _provider(fact: FirstUse, versions: Mapping[str, str]) -> str | None:
    """The package of a plan that provides what is needed."""
    return next((f"{name} {versions[name]}" for name in fact.provided_by if name in versions), None)


def read_me(bundle: Bundle) -> str:
    """The text for the person who installs it."""
    total = progress.format_size(sum(file.size for file in bundle.files))
    lines = [
        f"Bundle of {', '.join(bundle.requirements) or count_of(len(bundle.files))}, made by envsolve.",
        *(f"For: {machine}" for machine in bundle.machines),
        f"{count_of(len(bundle.files), 'file')}, {total}.",
        "",
        "To install the bundle (no network required):",
        "",
        f"    python{bundle.python or '3'} install.py DIRECTORY",
        "",
    ]
    if bundle.later:
        lines += ["Some packages download or compile more when they are first used:", ""]
        lines += [f"- {line}" for line in in_words(bundle)]
    return "\n".join(lines).rstrip() + "\n"


def in_words(bundle: Bundle) -> Iterator[str]:
    """A download or compilation at the first use, and what provides it."""
    for one in bundle.later:
        known = f"provided by {one.provided}" if one.provided else f"not provided: {one.fix}"
        yield f"{one.package} {one.what} ({known})"


# Source distributions: pip builds each in an environment of its own, which is filled from the bundle too.


def _builders(
    plan: Plan, packages: Sequence[PlannedPackage], wheels: Path, *, offline: bool
) -> tuple[PlannedPackage, ...]:
    """The packages that build the source distributions, except those that the plan's toolchain compiles."""
    requires: dict[str, None] = {}
    for package in packages:
        if package.kind == "sdist" and not is_compiled(package, plan) and package.filename:
            requires |= dict.fromkeys(_build_requires(wheels / package.filename))
    if not requires:
        return ()
    # Names of build backends are chosen by projects and not typed by the user: the check for typing mistakes
    # would be wrong.
    request = Request(tuple(requires), python=plan.python, offline=offline, allow_unknown_names=True)
    made = make_plan(request, plan.machines or None)
    return hashed(made)


def _build_requires(path: Path) -> Sequence[str]:
    from envsolve.packages.archives import ARCHIVE_ERRORS

    with suppress(*ARCHIVE_ERRORS, UsageError, KeyError, OSError), tarfile.open(path) as archive:
        for member in archive:
            # At the top only: archives contain the pyproject.toml of test data and of vendored projects, too.
            if member.name.count("/") == 1 and member.name.endswith("/pyproject.toml"):
                content = archive.extractfile(member)
                table = parse_toml(content.read().decode("utf-8") if content else "", path)
                return tuple(table["build-system"]["requires"])
    return _BUILD_REQUIRES


def _pack(directory: Path, place: Path) -> None:
    """Write a directory as an archive, the same bytes for the same files, and remove it."""
    progress.phase("writing the archive")
    whole = place.with_name(f"{place.name}.new")

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.mtime, member.uid, member.gid, member.uname, member.gname = 0, 0, 0, "", ""
        return member

    whole.unlink(missing_ok=True)
    with tarfile.open(whole, "x") as archive:
        for path in sorted(directory.rglob("*")):
            name = Path(place.stem) / path.relative_to(directory)
            archive.add(path, str(name), recursive=False, filter=plain)
    whole.replace(place)
    shutil.rmtree(directory)
    progress.phase("")

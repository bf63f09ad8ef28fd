"""``lock-incomplete``: a lock, or another way of leaving dependencies out, brought torch without its libraries."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from packaging.requirements import Requirement

from envsolve.binaries.names import LIBRARY_FILE, is_runtime_package, is_toolkit_package
from envsolve.diagnose.causes._asked import is_locked
from envsolve.diagnose.causes._shared import Cause, lines, listed, torch_evidence
from envsolve.diagnose.fixes import led_by, replacements, very_torch
from envsolve.diagnose.model import Finding, Fix, Grounds
from envsolve.diagnose.scene import Scene
from envsolve.diagnose.signatures import Match
from envsolve.environment.model import (
    Distribution,
    Environment,
    Library,
    TorchFiles,
    needs,
    pinned,
    torch_distribution,
)

CAUSE = Cause.of(__name__)
_LOCKS = ("poetry", ".lock", "pylock", "uv sync", "pdm ", "pipenv", "--no-deps", "--require-hashes", "frozen")


def from_report(scene: Scene) -> Iterator[Finding]:
    """A library of torch's own that is missing, or a file that a lock names and the index does not have."""
    about_lock = scene.mentions(*_LOCKS)
    if missing := _missing(scene):
        yield from _incomplete(scene, missing, about_lock)
    if (match := scene.first("poetry-none")) and is_toolkit_package(match.groups["package"]):
        yield CAUSE.finding("marker", Grounds.STATED, lines(match), [CAUSE.fix("poetry-newer")], ("no-such-build",))
    if match := CAUSE.first(scene, "platform"):
        yield from _other_platform(scene, match)
    changed = CAUSE.first(scene, "hash") or (CAUSE.first(scene, "gone") if about_lock else None)
    if changed:
        yield CAUSE.finding("changed", Grounds.STATED, lines(changed), [_new_lock(scene)])


#: What uv says that it is on, ``manylinux_2_39_aarch64``; its names of processors in markers.
_ON = re.compile(r"\b(?:many|musl)linux_\w*?_(x86_64|aarch64)\b|\b(win)_(?:amd64|arm64)\b|\b(macosx)_\d")


def _other_platform(scene: Scene, match: Match) -> Iterator[Finding]:
    """uv has a lock without a file for this platform; an index of some packages only is another matter."""
    package = match.groups["package"]
    if scene.first("uv-from-index") and not scene.catalogue.builds(package.lower()):
        return
    hint, platform = _ON.search(scene.report.text), scene.platform
    arch = platform.arch or (hint[1] if hint else None) or "x86_64"
    system = platform.os or ("windows" if hint and hint[2] else "linux")
    names = {"windows": "win32", "linux": "linux"}
    machine = {"windows": {"x86_64": "AMD64", "aarch64": "ARM64"}}.get(system, {}).get(arch, arch)
    marker = f"sys_platform == '{names.get(system, 'darwin')}' and platform_machine == '{machine}'"
    # With a list of the platforms that the version has, uv says itself that there is none for this one.
    grounds = Grounds.SUGGESTED if scene.first("uv-wheels") and not is_locked(scene) else Grounds.STATED
    values = {"package": package, "platform": f"{system} {arch}"}
    fixes = [CAUSE.fix("required", marker=marker, package=package)]
    yield CAUSE.finding("platform", grounds, lines(match), fixes, ("no-such-build",), **values)


def from_environment(environment: Environment, scene: Scene) -> Iterator[Finding]:
    """Compare what torch requires with what is there."""
    return missing_parts(environment, scene)


def _missing(scene: Scene) -> Match | None:
    """A library that is not found; the CUDA runtime counts only if torch itself looks for it."""
    by_torch = scene.mentions("_load_global_deps", "import torch\n")
    return CAUSE.first(scene, "library") or (scene.first("cudart-missing") if by_torch else None)


def _incomplete(scene: Scene, missing: Match, about_lock: bool) -> Iterator[Finding]:
    library = missing.group("library")
    if about_lock or missing.signature.id == "system-path-library":
        grounds = Grounds.CONFIRMED if _pins(scene) else Grounds.STATED
        evidence, consequences = (*lines(missing), *torch_evidence(scene)), ("mixed-flavours",)
        library = library or "the CUDA runtime"
        yield CAUSE.finding("incomplete", grounds, evidence, _fixes(scene), consequences, library=library)
    elif not scene.first("cudart-missing") and not scene.mentions("onnxruntime", "cupy", "tensorflow"):
        library = library or "a library"
        yield CAUSE.finding("incomplete", Grounds.SUGGESTED, lines(missing), _fixes(scene), library=library)


def _pins(scene: Scene) -> list[str]:
    """The packages of the toolkit that this torch pins and that are not installed."""
    build = scene.torch.build if scene.torch else None
    names = [Requirement(line) for line in (build.requires if build else None) or () if is_toolkit_package(line)]
    return [f"{r.name}{r.specifier}" for r in names if r.name not in scene.report.installed]


def _fixes(scene: Scene) -> Iterator[Fix]:
    torch = scene.torch
    if scene.is_jetson or scene.mentions("jetson", "jetpack"):
        yield CAUSE.fix("jetson")
        return
    if torch and (pins := _pins(scene)):
        yield CAUSE.fix("pins", torch=torch.label, pins=" ".join(pins))
    else:
        yield CAUSE.fix("again", version=f"=={torch.version}" if torch and torch.version else "")
    for remedy in replacements(scene)[:1]:
        yield led_by(CAUSE.words("complete-build"), remedy)
    yield _new_lock(scene)


def _new_lock(scene: Scene) -> Fix:
    if scene.mentions("poetry"):
        return CAUSE.fix("poetry")
    if scene.mentions("uv sync", "uv.lock"):
        return CAUSE.fix("uv")
    named = re.search(r"torch==[\w.+]+", scene.report.text)
    return CAUSE.fix("lock", torch=named[0] if named else "torch")


# What torch needs to be loaded and is not there: never installed, or partly removed.


@dataclass(frozen=True, slots=True)
class _Gaps:
    """Requirements of torch that are not installed.

    Attributes:
        absent: Requirements of which nothing is installed.
        halved: Distributions of which files are gone.
        broken: Those, and those whose libraries are cut off.
        cut: Libraries that are cut off.
        nowhere: Names that torch's libraries need and that nothing finds.
    """

    absent: tuple[Requirement, ...]
    halved: tuple[Distribution, ...]
    broken: tuple[Distribution, ...]
    cut: tuple[Library, ...]
    nowhere: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.absent or self.broken or self.nowhere)


def missing_parts(environment: Environment, scene: Scene) -> Iterator[Finding]:
    """Compare what torch requires with what is there: distributions, the files of their records, and needed names."""
    torch = environment.torch
    if torch is not None and (gaps := _gaps(environment, torch)):
        evidence = (*_evidence(environment, torch, gaps), *environment.unreadable)
        what = ", and ".join(_words(gaps))
        yield CAUSE.finding("gap", Grounds.READ, evidence, [_fix(scene, torch, gaps)], what=what)
    yield from _unrecorded(environment, torch)
    yield from _conda(environment)


def _unrecorded(environment: Environment, torch: TorchFiles | None) -> Iterator[Finding]:
    """Packages that torch requires and whose RECORD is damaged: they cannot be compared or uninstalled."""
    own = torch_distribution(environment) if torch else None
    there = [own, *map(environment.distribution, needs(environment, own))] if own else []
    faulty = [one for one in there if one is not None and one.record_fault]
    if faulty:
        evidence = [f"{one.info}/RECORD {one.record_fault}" for one in faulty]
        pins = " ".join(f"{one.name}=={one.version}" if one.version else one.name for one in faulty)
        what = listed([one.label for one in faulty])
        yield CAUSE.finding("record", Grounds.NOTICED, evidence, [CAUSE.fix("record", pins=pins)], what=what)


def _gaps(environment: Environment, torch: TorchFiles) -> _Gaps:
    own = torch_distribution(environment)
    wanted = {name: r for name, r in needs(environment, own).items() if is_runtime_package(name)}
    there = [d for d in (own, *map(environment.distribution, wanted)) if d is not None]
    names = {d.name for d in there}
    # Late: a diagnosis of a text reads no libraries.
    from envsolve.environment.loader import unresolved

    nowhere = tuple(unresolved(environment)) if torch.toolkit else ()
    cut = tuple(library for library in environment.gpu_libraries if library.cut_off and library.owner in names)
    short = {library.owner for library in cut}
    return _Gaps(
        # conda and system packagers bring the libraries without the wheels: what another copy provides is no gap.
        tuple(r for name, r in wanted.items() if name not in names and (nowhere or "triton" in name)),
        tuple(d for d in there if _lost(d)),
        tuple(d for d in there if _lost(d) or d.name in short),
        cut,
        nowhere,
    )


def _lost(distribution: Distribution) -> list[str]:
    """Missing libraries and main modules; slim images leave out other sources on purpose."""
    return [p for p in distribution.missing if LIBRARY_FILE.search(p) or (p.endswith(".py") and p.count("/") <= 1)]


def _words(gaps: _Gaps) -> Iterator[str]:
    if gaps.absent:
        yield f"{listed([r.name for r in gaps.absent])} {'is' if len(gaps.absent) == 1 else 'are'} not installed"
    yield from (f"{PurePosixPath(_lost(d)[0]).name} of {d.label} is gone" for d in gaps.halved)
    yield from (f"{PurePosixPath(library.path).name} of {library.owner} is cut off" for library in gaps.cut)
    if gaps.nowhere and not (gaps.absent or gaps.broken):
        yield f"{listed(gaps.nowhere)} {'is' if len(gaps.nowhere) == 1 else 'are'} not found by the loader"


def _evidence(environment: Environment, torch: TorchFiles, gaps: _Gaps) -> Iterator[str]:
    own = torch_distribution(environment)
    place = own.info if own else torch.site
    yield from (f"{place}: requires {pinned(r)}, which is not installed" for r in gaps.absent)
    for distribution in gaps.halved:
        count = len(distribution.missing)
        yield f"{distribution.info}/RECORD: files that are gone: {count}, {_lost(distribution)[0]} among them"
    yield from (f"{library.path}: shorter than its own header says" for library in gaps.cut)
    if gaps.nowhere:
        yield f"{torch.site}/torch/lib: needs {listed(gaps.nowhere)}, which the loader does not find"
    yield f"{torch.site}/torch/version.py: {torch.label}"


def _fix(scene: Scene, torch: TorchFiles, gaps: _Gaps) -> Fix:
    installed = {d.name: d.version for d in gaps.broken}
    steps = []
    if gaps.absent:
        steps.append("pip install --no-deps " + " ".join(map(pinned, gaps.absent)))
    if again := [f"{name}=={version}" if version else name for name, version in installed.items() if name != "torch"]:
        steps.append("pip install --force-reinstall --no-deps " + " ".join(again))
    if "torch" in installed:
        steps.append(f"pip install --force-reinstall --no-deps {very_torch(scene, torch)}")
    if steps:
        return CAUSE.fix("missing", command=" && ".join(steps))
    return CAUSE.fix("torch", torch=very_torch(scene, torch))


def _conda(environment: Environment) -> Iterator[Finding]:
    broken = [p for p in environment.conda if any(LIBRARY_FILE.search(path) for path in p.missing)]
    if environment.kind in ("conda", "pixi") and broken:
        what = listed([f"{PurePosixPath(p.missing[0]).name} of {p.name} {p.version}" for p in broken])
        evidence = (f"{p.record}: {p.missing[0]} is gone" for p in broken)
        packages = " ".join(f"{p.name}={p.version}={p.build}" for p in broken)
        yield CAUSE.finding("conda", Grounds.READ, evidence, [CAUSE.fix("conda", packages=packages)], what=what)

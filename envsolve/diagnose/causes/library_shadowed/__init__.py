"""``library-shadowed``: another copy of a library is loaded before the environment's own."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from envsolve.binaries.names import ACCELERATOR_LIBRARY
from envsolve.diagnose.causes._shared import Cause, lines, shown_variable
from envsolve.diagnose.causes.library_mismatch import wheels_of_two_majors
from envsolve.diagnose.causes.library_mismatch.libraries import numbers, own_is_older
from envsolve.diagnose.model import Finding, Fix, Grounds, RuledOut
from envsolve.diagnose.scene import Scene
from envsolve.diagnose.signatures import Match
from envsolve.environment.model import Environment, Library, release
from envsolve.system.files import real_path
from envsolve.verify.report import Probe

if TYPE_CHECKING:
    from envsolve.environment.loader import Shadow

CAUSE = Cause.of(__name__)


def from_report(scene: Scene) -> Iterator[Finding]:
    """A symbol or a version that the loaded copy lacks."""
    match = CAUSE.first(scene)
    local = _OF_TOOLKIT.search(scene.report.text) if match and match.signature.id == "jax-older-library" else None
    if match and local:
        yield _of_jaxlib(match, local)
    elif match and wheels_of_two_majors(scene, match) is None and own_is_older(scene, match) is None:
        yield _shadowed(scene, match)
    if match := CAUSE.first(scene, "libstdcxx"):
        fixes = (CAUSE.fix("own-libstdcxx"), CAUSE.fix("newer-libstdcxx"))
        yield CAUSE.finding("libstdcxx", Grounds.STATED, lines(match), fixes, (), missing=match.groups["need"])


def from_environment(environment: Environment, scene: Scene) -> Iterator[Finding]:
    """Libraries that come before the environment's own and are older, or of unknown age."""
    # Late: a diagnosis of a text reads no libraries.
    from envsolve.environment.loader import shadows

    found = [(s, how) for s in shadows(environment) if (how := _older(environment, s))]
    if not found:
        return
    shadow, how = found[0]
    yield CAUSE.finding(
        "found",
        # The name of a copy may not tell its release: it may be the same one.
        Grounds.READ if shadow.outside_version is not None else Grounds.NOTICED,
        (f"{s.outside}: found before {s.own} ({h})" for s, h in found),
        off_the_path(environment, {shadow.folder for shadow, _ in found}),
        explains=(),
        needed_by=PurePosixPath(shadow.needed_by.path).name,
        name=shadow.name,
        directory=shadow.folder,
        how=how,
        owner=shadow.owner or "the environment",
    )


def from_probes(environment: Environment, probes: Sequence[Probe]) -> Iterator[Finding | RuledOut]:
    """Copies of the environment's own GPU libraries that a process mapped from elsewhere."""
    own = {library.soname: library for library in environment.libraries}
    mapped = _mapped_from_elsewhere(environment, own, probes)
    failed = next((probe for probe in probes if probe.failed and probe.name != "driver"), None)
    if failed is None:
        yield from (CAUSE.ruled_out("works", place=place, own=own[name].path) for name, place in mapped.items())
        return
    for name, place in list(mapped.items())[:1]:
        yield CAUSE.finding(
            "mapped",
            Grounds.READ,
            (f"mapped: {place}, not {own[name].path}" for name, place in mapped.items()),
            off_the_path(environment, {str(PurePosixPath(place).parent) for place in mapped.values()}),
            explains=(),
            name=name,
            place=place,
            owner=own[name].owner or "that",
            step=failed.name,
        )


def _mapped_from_elsewhere(
    environment: Environment, own: Mapping[str, Library], probes: Sequence[Probe]
) -> dict[str, str]:
    """The file by the name of the library that it replaces."""
    inside = {str(real_path(Path(environment.prefix))), *(library.real for library in environment.libraries)}
    found: dict[str, str] = {}
    for place in (line for probe in probes for line in probe.seen.get("mapped", "").splitlines()):
        name = PurePosixPath(place).name
        known = next((soname for soname in own if name == soname or name.startswith(f"{soname}.")), None)
        foreign = place not in inside and not any(place.startswith(f"{directory}/") for directory in inside)
        if known and ACCELERATOR_LIBRARY.fullmatch(known) and foreign:
            found.setdefault(known, place)
    return found


def off_the_path(environment: Environment, directories: Collection[str]) -> Iterator[Fix]:
    """Commands that take directories off the loader's path and leave the others on it."""
    bad = {real_path(Path(directory)) for directory in directories}
    listed = [entry.path for entry in environment.loader if entry.origin == "LD_LIBRARY_PATH"]
    rest = [path for path in listed if real_path(Path(path)) not in bad]
    if not listed:
        yield CAUSE.fix("other-origin")
        return
    yield CAUSE.fix("rest", rest=shlex.quote(":".join(rest))) if rest else CAUSE.fix("unset-path")
    yield CAUSE.fix("start-up-file")


def _of_jaxlib(match: Match, local: re.Match[str]) -> Finding:
    """A jaxlib without libraries of its own, which the machine's toolkit is too old for."""
    missing = CAUSE.words("built", built=match.groups["built"], found=match.groups["found"])
    fixes = [CAUSE.fix("jax-wheels", **local.groupdict())]
    return CAUSE.finding("toolkits", Grounds.STATED, lines(match), fixes, missing=missing, cuda=local["cuda"])


def _shadowed(scene: Scene, match: Match) -> Finding:
    path = shown_variable(scene, "LD_LIBRARY_PATH")
    missing = match.group("symbol", "library") or ""
    if not missing and "built" in match.groups:
        missing = CAUSE.words("built", built=match.groups["built"], found=match.groups["found"])
    library = next((name for name in ("nvjitlink", "cudnn") if name in match.quote.lower()), "cublas")
    module = "jax" if match.signature.id == "jax-older-library" else "torch"
    fixes = [CAUSE.fix(name, library=library, module=module) for name in ("unset", "first", "look")]
    if "built" in match.groups and library == "cudnn" and not path:
        fixes.insert(0, _newer(match.groups["built"]))
    if preloaded := shown_variable(scene, "LD_PRELOAD"):
        path, fixes = (*path, *preloaded), [CAUSE.fix("unset-preload")]
    elif missing.startswith("nccl") and not path:
        # The wheels of torch find NCCL by their own RPATH, before LD_LIBRARY_PATH: the copy there is another release.
        build = scene.torch.build if scene.torch else None
        pins = [line.split(";")[0].strip() for line in (build.requires if build else None) or () if "-nccl-" in line]
        fixes = [CAUSE.fix("nccl", pin=next(iter(pins), "nvidia-nccl-cu12")), fixes[0]]
    grounds = Grounds.CONFIRMED if path else Grounds.STATED
    return CAUSE.finding("shadowed", grounds, (*lines(match), *path), fixes, missing=missing)


#: A jaxlib that has no libraries of its own: it loads those of a toolkit on the machine.
_OF_TOOLKIT = re.compile(r"jaxlib==?(?P<version>0\.\d{1,2}\.\d{1,2})\+cuda(?P<cuda>1[12])\.cudnn\d\d")


#: The first cuDNN that programs for CUDA 12 are built with: JAX and TensorFlow for CUDA 11 have an older one.
_CUDNN_OF_CUDA_12 = (8, 9)


def _newer(built: str) -> Fix:
    """The wheel of a cuDNN that a program takes: nothing in the report shows a directory that comes before it."""
    major, minor, *_ = numbers(built)
    cuda = 12 if (major, minor) >= _CUDNN_OF_CUDA_12 else 11
    return CAUSE.fix("newer", cuda=cuda, built=f"{major}.{minor}", next=major + 1)


def _older(environment: Environment, shadow: Shadow) -> str | None:
    """How the copy outside differs, in words; None if it is the same or newer, which works as well."""
    owner = environment.distribution(shadow.owner) if shadow.owner else None
    own, outside = release(owner.version if owner else None), release(shadow.outside_version)
    if not own or not outside or owner is None:
        return CAUSE.words("unknown-release", beside=f", beside {owner.version}" if owner else "")
    shared = min(len(own), len(outside))
    older = outside[:shared] < own[:shared]
    return CAUSE.words("older", outside=shadow.outside_version, own=owner.version) if older else None

"""``libc-too-old``: the system's C library is older than the one that the wheels require."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from msgspec import structs

from envsolve.diagnose.causes._asked import asked_for
from envsolve.diagnose.causes._shared import Cause, lines
from envsolve.diagnose.fixes import conda_remedies, replacements, with_another_python
from envsolve.diagnose.model import Finding, Fix, Grounds
from envsolve.diagnose.rebuilding import build_variables, extension_named
from envsolve.diagnose.scene import Scene
from envsolve.diagnose.signatures import Match
from envsolve.machine.model import Platform
from envsolve.rules.platform import libc_needed, libc_of, libc_serves, libc_text

CAUSE = Cause.of(__name__)
#: What conda-forge builds for where it can.
_OLDEST = "glibc 2.17"
_UV_ASSUMES = re.compile(r"You're on Linux \(\W?manylinux_(?P<major>\d+)_(?P<minor>\d+)_(?P<arch>x86_64|aarch64)")
#: Characters of a report that are searched for uv's words, and of its hint after them.
_MOST, _HINT = 1_000_000, 800
Libc = tuple[str, tuple[int, int]]


def from_report(scene: Scene) -> Iterator[Finding]:
    """The loader names the missing version; a wheel's tag names the required one."""
    match, wheel = scene.first("glibc", "glibc-virtual"), scene.first("wheel-platform")
    libc = libc_of(scene.platform)
    if match:
        need = f"glibc {match.groups['need']}" if "need" in match.groups else CAUSE.words("newer")
        grounds = Grounds.CONFIRMED if libc else Grounds.STATED
        yield _finding(scene, grounds, [match], _fixes(scene, match.group("by")), need, explains=())
    elif wheel:
        needed = libc_needed(wheel.groups["wheel"].removesuffix(".whl").rpartition("-")[2])
        if needed and libc and needed[1] > libc[1]:
            need = f"glibc {_dotted(needed[1])}"
            yield _finding(scene, Grounds.CONFIRMED, [wheel], _fixes(scene), need, explains=())
    elif refused := _refused(scene):
        newer, found = refused
        hidden = " " + CAUSE.words("hidden")
        yield _finding(scene, Grounds.CONFIRMED, found, _fixes(scene), libc_text(newer), hidden=hidden)
    else:
        yield from _by_uv(scene, libc)


def _finding(
    scene: Scene,
    grounds: Grounds,
    matches: list[Match],
    fixes: Iterable[Fix],
    need: str,
    have: str | None = None,
    hidden: str = "",
    explains: tuple[str, ...] | None = None,
) -> Finding:
    libc = libc_of(scene.platform)
    own = CAUSE.words("has", version=_dotted(libc[1])) if libc else CAUSE.words("older")
    return CAUSE.finding("older", grounds, lines(*matches), fixes, explains, need=need, have=have or own, hidden=hidden)


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


def _by_uv(scene: Scene, libc: Libc | None) -> Iterator[Finding]:
    """uv says which C library it assumes; it remembers what it read from an interpreter, across system updates."""
    match, said = scene.first("uv-wheels", "uv-platform"), _UV_ASSUMES.search(scene.report.text[:_MOST])
    if match is None or said is None:
        return
    assumed = (int(said["major"]), int(said["minor"]))
    tags = re.findall(rf"manylinux_\d+_\d+_{said['arch']}", scene.report.text[said.end() : said.end() + _HINT])
    needs = [needed[1] for tag in tags if (needed := libc_needed(tag))]
    if needs and min(needs) > assumed:
        stale = libc is not None and libc[1] >= min(needs)
        refresh = [CAUSE.fix("refresh")] if stale or libc is None else []
        fixes = (*refresh, *_fixes(scene)) if stale else (*_fixes(_with_libc(scene, assumed)), *refresh)
        have = CAUSE.words("uv-assumes", version=_dotted(assumed))
        yield _finding(scene, Grounds.CONFIRMED, [match], fixes, f"glibc {_dotted(min(needs))}", have)


def _with_libc(scene: Scene, version: tuple[int, int]) -> Scene:
    """The scene on machines with a C library that the report states only by what an installer assumes."""
    libc = f"glibc {_dotted(version)}"
    platforms = (machine.platform or Platform() for machine in scene.machines)
    changed = zip(scene.machines, platforms, strict=True)
    machines = tuple(structs.replace(m, platform=structs.replace(p, libc=p.libc or libc)) for m, p in changed)
    return replace(scene, machines=machines)


def _refused(scene: Scene) -> tuple[Libc, list[Match]] | None:
    """The C library that the requested files need, if an installer hides them because the machine's is older."""
    have = libc_of(scene.platform)
    if (asked := asked_for(scene)) and asked.libc:
        return asked.libc, [asked.match, *scene.found("uv-platform")[:1]]
    for match in scene.found("uv-platform") if have else ():
        tags = re.findall(r"\w+linux\w+", match.groups["platforms"])
        arch = scene.platform.arch or ""
        needs = [need for tag in tags if arch in tag and (need := libc_needed(tag))]
        if have and needs and not any(libc_serves(have, need) for need in needs):
            return min(needs, key=lambda need: need[1]), [match]
    return None


def _fixes(scene: Scene, by: str | None = None) -> Iterator[Fix]:
    """Builds for an older glibc, if torch requires the newer one; otherwise what was compiled elsewhere, built here."""
    if by and not _is_torchs(by):
        package = _package(scene, by)
        yield CAUSE.fix(
            "rebuild", library=by.rpartition("/")[2], package=package, force=build_variables(scene, package)
        )
    elif libc_of(scene.platform) is not None:
        yield from replacements(scene)
        if another := with_another_python(scene):
            yield another
    if scene.first("glibc-virtual"):
        old = structs.replace(scene.platform, libc=_OLDEST)
        machines = tuple(structs.replace(machine, platform=old) for machine in scene.machines)
        yield from conda_remedies(replace(scene, machines=machines))
    yield CAUSE.fix("container")


def _package(scene: Scene, library: str) -> str:
    """The package of a library: that of its directory, otherwise the one whose module it is."""
    found = re.search(r"-packages/(\w+)/", library)
    if found:
        return found[1].replace("_", "-")
    module = library.rpartition("/")[2].partition(".")[0]
    return extension_named(scene, library) or module.replace("_", "-")


def _is_torchs(library: str) -> bool:
    """Whether a library comes with torch: its own, or one of the GPU libraries that it requires."""
    return bool(re.match(r"lib(torch|c10|cu|nv|nccl|shm)", library.rpartition("/")[2]))

"""``libc-too-old``: the host's C library is older than what the wheels were built on."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from msgspec import structs

from envsolve.diagnose.causes._asked import asked_for
from envsolve.diagnose.causes._shared import lines
from envsolve.diagnose.model import Finding, Grounds, Remedy, RuledOut
from envsolve.diagnose.remedies.torch import conda_remedies, replacements, with_another_python
from envsolve.diagnose.scene import Scene
from envsolve.diagnose.signatures import Match
from envsolve.machine.model import Platform
from envsolve.rules.platform import libc_needed, libc_of, libc_serves, libc_text

#: What conda-forge builds for where it can.
_OLDEST = "glibc 2.17"

_EXPLANATION = (
    "Programs run on the glibc that they were built on or a newer one: {need} is asked for, and {have}. glibc is "
    "part of the operating system and must not be replaced in place. Either a build for an older glibc is used, or "
    "the program runs in a container with a newer one."
)

_HIDDEN = " Installers do not show files that the system cannot run, and so say that there is no such version."


_ASK_AGAIN = Remedy(
    "The system's glibc is new enough: uv remembers an older one of this interpreter. Let it ask again.",
    "uv cache clean && uv sync --refresh",
)
_UVS = re.compile(r"You're on Linux \(\W?manylinux_(?P<major>\d+)_(?P<minor>\d+)_(?P<arch>x86_64|aarch64)")
#: Characters of a report that are looked at for uv's words, and of its hint after them.
_MOST, _HINT = 1_000_000, 800


def weigh(scene: Scene) -> Iterator[Finding | RuledOut]:
    """The loader names the version that is missing; a wheel's tag names the one that it needs."""
    match = scene.first("glibc", "glibc-virtual")
    wheel = scene.first("wheel-platform")
    libc = libc_of(scene.machine.platform)
    have = f"the system has glibc {libc[1][0]}.{libc[1][1]}" if libc else "the system's is older"
    if match:
        need = f"glibc {match.groups['need']}" if "need" in match.groups else "a newer glibc"
        text = _EXPLANATION.format(need=need, have=have)
        evidence = lines(match)
        grounds = Grounds.CONFIRMED if libc else Grounds.STATED
        yield Finding("libc-too-old", grounds, text, evidence, tuple(_remedies(scene, match.group("by"))))
    elif wheel:
        needed = libc_needed(wheel.groups["wheel"].removesuffix(".whl").rpartition("-")[2])
        if needed and libc and needed[1] > libc[1]:
            text = _EXPLANATION.format(need=f"glibc {needed[1][0]}.{needed[1][1]}", have=have)
            yield Finding("libc-too-old", Grounds.CONFIRMED, text, lines(wheel), tuple(_remedies(scene)))
    elif refused := _refused(scene):
        newer, found = refused
        text = _EXPLANATION.format(need=libc_text(newer), have=have) + _HIDDEN
        explains = frozenset({"no-such-build", "index-confusion", "python-caps-build"})
        yield Finding("libc-too-old", Grounds.CONFIRMED, text, lines(*found), tuple(_remedies(scene)), explains)
    else:
        yield from _by_uv(scene)


def _by_uv(scene: Scene) -> Iterator[Finding]:
    """uv says which C library it counts with; it keeps what it once asked of an interpreter, across updates."""
    match, said = scene.first("uv-wheels", "uv-platform"), _UVS.search(scene.report.text[:_MOST])
    if match is None or said is None:
        return
    counted = (int(said["major"]), int(said["minor"]))
    tags = re.findall(rf"manylinux_\d+_\d+_{said['arch']}", scene.report.text[said.end() : said.end() + _HINT])
    needs = [needed[1] for tag in tags if (needed := libc_needed(tag))]
    if not needs or min(needs) <= counted:
        return
    need, libc = min(needs), libc_of(scene.machine.platform)
    stale = libc is not None and libc[1] >= need
    have = f"uv counts with glibc {counted[0]}.{counted[1]}"
    text = _EXPLANATION.format(need=f"glibc {need[0]}.{need[1]}", have=have)
    remedies = [_ASK_AGAIN] if stale else []
    explains = frozenset({"no-such-build", "index-confusion", "python-caps-build"})
    yield Finding("libc-too-old", Grounds.CONFIRMED, text, lines(match), (*remedies, *_remedies(scene)), explains)


def _refused(scene: Scene) -> tuple[tuple[str, tuple[int, int]], list[Match]] | None:
    """The C library that the files asked for need, where an installer hides them: the machine's is older."""
    have = libc_of(scene.machine.platform)
    if (asked := asked_for(scene)) and asked.libc:
        return asked.libc, [asked.match, *scene.found("uv-platform")[:1]]
    if have is None:
        return None
    for match in scene.found("uv-platform"):
        tags = re.findall(r"\w+linux\w+", match.groups["platforms"])
        arch = scene.machine.platform.arch if scene.machine.platform else None
        needs = [need for tag in tags if (arch or "") in tag and (need := libc_needed(tag))]
        if needs and not any(libc_serves(have, need) for need in needs):
            return min(needs, key=lambda need: need[1]), [match]
    return None


def _remedies(scene: Scene, by: str | None = None) -> Iterator[Remedy]:
    """Builds for an older glibc, where torch asks for the newer one; else what was compiled elsewhere, made here."""
    if by and not _is_torchs(by):
        yield Remedy(
            f"Build {by.rpartition('/')[2]} on this system: it was compiled on a newer one, and torch itself is not "
            f"concerned.",
            "pip install --no-build-isolation --no-cache-dir --force-reinstall --no-deps --no-binary :all: PACKAGE",
        )
    elif libc_of(scene.machine.platform) is not None:
        yield from replacements(scene)
        another = with_another_python(scene)
        if another:
            yield another[1]
    if scene.first("glibc-virtual"):
        old = structs.replace(scene.machine.platform or Platform(), libc=_OLDEST)
        machines = tuple(structs.replace(machine, platform=old) for machine in scene.machines)
        yield from conda_remedies(replace(scene, machines=machines))
    yield Remedy(
        "Run in a container whose system has a newer glibc (Ubuntu 22.04 has 2.35): the host's driver serves it.",
        "apptainer exec --nv docker://ubuntu:22.04 ...  # or: docker run --gpus all ubuntu:22.04 ...",
    )


def _is_torchs(library: str) -> bool:
    """Whether a library comes with torch: its own, or one of the CUDA libraries that it brings."""
    name = library.rpartition("/")[2]
    return bool(re.match(r"lib(torch|c10|cu|nv|nccl|shm)", name))

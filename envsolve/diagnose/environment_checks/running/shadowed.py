"""``library-shadowed``: LD_LIBRARY_PATH puts an older copy before the environment's own library."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator
from pathlib import Path, PurePosixPath

from envsolve.diagnose.model import Finding, Grounds, Remedy
from envsolve.diagnose.scene import Scene
from envsolve.environment.loader import Shadow, shadows
from envsolve.environment.model import Environment, release
from envsolve.system.files import real_path

_EXPLANATION = (
    "Torch's own libraries find NVIDIA's by a path inside them, but these find each other by a path that counts "
    "only after LD_LIBRARY_PATH. So {needed_by} gets {name} from {folder}, {how}, and not the copy of {owner} that "
    "was installed with it. Nothing has to be installed: that folder must leave the loader's path."
)


def check(environment: Environment, scene: Scene) -> Iterator[Finding]:
    """Libraries that are older than the environment's own, or of unknown age."""
    found = [(s, how) for s in shadows(environment) if (how := _older(environment, s))]
    if not found:
        return
    shadow, how = found[0]
    text = _EXPLANATION.format(
        needed_by=PurePosixPath(shadow.needed_by.path).name,
        name=shadow.name,
        folder=shadow.folder,
        how=how,
        owner=shadow.owner or "the environment",
    )
    evidence = tuple(f"{s.outside}: found before {s.own} ({h})" for s, h in found)
    certain = shadow.outside_version is not None
    grounds = Grounds.READ if certain else Grounds.NOTICED
    yield Finding(
        "library-shadowed",
        grounds,
        text,
        evidence,
        tuple(off_the_path(environment, {shadow.folder for shadow, _ in found})),
    )


def _older(environment: Environment, shadow: Shadow) -> str | None:
    """How the copy outside differs, in words; None where it is the same or newer, which serves as well."""
    owner = environment.distribution(shadow.owner) if shadow.owner else None
    own, outside = release(owner.version if owner else None), release(shadow.outside_version)
    if not own or not outside:
        return f"a copy whose release its name does not tell{f', beside {owner.version}' if owner else ''}"
    shared = min(len(own), len(outside))
    return (
        f"release {shadow.outside_version}, older than {owner.version}"
        if outside[:shared] < own[:shared] and owner
        else None
    )


def off_the_path(environment: Environment, folders: Collection[str]) -> Iterator[Remedy]:
    """Commands that take folders off the loader's path, the others left on it."""
    bad = {real_path(Path(folder)) for folder in folders}
    listed = [f.path for f in environment.loader if f.origin == "LD_LIBRARY_PATH"]
    rest = [path for path in listed if real_path(Path(path)) not in bad]
    if not listed:
        yield Remedy("Find what brings those copies in (LD_PRELOAD, a library loaded before torch), and leave it out.")
        return
    if rest:
        text = "Take the folder off the loader's path and leave the others."
        yield Remedy(text, f"export LD_LIBRARY_PATH={shlex.quote(':'.join(rest))}")
    else:
        yield Remedy("Start the program without LD_LIBRARY_PATH: torch's wheels need none.", "unset LD_LIBRARY_PATH")
    yield Remedy("Then take it out of the shell's start-up file, or of the module that sets it.")

"""``library-mismatch``: wheels of NVIDIA libraries that overwrite each other, or are not those that torch pins."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath

from packaging.requirements import Requirement

from envsolve.binaries.library import LIBRARY_FILE
from envsolve.diagnose.model import Finding, Grounds, Remedy
from envsolve.diagnose.scene import Scene
from envsolve.environment.model import (
    Distribution,
    Environment,
    needs,
    pinned,
    pinned_version,
    release,
    satisfies,
    torch_distribution,
)

_NVIDIA = re.compile(r"nvidia-[a-z0-9-]+")

_OVERLAP = (
    "{one} and {other} install the same files, and whichever came last is what is on disk: {file} is not the one "
    "that {one} brought. {asks} asks for {one}, and meets the library of another CUDA. Uninstalling one also takes "
    "files of the other away, so the needed one must be installed again afterwards."
)
_OTHER = (
    "Torch is linked against NVIDIA's libraries of exact releases, which its metadata pins: {pin}. Installed is "
    "{have}, {how}, so functions that torch was built to call may be missing or behave otherwise. The pinned "
    "release puts it right, and nothing else has to change."
)
_TWICE = (
    "{name} has two records in one folder: {versions}. An install that was stopped, or two installers, left the "
    "older one behind, and the files on disk are a mixture. Removing both and installing the needed one makes it "
    "whole."
)


def check(environment: Environment, scene: Scene) -> Iterator[Finding]:
    """Overlaps first: they explain the rest."""
    wheels = [d for d in environment.distributions if _NVIDIA.fullmatch(d.name)]
    wanted = needs(environment, torch_distribution(environment))
    found = [*_overlaps(environment, wheels), *_twice(wheels, wanted), *_others(wheels, wanted)]
    yield from found[:1]


def _overlaps(environment: Environment, wheels: Sequence[Distribution]) -> Iterator[Finding]:
    """A wheel that somebody needs, whose library another wheel has overwritten."""
    for one in wheels:
        claimed = {path for path in one.altered if LIBRARY_FILE.search(path)}
        for other in wheels if claimed else ():
            shared = sorted(claimed & set(other.files or ())) if other.site == one.site and other is not one else []
            asking = [d for d in environment.distributions if one.name in needs(environment, d)] if shared else []
            if not asking:
                continue
            keeps = [d for d in environment.distributions if other.name in needs(environment, d)]
            text = _OVERLAP.format(one=one.label, other=other.label, file=shared[0], asks=asking[0].label)
            evidence = (
                f"{one.site}/{shared[0]}: of another size than {PurePosixPath(one.info).name}/RECORD says",
                f"{one.info}: {one.label}, which {asking[0].label} requires",
                f"{other.info}: {other.label}, which has the same files",
            )
            yield Finding("library-mismatch", Grounds.READ, text, evidence, tuple(_untangle(one, other, keeps)))


def _untangle(one: Distribution, other: Distribution, keeps: Sequence[Distribution]) -> Iterator[Remedy]:
    again = f"pip install --force-reinstall --no-deps {one.name}=={one.version}"
    if not keeps:
        text = f"Remove {other.name}, which nothing requires, and install {one.label} again."
        yield Remedy(text, f"pip uninstall -y {other.name} && {again}")
        return
    names = " and ".join(dict.fromkeys(d.label for d in keeps))
    yield Remedy(f"Put the files of {one.label} back; {names} then meets them instead of its own.", again)
    yield Remedy(f"Give {names}, which requires {other.name}, an environment of its own, or a build of torch's CUDA.")


def _twice(wheels: Sequence[Distribution], wanted: Mapping[str, Requirement]) -> Iterator[Finding]:
    for name in dict.fromkeys(d.name for d in wheels):
        same = [d for d in wheels if d.name == name and d.site == next(w.site for w in wheels if w.name == name)]
        if len(same) < 2:
            continue
        requirement = wanted.get(name)
        keep = pinned(requirement) if requirement else f"{name}=={max(same, key=lambda d: release(d.version)).version}"
        removals = " && ".join([f"pip uninstall -y {name}"] * len(same))
        text = _TWICE.format(name=name, versions=" and ".join(d.version or "?" for d in same))
        remedy = Remedy(f"Remove both and install {keep}.", f"{removals} && pip install --no-deps {keep}")
        yield Finding("library-mismatch", Grounds.READ, text, tuple(f"{d.info}: {d.label}" for d in same), (remedy,))


def _others(wheels: Sequence[Distribution], wanted: Mapping[str, Requirement]) -> Iterator[Finding]:
    """Pinned libraries that are there in an older release or another major; a newer one of the same major serves."""
    found = []
    for name, requirement in wanted.items():
        have = next((d for d in wheels if d.name == name), None)
        pin = pinned_version(requirement)
        if have is None or pin is None or satisfies(have.version, requirement.specifier):
            continue
        got, need = release(have.version), release(pin)
        if got and (got < need or got[0] != need[0]):
            found.append((have, requirement, "which is older" if got < need else "which is another major"))
    if not found:
        return
    have, requirement, how = found[0]
    text = _OTHER.format(pin=pinned(requirement), have=have.label, how=how)
    evidence = tuple(f"{d.info}: {d.label}, and torch pins {r.specifier}" for d, r, _ in found)
    command = "pip install --force-reinstall --no-deps " + " ".join(pinned(r) for _, r, _ in found)
    remedy = Remedy("Put back the releases that this torch pins.", command)
    # Only the numbers after the second differ: most often that does no harm.
    far = any(release(d.version)[:2] != release(pinned_version(r))[:2] for d, r, _ in found)
    grounds = Grounds.READ if far else Grounds.NOTICED
    yield Finding("library-mismatch", grounds, text, evidence, (remedy,))

"""``lock-incomplete``: a lock, or another way of leaving dependencies out, brought torch without its CUDA libraries."""

from __future__ import annotations

import re
from collections.abc import Iterator

from packaging.requirements import Requirement

from envsolve.diagnose.causes._shared import lines
from envsolve.diagnose.model import Finding, Grounds, Remedy, RuledOut
from envsolve.diagnose.remedies.torch import led_by, replacements
from envsolve.diagnose.scene import Scene

_EXPLANATION = (
    "Torch's wheels get their CUDA libraries from nvidia-* packages, which each wheel's own METADATA asks for; here "
    "{library} is not there. A lock made from another file of the same version (a macOS or Windows wheel, or an "
    "index that answered for one of them) leaves those packages out, and so does --no-deps. Toolkits of the system "
    "are no substitute: the packages that this torch pins are."
)
_HASH = (
    "A lock names files by hash, and the file that the index serves now is another one, or is gone. Files were "
    "uploaded again or removed after the lock was made. The lock has to be made anew; the hash must not be dropped, "
    "since it is what tells a changed file from the meant one."
)


def weigh(scene: Scene) -> Iterator[Finding | RuledOut]:
    """A library of torch's own that is missing, or a file that a lock names and the index has not."""
    missing = scene.first("system-path-library", "cuda-library-missing")
    if missing is None and (scene.first("cudart-missing") and scene.mentions("_load_global_deps", "import torch\n")):
        missing = scene.first("cudart-missing")
    hashes = scene.first("hash-mismatch")
    gone = scene.first("wheel-gone")
    if missing and (about_lock := _about_lock(scene) or missing.signature.id == "system-path-library"):
        library = missing.group("library") or "the CUDA runtime"
        text = _EXPLANATION.format(library=library)
        evidence = (*lines(missing), *(scene.torch.evidence if scene.torch else ()))
        grounds = Grounds.CONFIRMED if about_lock and _pins(scene) else Grounds.STATED
        yield Finding(
            "lock-incomplete", grounds, text, evidence, tuple(_remedies(scene)), frozenset({"mixed-flavours"})
        )
    elif missing and not scene.first("cudart-missing") and not scene.mentions("onnxruntime", "cupy", "tensorflow"):
        text = _EXPLANATION.format(library=missing.group("library") or "a library")
        yield Finding("lock-incomplete", Grounds.SUGGESTED, text, lines(missing), tuple(_remedies(scene)))
    if hashes:
        yield Finding("lock-incomplete", Grounds.STATED, _HASH, lines(hashes), tuple(_anew(scene)))
    elif gone and _about_lock(scene):
        yield Finding("lock-incomplete", Grounds.STATED, _HASH, lines(gone), tuple(_anew(scene)))


def _about_lock(scene: Scene) -> bool:
    return scene.mentions(
        "poetry", ".lock", "pylock", "uv sync", "pdm ", "pipenv", "--no-deps", "--require-hashes", "frozen"
    )


def _pins(scene: Scene) -> list[str]:
    """The nvidia packages that this torch pins and that are not installed."""
    build = scene.torch.build if scene.torch else None
    names = [Requirement(line) for line in (build.requires if build else None) or () if line.startswith("nvidia-")]
    return [f"{r.name}{r.specifier}" for r in names if r.name not in scene.report.installed]


def _remedies(scene: Scene) -> Iterator[Remedy]:
    pins = _pins(scene)
    torch = scene.torch
    if pins and torch:
        text = f"Add the packages that {torch.label} pins, now and to the lock: nvidia-* of exactly these versions."
        yield Remedy(text, "pip install --no-deps " + " ".join(pins))
    else:
        version = f"=={torch.version}" if torch and torch.version else ""
        text = "Install torch again with its dependencies, so that its nvidia-* packages come with it."
        yield Remedy(text, f"pip install --force-reinstall torch{version}")
    for remedy in replacements(scene)[:1]:
        yield led_by("Or take a build whose lock is whole", remedy)
    yield from _anew(scene)


def _anew(scene: Scene) -> Iterator[Remedy]:
    if scene.mentions("poetry"):
        yield Remedy(
            "Make the lock anew, from the index's present metadata.", "poetry lock --no-cache && poetry install"
        )
    elif scene.mentions("uv sync", "uv.lock"):
        yield Remedy("Make the lock anew, from the index's present files.", "uv lock --refresh && uv sync")
    else:
        named = re.search(r"torch==[\w.+]+", scene.report.text)
        asked = named[0] if named else "torch"
        yield Remedy(
            "Make a lock with every dependency and hash for this machine.",
            f"envsolve plan {asked} --format pylock -o pylock.toml",
        )

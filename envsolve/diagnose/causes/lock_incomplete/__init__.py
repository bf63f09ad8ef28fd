"""``lock-incomplete``: a lock, or another way of leaving dependencies out, brought torch without its libraries."""

from __future__ import annotations

import re
from collections.abc import Iterator

from packaging.requirements import Requirement

from envsolve.diagnose.causes._shared import Cause, lines, torch_evidence
from envsolve.diagnose.causes.lock_incomplete._installed import missing_parts
from envsolve.diagnose.model import Finding, Fix, Grounds
from envsolve.diagnose.remedies.torch import led_by, replacements
from envsolve.diagnose.scene import Scene
from envsolve.diagnose.signatures import Match
from envsolve.environment.model import Environment

CAUSE = Cause.of(__name__)
_LOCKS = ("poetry", ".lock", "pylock", "uv sync", "pdm ", "pipenv", "--no-deps", "--require-hashes", "frozen")


def from_report(scene: Scene) -> Iterator[Finding]:
    """A library of torch's own that is missing, or a file that a lock names and the index does not have."""
    about_lock = scene.mentions(*_LOCKS)
    if missing := _missing(scene):
        yield from _incomplete(scene, missing, about_lock)
    changed = CAUSE.first(scene, "hash") or (CAUSE.first(scene, "gone") if about_lock else None)
    if changed:
        yield CAUSE.finding("changed", Grounds.STATED, lines(changed), [_new_lock(scene)])


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
    """The nvidia packages that this torch pins and that are not installed."""
    build = scene.torch.build if scene.torch else None
    names = [Requirement(line) for line in (build.requires if build else None) or () if line.startswith("nvidia-")]
    return [f"{r.name}{r.specifier}" for r in names if r.name not in scene.report.installed]


def _fixes(scene: Scene) -> Iterator[Fix]:
    torch = scene.torch
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

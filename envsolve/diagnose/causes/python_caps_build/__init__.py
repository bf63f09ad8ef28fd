"""``python-caps-build``: no build for the environment's Python is new enough."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from packaging.utils import canonicalize_name

from envsolve.diagnose.causes._asked import Asked, another_python, looked_up, nearest, python_for
from envsolve.diagnose.causes._shared import Cause, gpu_names, lines, torch_evidence
from envsolve.diagnose.causes.no_kernel_for_gpu import failure, lacking
from envsolve.diagnose.fixes import conda_remedies, led_by, replacements, with_another_python
from envsolve.diagnose.model import Finding, Fix, Grounds
from envsolve.diagnose.scene import Scene
from envsolve.diagnose.signatures import Match

CAUSE = Cause.of(__name__)


def from_report(scene: Scene) -> Iterator[Finding]:
    """No build with code for the GPU is for this Python, or an installer says that the Python does not fit."""
    yield from _capped(scene)
    if scene.first("conflict-unavailable"):
        return
    if asked := looked_up(scene):
        yield from _looked_up(scene, asked)
    if match := scene.first("requires-python"):
        range_ = match.group("range", "other") or ""
        yield _out_of_range(scene, [match], range_, [python_for(scene, range_)], have=match.group("have"))
    if (match := scene.first("uv-wheels")) and match.groups["what"].lower() != "platform":
        yield _other_wheels(scene, match)
    if match := scene.first("conda-python"):
        range_ = match.group("range", "classic") or ""
        yield _out_of_range(scene, [match], range_, [another_python(range_), *_conda(scene)])


def _capped(scene: Scene) -> Iterator[Finding]:
    missing, torch = lacking(scene), scene.torch
    if missing and torch and (another := with_another_python(scene)):
        evidence = (*lines(failure(scene)), *torch_evidence(scene), torch.code_from or "", *scene.gpu_evidence)
        consequences = ("no-kernel-for-gpu", "nvcc-torch-mismatch", "nvcc-arch-unknown")
        values = {"gpus": gpu_names(missing), "python": scene.python}
        yield CAUSE.finding("capped", Grounds.DERIVED, evidence, [another], consequences, **values)


def _looked_up(scene: Scene, asked: Asked) -> Iterator[Finding]:
    pythons, evidence = asked.pythons, lines(asked.match)
    if (
        asked.match.signature.id == "poetry-none"
        and asked.here
        and asked.why in ("another-index", "python")
        and not ("+" in asked.wanted and scene.mentions("macos", "darwin", "apple", "macbook", "osx"))
    ):
        # The lock names the index, so that it is the Python of the environment that no file fits.
        fix = CAUSE.fix("poetry-python", python=pythons[-1], pythons=", ".join(pythons), asked=asked.words)
        yield _published(Grounds.STATED, evidence, [fix], asked.words, scene.python or "(not known)", pythons)
        return
    if asked.why == "python-range":
        range_ = asked.ignored or ""
        matches = [asked.match, *scene.found("pip-ignored")[:1]]
        yield _out_of_range(scene, matches, range_, [python_for(scene, range_)], ("no-such-build",))
    elif asked.why == "python":
        fixes = (*nearest(scene, asked.name, ""), another_python(pythons[-1]))
        yield _published(Grounds.CONFIRMED, evidence, fixes, asked.words, scene.python, pythons)
    elif asked.why == "another-index" and scene.python is None:
        # Which Python it is decides first, and the report does not say.
        fixes = nearest(scene, asked.name, asked.wanted)
        if "+" in asked.wanted:
            # Exactly this build exists: another variant is no fix.
            fixes = fixes[-1:]
        yield _published(Grounds.SUGGESTED, evidence, fixes, asked.words, "(not known)", pythons, ())


def _other_wheels(scene: Scene, match: Match) -> Finding:
    """uv itself says which part of the tags does not fit."""
    name, version = match.group("package", "name") or "it", match.group("version")
    listed = sorted(set(re.findall(r"cp3(\d+)", scene.report.text)), key=int)
    fixes = (*nearest(scene, canonicalize_name(name), f"=={version}" if version else ""), another_python(""))
    words = f"{name} {version}" if version else name
    pythons = [f"3.{minor}" for minor in listed] or ["others"]
    return _published(Grounds.STATED, lines(match), fixes, words, scene.python or "this one", pythons)


def _published(
    grounds: Grounds,
    evidence: Iterable[str],
    fixes: Iterable[Fix],
    asked: str,
    python: str | None,
    pythons: list[str],
    explains: tuple[str, ...] = ("no-such-build",),
) -> Finding:
    values = {"asked": asked, "python": python, "pythons": ", ".join(pythons)}
    return CAUSE.finding("published", grounds, evidence, fixes, explains, **values)


def _out_of_range(
    scene: Scene,
    matches: list[Match],
    range_: str,
    fixes: Iterable[Fix],
    explains: tuple[str, ...] = (),
    have: str | None = None,
) -> Finding:
    values = {"python": have or scene.python or "this one", "range": range_}
    return CAUSE.finding("range", Grounds.STATED, lines(*matches), fixes, explains, **values)


def _conda(scene: Scene) -> Iterator[Fix]:
    for remedy in conda_remedies(scene)[-1:]:
        yield led_by(Cause("no-such-build").words("conda-forge"), remedy)
    yield from replacements(scene)[:1]

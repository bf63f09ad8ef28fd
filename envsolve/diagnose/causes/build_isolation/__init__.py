"""``build-isolation``: the build runs in an environment of its own, which has no torch."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envsolve.diagnose.causes._shared import BUILDING, EXTENSIONS, Cause, lines, may_be_built
from envsolve.diagnose.fixes import installer, replacements
from envsolve.diagnose.model import Finding, Fix, Grounds
from envsolve.diagnose.project_fixes import project_of_report
from envsolve.diagnose.scene import Scene
from envsolve.diagnose.signatures import search_near

CAUSE = Cause.of(__name__)
_INSTALLED = re.compile(r"(?:pip3? install|uv add|uv pip install) (?:-\S+ )*([^\s|&;`'\"]+)")
_COLLECTED = re.compile(r"^\s{0,8}Collecting (?!torch\b)([A-Za-z][\w.-]*(?:==\d[\w.]*)?)", re.MULTILINE)
_PINNED = re.compile(r"^\s{0,8}Collecting (torch==\d[\w.]*)(?!\S)", re.MULTILINE)
_FAILED = re.compile(
    r"[Ff]ailed to (?:download and )?build:? [`']?([\w.-]+(?:==[\w.+]+)?)|`([\w.-]+)@([\w.+]+)` depends\b"
)


def from_report(scene: Scene) -> Iterator[Finding]:
    """The import fails while something is built; at run time the same words are those of dependency-missing."""
    match = CAUSE.first(scene, "undeclared", "error")
    if match is None:
        yield from _another_torch(scene)
        return
    building = match.signature.role == "undeclared" or scene.mentions(*BUILDING)
    if building or may_be_built(scene):
        grounds = Grounds.STATED if building else Grounds.SUGGESTED
        yield CAUSE.finding("isolated", grounds, lines(match), _fixes(scene))


_OVERLAY = re.compile(r"(?:pip-build-env|builds-v0)[^\s:]{0,120}[\\/]torch[\\/]")


def _another_torch(scene: Scene) -> Iterator[Finding]:
    """The isolated build installs its own, newest torch, whose CUDA does not match this driver or toolkit."""
    path = search_near(scene.report.text, _OVERLAY, "pip-build-env", "builds-v0")
    match = scene.first("driver-old-found", "nvcc-torch", "nvcc-torch-apex")
    if path and match:
        explains = ("driver-too-old", "nvcc-torch-mismatch")
        yield CAUSE.finding("another-torch", Grounds.STATED, lines(match), _with_torch(scene), explains)


def _with_torch(scene: Scene) -> Iterator[Fix]:
    """The build in the environment itself, after a torch for this driver if none is known to be there."""
    build = CAUSE.fix("build", pip=installer(scene), package=_package(scene), torch="")
    if scene.torch is None and (found := replacements(scene)[:1]):
        yield Fix(f"{found[0].text} {build.text}", f"{found[0].command} && {build.command}")
    else:
        yield build


def _package(scene: Scene) -> str:
    """The package that was being built, as the installer or otherwise the command names it."""
    failed = _FAILED.search(scene.report.text)
    if failed:
        return failed[1] or f"{failed[2]}=={failed[3]}"
    # pip builds the metadata of one package after the other, and stops at the one that it collected last.
    before, _, _ = scene.report.text.partition("No module named 'torch'")
    for collected in reversed([*_COLLECTED.finditer(before)]):
        return collected[1]
    named = _INSTALLED.search(scene.report.text)
    if named and named[1] != "torch":
        return f"-r {named[1]}" if named[1].endswith(".txt") else named[1]
    if cloned := re.search(r"(?:Updat\w+|Cloning|Cloned) (https://\S{1,200}?\.git)\b", scene.report.text):
        return f"git+{cloned[1]}"
    return next((name for name in EXTENSIONS if scene.mentions(name)), "PACKAGE")


def _fixes(scene: Scene) -> Iterator[Fix]:
    package = _package(scene)
    project = project_of_report(scene)
    if project and project.tool in ("uv", "pixi"):
        name = re.split(r"[\[=<>~! @]", package)[0]
        fix = CAUSE.fix(project.tool, package=name)
        lines_of = {
            "uv": (
                "[tool.uv.extra-build-dependencies]",
                f'{name} = [{{ requirement = "torch", match-runtime = true }}]',
            ),
            "pixi": ("[pypi-options]", f'no-build-isolation = ["{name}"]'),
        }
        yield Fix("\n".join((fix.text, *lines_of[project.tool])), fix.command)
    # Without isolation the build sees the environment itself, which must have torch by then; an installed one stays.
    # On Windows the default index has torch without CUDA only, and a torch that is there may be of another index.
    known = scene.os == "windows" or (scene.torch is not None and scene.torch.version is not None)
    pinned = _PINNED.search(scene.report.text)
    torch = "" if known else f"{pinned[1]} " if pinned else "torch "
    yield CAUSE.fix("build", pip=installer(scene), package=package, torch=torch)
    if scene.mentions("environment.yml", "- pip:"):
        yield CAUSE.fix("environment-yml")

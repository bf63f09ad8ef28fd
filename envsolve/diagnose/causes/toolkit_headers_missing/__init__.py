"""``toolkit-headers-missing``: the toolkit's headers or libraries are not where the build looks."""

from __future__ import annotations

from collections.abc import Iterator

from envsolve.diagnose.causes._shared import Cause, lines
from envsolve.diagnose.model import Finding, Fix, Grounds
from envsolve.diagnose.scene import Scene
from envsolve.diagnose.tool_fixes import nvcc_remedies, toolkit_for

CAUSE = Cause.of(__name__)


def from_report(scene: Scene) -> Iterator[Finding]:
    """The compiler or the linker names the file."""
    if match := CAUSE.first(scene, "libdevice"):
        yield CAUSE.finding("libdevice", Grounds.STATED, lines(match), _with_libdevice(scene))
    header, library = CAUSE.first(scene, "header"), CAUSE.first(scene, "library")
    if match := header or library:
        what = match.group("header", "library", "msvc") or "a file"
        fixes = _fixes(scene, what, linking=header is None)
        yield CAUSE.finding("missing", Grounds.STATED, lines(header, library), fixes, what=what)


def _with_libdevice(scene: Scene) -> Iterator[Fix]:
    if not scene.mentions("jax", "xla", "tensorflow", "hlomodule"):
        yield CAUSE.fix("libdevice")
        return
    yield CAUSE.fix("tensorflow" if scene.mentions("tensorflow") else "jax")
    yield CAUSE.fix("xla")


def _part(what: str) -> list[str]:
    """The part of the toolkit that has a header or a library, if not its compiler's own."""
    names = dict(pair.split(" ") for pair in CAUSE.words("parts").split("; "))
    return [part for name, part in names.items() if what.lower().startswith(name)]


def _fixes(scene: Scene, what: str, *, linking: bool) -> Iterator[Fix]:
    toolkit = toolkit_for(scene)
    if scene.mentions_conda and scene.os != "windows":
        yield CAUSE.fix("conda-lib" if linking else "conda-include")
    if "cudnn" in what or "nccl" in what:
        yield CAUSE.fix("cudnn" if "cudnn" in what else "nccl")
        return
    yield from nvcc_remedies(scene, toolkit, *_part(what))
    if not scene.in_container and scene.os != "windows":
        yield CAUSE.fix("system", toolkit=toolkit)

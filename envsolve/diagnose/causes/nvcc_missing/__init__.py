"""``nvcc-missing``: nvcc is not installed, or nothing says where it is (rule 10).

The causes about toolkits share what is here: the fault that a report shows, its toolkits, and how to name one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Literal

from envsolve.diagnose.causes._shared import Cause, lines
from envsolve.diagnose.model import Finding, Fix, Grounds
from envsolve.diagnose.scene import Scene
from envsolve.diagnose.signatures import Match
from envsolve.diagnose.tool_fixes import nvcc_remedies
from envsolve.machine.model import Toolkit
from envsolve.values import CudaVersion

CAUSE = Cause.of(__name__)
_MISMATCH, _ELSEWHERE = map(Cause, ("nvcc-torch-mismatch", "cuda-home-elsewhere"))

Fault = Literal["mismatch", "headers", "taken", "several", "path", "missing"]

_NVCC = re.compile(r"/bin/nvcc\b")
# Matched backwards from nvcc: re has no lookbehind of variable length.
_BEFORE = re.compile(r"[\w./$~-]{1,200}$")
# A build log names nvcc in every command; the first ones show all that there are.
_PLACES = 200


def from_report(scene: Scene) -> Iterator[Finding]:
    """The message names nvcc; a path without it may also be a wrong CUDA_HOME."""
    if Cause("host-compiler-unsupported").first(scene):
        return  # nvcc ran
    match fault_of(scene):
        case (("missing" | "path"), match) if scene.on_mac:
            yield CAUSE.finding("mac", Grounds.STATED, lines(match), [CAUSE.fix("mac")])
        case ("missing" | "path") as fault, match:
            grounds = Grounds.STATED if fault == "missing" else Grounds.SUGGESTED
            named = [CAUSE.fix("cudacxx", again=build_again(scene))] if _by_cmake(scene) else []
            yield CAUSE.finding("missing", grounds, lines(match), (*named, *nvcc_fixes(scene, scene.toolkit)))


def _by_cmake(scene: Scene) -> bool:
    """Whether it is CMake that looks for nvcc: CUDA_HOME does not matter to it."""
    return scene.os != "windows" and scene.mentions("cmake") and not scene.mentions("cuda_home")


def build_again(scene: Scene) -> str:
    """The command of the report, or a new build with CMake."""
    installs = [seen.value for seen in scene.report.commands if "pip install" in seen.value]
    return installs[-1] if installs else "rm -rf build && cmake -B build ..."


def fault_of(scene: Scene) -> tuple[Fault, Match] | None:
    """The fault of nvcc, the most specific first: the words of one fault often come with those of another."""
    if match := _MISMATCH.first(scene):
        return "mismatch", match
    if match := _ELSEWHERE.first(scene, "headers"):
        return "headers", match
    if (match := _ELSEWHERE.first(scene, "clue")) and other_nvccs(scene, match):
        return "taken", match
    if (match := _MISMATCH.first(scene, "words")) and len(toolkit_versions(scene)) > 1:
        return "several", match
    if match := _ELSEWHERE.first(scene, "path"):
        return "path", match
    match = CAUSE.first(scene)
    return ("missing", match) if match else None


def other_nvccs(scene: Scene, match: Match) -> list[str]:
    """Paths of another nvcc than the one that CMake took, if the report says that something failed."""
    if not scene.mentions("fail", "error", "wrong", "mismatch", "incorrect"):
        return []
    text = scene.report.text
    found = islice(_NVCC.finditer(text), _PLACES)
    directories = ((at, _BEFORE.search(text, max(0, at.start() - 200), at.start())) for at in found)
    paths = dict.fromkeys(directory[0] + at[0] for at, directory in directories if directory)
    return [path for path in paths if path != match.groups["nvcc"]]


def toolkit_versions(scene: Scene) -> list[str]:
    """The CUDA versions of the toolkits with an nvcc."""
    known = {t.version for t in scene.machine.toolkits or () if t.version and t.nvcc is not False}
    return sorted(known, key=CudaVersion.parse)


def toolkit_of(scene: Scene, cuda: str | None) -> Toolkit | None:
    """The machine's toolkit of a CUDA version."""
    wanted = CudaVersion.parse(cuda) if cuda else None
    toolkits = (t for t in scene.machine.toolkits or () if t.version and t.nvcc is not False)
    return next((t for t in toolkits if t.cuda_version == wanted), None)


def set_home(scene: Scene, cuda: str | None) -> Iterator[Fix]:
    """Point the build to the toolkit of a CUDA version."""
    toolkit = toolkit_of(scene, cuda)
    if toolkit is not None:
        # A toolkit without a place is that of the nvcc on PATH, whose version the report shows.
        home = toolkit.path or ('$(dirname "$(dirname "$(command -v nvcc)")")' if toolkit.nvcc else None)
        home = home or f"/usr/local/cuda-{cuda}"
        yield CAUSE.fix("set-home", cuda=cuda, home=home)
    else:
        yield from look_for_home(scene, cuda)


def look_for_home(scene: Scene, cuda: str | None) -> Iterator[Fix]:
    """Name the toolkit of a CUDA version where it is installed by default, if the machine has it."""
    if cuda and scene.os != "windows":
        yield CAUSE.fix("look-for-home", cuda=cuda)


def nvcc_fixes(scene: Scene, cuda: str | None) -> tuple[Fix, ...]:
    """Ways to get an nvcc of a CUDA version: one that the machine has, then one to install."""
    return (*set_home(scene, cuda), *nvcc_remedies(scene, cuda))

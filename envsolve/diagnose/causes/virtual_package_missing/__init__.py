"""``virtual-package-missing``: conda or pixi solves for a machine with a driver on one without."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envsolve.diagnose.causes._shared import Cause, lines
from envsolve.diagnose.model import Finding, Fix, Grounds
from envsolve.diagnose.scene import Scene
from envsolve.values import CudaVersion

CAUSE = Cause.of(__name__)
_CUDA = re.compile(r"cuda[-_ ]?(?:version)?\W{0,6}(1[1-4])(?:\.(\d+))?|__cuda ?>=? ?(1[1-4])(?:\.(\d+))?")
_SOLVE = re.compile(r"(?:conda|mamba) (?:env )?(?:create|install|update)")


def from_report(scene: Scene) -> Iterator[Finding]:
    """The solver names the virtual package."""
    if match := CAUSE.first(scene):
        yield CAUSE.finding("missing", Grounds.STATED, lines(match), (_fix(scene),))


def _fix(scene: Scene) -> Fix:
    version = _cuda(scene)
    if scene.mentions("pixi", "workspace requires", "feature:/"):
        added = [seen.value for seen in scene.report.commands if seen.value.startswith("pixi add ")]
        if added and not scene.mentions("system-requirements"):
            return CAUSE.fix("pixi-requirement", major=version.partition(".")[0], command=added[-1])
        where = CAUSE.words("dockerfile") if scene.mentions("dockerfile", "\nrun ") else ""
        return CAUSE.fix("pixi", where=where, version=version)
    commands = (seen.value for seen in scene.report.commands if _SOLVE.search(seen.value))
    return CAUSE.fix("conda", version=version, command=next(commands, "conda create ..."))


def _cuda(scene: Scene) -> str:
    """The target's CUDA version, as far as the request names it."""
    if scene.driver and scene.driver.cuda:
        return scene.driver.cuda
    # The host that solves has no driver, so the request itself is the next best source.
    requested = _CUDA.search(scene.report.text)
    if requested is None:
        return scene.usual_cuda
    major, minor = requested[1] or requested[3], requested[2] or requested[4]
    known = [t.version for t in scene.catalogue.toolkits if t.version.startswith(f"{major}.")]
    return f"{major}.{minor}" if minor else str(CudaVersion.parse((known or [f"{major}.0"])[-1]))

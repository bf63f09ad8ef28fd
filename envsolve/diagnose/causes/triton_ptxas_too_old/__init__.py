"""``triton-ptxas-too-old``: another ptxas than Triton's own runs, and does not read what Triton writes (rule 6)."""

from __future__ import annotations

from collections.abc import Iterator

from envsolve.diagnose.causes._shared import Cause, by_triton, lines, shown_variable
from envsolve.diagnose.fixes import led_by, replacements
from envsolve.diagnose.model import Finding, Fix, Grounds
from envsolve.diagnose.scene import Scene
from envsolve.diagnose.signatures import Match
from envsolve.values import DriverVersion

CAUSE = Cause.of(__name__)


def from_report(scene: Scene) -> Iterator[Finding]:
    """Triton, or the ptxas that it ran, gives the versions."""
    if scene.first("jit-version"):  # the driver itself refused PTX
        return
    match = CAUSE.first(scene, "table", "error")
    if match is None or (match.signature.role != "table" and not by_triton(scene)):
        return
    if "asked" in match.groups:
        detail = CAUSE.words("version", asked=match.groups["asked"], known=match.groups["known"])
    else:
        detail = CAUSE.words("cuda" if "cuda" in match.groups else "unknown", **match.groups)
    path = shown_variable(scene, "TRITON_PTXAS_PATH")
    grounds = Grounds.CONFIRMED if path else Grounds.STATED
    yield CAUSE.finding("old", grounds, (*lines(match), *path), _fixes(scene, match), detail=detail)


def _fixes(scene: Scene, match: Match) -> Iterator[Fix]:
    yield CAUSE.fix("own")
    # PTX versions compare number by number, as drivers do: 8.10 is newer than 8.9.
    asked = DriverVersion.parse(match.groups.get("asked", ""))
    toolkits = (t for t in scene.catalogue.toolkits if asked and DriverVersion.parse(t.ptx_isa) >= asked)
    if newer := next(toolkits, None):
        yield CAUSE.fix("newer", cuda=newer.cuda_version)
    else:
        yield from (led_by(CAUSE.words("newer-triton"), fix) for fix in replacements(scene)[:2])

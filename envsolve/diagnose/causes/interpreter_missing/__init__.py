"""``interpreter-missing``: the environment's own Python is gone, or is a link to one that is."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

from envsolve.diagnose.causes._shared import Cause, lines
from envsolve.diagnose.model import Finding, Grounds
from envsolve.diagnose.scene import Scene
from envsolve.environment.model import Environment, Kind

CAUSE = Cause.of(__name__)


def from_report(scene: Scene) -> Iterator[Finding]:
    """The shell names the Python that a script was installed for."""
    if match := CAUSE.first(scene):
        program = match.groups["program"]
        fix = CAUSE.fix("again-somewhere", prefix=shlex.quote(program.rpartition("/bin/")[0]))
        yield CAUSE.finding("named", Grounds.STATED, lines(match), [fix], program=program)


def from_environment(environment: Environment, scene: Scene) -> Iterator[Finding]:
    """Nothing in it can run; its packages may be in order all the same."""
    if environment.program is not None:
        return
    program = Path(environment.prefix) / "bin/python"
    minor = ".".join((environment.python or "3").split(".")[:2])
    fix = CAUSE.fix(_MADE_BY.get(environment.kind, "venv"), prefix=shlex.quote(environment.prefix), minor=minor)
    yield CAUSE.finding("missing", Grounds.READ, [_what_is_wrong(program)], [fix], program=program)


#: How to give an environment a Python again; otherwise by the standard library's own module.
_MADE_BY: dict[Kind, str] = {"conda": "conda", "pixi": "conda", "uv": "uv", "uv-tool": "uv"}


def _what_is_wrong(program: Path) -> str:
    """Follow the links by hand, to name the first that leads nowhere."""
    place = program
    for _ in range(40):  # as many as Linux follows
        if not place.is_symlink():
            break
        place = place.parent / place.readlink()
    return f"{program}: does not exist" if place == program else f"{program}: a link to {place}, which does not exist"

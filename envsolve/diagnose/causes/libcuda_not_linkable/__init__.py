"""``libcuda-not-linkable``: the linker finds no ``libcuda.so``."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envsolve.diagnose.causes._shared import Cause, lines
from envsolve.diagnose.model import Finding, Grounds
from envsolve.diagnose.scene import Scene

CAUSE = Cause.of(__name__)
_FOUND = re.compile(r"libcuda\.so\.1[^\n]{0,60}=> ?(/[^\s]{1,200})/libcuda\.so\.1")
# WSL mounts the libraries of the Windows driver there, and has no others.
_WSL = "/usr/lib/wsl/lib"
# Where the loader has the driver's library: distributions and containers keep it in different directories.
_ANY = "$(dirname $(ldconfig -p | grep -om1 '/.*libcuda[.]so[.]1'))"


def from_report(scene: Scene) -> Iterator[Finding]:
    """The linker's own words."""
    match = CAUSE.first(scene)
    if match is None:
        return
    found = _FOUND.search(scene.report.text)
    directory = found[1] if found else _WSL if scene.platform.wsl or scene.mentions("wsl") else _ANY
    names = ("path", "triton", "link") if scene.mentions("triton", "inductor", "torch.compile") else ("path", "link")
    fixes = (CAUSE.fix(name, directory=directory) for name in names)
    yield CAUSE.finding("unlinkable", Grounds.STATED, lines(match), fixes)

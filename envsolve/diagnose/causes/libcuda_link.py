"""``libcuda-not-linkable``: the linker finds no ``libcuda.so``."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envsolve.diagnose.causes._shared import lines
from envsolve.diagnose.model import Finding, Grounds, Remedy, RuledOut
from envsolve.diagnose.scene import Scene

_FOUND = re.compile(r"libcuda\.so\.1[^\n]{0,60}=> ?(/[^\s]{1,200})/libcuda\.so\.1")
_WSL = "/usr/lib/wsl/lib"

_EXPLANATION = (
    "Triton, and whatever else calls the driver, links against libcuda, and the linker looks for a file named "
    "libcuda.so; the driver may bring libcuda.so.1 alone, or lie where the linker does not look. That libcuda can be "
    "loaded at run time does not help: loading and linking have different search paths. LIBRARY_PATH, unlike "
    "LD_LIBRARY_PATH, is the linker's."
)


def weigh(scene: Scene) -> Iterator[Finding | RuledOut]:
    """The linker's own words."""
    match = scene.first("link-libcuda")
    if match:
        yield Finding("libcuda-not-linkable", Grounds.STATED, _EXPLANATION, lines(match), tuple(_remedies(scene)))


def _remedies(scene: Scene) -> Iterator[Remedy]:
    found = _FOUND.search(scene.report.text)
    wsl = scene.machine.platform is not None and scene.machine.platform.wsl
    folder = found[1] if found else _WSL if wsl or scene.mentions("wsl") else "/usr/lib/x86_64-linux-gnu"
    yield Remedy("Tell the linker where the driver's library is.", f"export LIBRARY_PATH={folder}:$LIBRARY_PATH")
    if scene.mentions("triton", "inductor", "torch.compile"):
        yield Remedy(
            "Triton 3 and later take the folder from a variable of their own.", f"export TRITON_LIBCUDA_PATH={folder}"
        )
    yield Remedy(
        "If the folder holds libcuda.so.1 alone, give it the name that the linker looks for.",
        f"sudo ln -s libcuda.so.1 {folder}/libcuda.so",
    )

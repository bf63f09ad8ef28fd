"""``out-of-memory``: too little memory, on the GPU or on the host."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envsolve.diagnose.causes._shared import Cause, lines
from envsolve.diagnose.model import Finding, Grounds, RuledOut
from envsolve.diagnose.scene import Scene

CAUSE = Cause.of(__name__)
#: Which memory ran out, the most specific words first, and what helps.
_FIXES = {
    "build": ("jobs", "architectures"),
    "make": ("make-jobs", "cmake-architectures"),
    "killed": ("main-memory",),
    "shared": ("shm-size", "host-ipc"),
    "nccl": ("shm-size", "host-ipc"),
    "host": ("smaller-tensor",),
    "gpu": ("others", "smaller", "segments"),
    "cublas": ("others", "blocking"),
    "beyond": ("smaller-tensor",),
}
_COMPILING = (
    *("nvcc", "cicc", "cc1plus", "ninja", "cudafe", "setup.py", "pip install", "pip wheel", "building wheel", "rustc"),
    *("-- build", "building cuda object", "building cxx object", "make[", "make:", "cmake --build", "docker build"),
    *("building ", "compiling ", "from source"),
)
_OF_TOTAL = re.compile(
    r"[Tt]ried to allocate (?P<wanted>\d{1,12}(?:\.\d{1,3})?) (?P<unit>[KMGT]iB)[^\n]{0,40}?"
    r"total capacity of (?P<total>\d{1,12}(?:\.\d{1,3})?) (?P<of>[KMGT]iB)"
)
_AMOUNT = re.compile(r"[Tt]ried to allocate ([\d.]+ ?\w+)")


def from_report(scene: Scene) -> Iterator[Finding | RuledOut]:
    """Which memory ran out."""
    match = CAUSE.first(scene, *_FIXES)
    if match is None or scene.first("count-memory"):  # before any tensor: see driver-needs-reload
        return
    role = match.signature.role
    if role == "build" and not scene.mentions(*_COMPILING):
        role = "killed"
    elif role == "build" and scene.mentions("make[", "make:", "cmake --build", "cmake -b") and not _by_pip(scene):
        role = "make"
    if role == "nccl" and not _in_small_shared_memory(scene):
        yield CAUSE.ruled_out("system-call")
        return
    requested = _AMOUNT.search(scene.report.text)
    amount = " " + CAUSE.words("amount", amount=requested[1]) if requested else ""
    if role == "gpu" and _exceeds_the_gpu(scene):
        role = "beyond"
    grounds = Grounds.SUGGESTED if role in ("nccl", "cublas") else Grounds.STATED
    text = "build" if role == "make" else role
    yield CAUSE.finding(text, grounds, lines(match), map(CAUSE.fix, _FIXES[role]), amount=amount)


def _exceeds_the_gpu(scene: Scene) -> bool:
    """Whether one piece is larger than all memory of the GPU, so that nothing but its size helps."""
    found = _OF_TOTAL.search(scene.report.text)
    return found is not None and _bytes(found["wanted"], found["unit"]) > _bytes(found["total"], found["of"])


def _bytes(number: str, unit: str) -> float:
    return float(number) * 1024.0 ** "KMGT".index(unit[0])


def _by_pip(scene: Scene) -> bool:
    """Whether torch's own build, which reads MAX_JOBS, starts the compilers."""
    return scene.mentions("setup.py", "pip install", "pip wheel", "building wheel", "cpp_extension")


def _in_small_shared_memory(scene: Scene) -> bool:
    """Whether NCCL may have met a container's 64 MB: a call that was not permitted is another matter."""
    return scene.in_container and not scene.mentions("permission denied", "connection refused", "no route to host")

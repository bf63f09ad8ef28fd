"""A driver that is installed in the image: the container runtime brings in the host's own, and two of them clash."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envsolve.dockerfile.model import Finding, Stage
from envsolve.dockerfile.packages import Asked

_INSTALLERS = frozenset({"apt", "apt-get", "aptitude", "dnf", "yum", "microdnf", "zypper"})
# The packages ``cuda`` and ``cuda-12-4`` bring a driver along, ``cuda-toolkit-12-4`` none. Source: CUDA Installation
# Guide for Linux, "Meta Packages".
_WHOLE = re.compile(r"cuda(-\d+-\d+)?")
_DRIVER = re.compile(
    r"cuda-drivers(-\d+)?|nvidia-(driver|utils|headless|dkms|kernel-\w+)(-[\w-]+)?|libnvidia-(compute|gl|ml|cfg)\w*(-[\w-]+)?"
)


def check(stage: Stage, asked: Asked) -> Iterator[Finding]:
    """Source: NVIDIA Container Toolkit documentation: the driver's libraries are mounted from the host."""
    for command in stage.commands:
        if command.words[0].rsplit("/", 1)[-1] not in _INSTALLERS or "install" not in command.words:
            continue
        for word in command.words[command.words.index("install") + 1 :]:
            name = re.split("[=:]", word, maxsplit=1)[0]
            if _WHOLE.fullmatch(name) or _DRIVER.fullmatch(name):
                text = f"{name} brings a driver into the image, where the container runtime puts the host's: programs "
                text += "that find libraries of the other version fail (Driver/library version mismatch)"
                toolkit = name.replace("cuda", "cuda-toolkit", 1)
                remedy = f"install {toolkit} in its place" if _WHOLE.fullmatch(name) else "leave it out"
                yield Finding(command.line, "driver-in-image", "warning", text, (remedy,))

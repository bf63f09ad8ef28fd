"""Small words that several weighings share."""

from __future__ import annotations

from collections.abc import Sequence

from envsolve.diagnose.scene import Scene
from envsolve.diagnose.signatures import Match
from envsolve.machine.model import Gpu


def cards(gpus: Sequence[Gpu]) -> str:
    """``Tesla V100 (cc 7.0) and GTX 1050 (cc 6.1)``, or ``the card``."""
    return " and ".join(gpu.label for gpu in gpus) or "the card"


def lines(*matches: Match | None) -> tuple[str, ...]:
    """The lines of matches as evidence."""
    return tuple(match.evidence for match in matches if match is not None)


def driver_words(scene: Scene) -> str:
    """``the driver, 550.54 for CUDA 12.4`` as far as it is known."""
    driver = scene.driver
    parts = [driver.version, f"for CUDA {driver.cuda}" if driver.cuda else None] if driver else []
    return "the driver" + (f" ({' '.join(p for p in parts if p)})" if any(parts) else "")


def by_triton(scene: Scene) -> bool:
    """Whether it is Triton, or torch's compiler with it, that compiles in the report."""
    packages = {"triton", "pytorch-triton"}
    return scene.mentions("triton", "inductor", "torch.compile") or bool(packages & scene.report.installed.keys())


def gcc_command(scene: Scene, major: int) -> str:
    """How a gcc of one major is installed beside the system's, and named to a build."""
    install = apt(scene)
    if "dnf" in install:
        return f"{install} gcc-toolset-{max(major, 9)} && source scl_source enable gcc-toolset-{max(major, 9)}"
    named = f"export CC=gcc-{major} CXX=g++-{major} CUDAHOSTCXX=g++-{major}"
    return f"{install} gcc-{major} g++-{major} && {named}"


def apt(scene: Scene) -> str:
    """How a package is installed on the report's system: ``sudo apt-get install -y``, within an image without sudo."""
    distro = (scene.machine.platform.distro if scene.machine.platform else None) or ""
    name = distro.split(" ")[0].lower()
    if name in ("rhel", "centos", "rocky", "almalinux", "fedora", "amzn", "ol", "tencentos"):
        return "sudo dnf install -y"
    if name == "arch":
        return "sudo pacman -S"
    return "apt-get install -y" if scene.in_container else "sudo apt-get install -y"

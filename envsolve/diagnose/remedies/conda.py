"""conda-forge's PyTorch: a build that the rules accept for the machines."""

from __future__ import annotations

from packaging.version import Version

from envsolve.catalogue.model import CondaBuild
from envsolve.compat.driver import driver_runs
from envsolve.diagnose.model import Remedy
from envsolve.diagnose.scene import Scene

_SUBDIRS = {("linux", "x86_64"): "linux-64", ("linux", "aarch64"): "linux-aarch64", ("windows", "x86_64"): "win-64"}


def conda_build(scene: Scene) -> CondaBuild | None:
    """The newest CUDA build on conda-forge that runs on every card with the driver; None where none is known to."""
    platform = scene.machine.platform
    subdir = _SUBDIRS.get((platform.os or "linux", platform.arch or "x86_64")) if platform else "linux-64"
    fitting = [b for b in scene.catalogue.conda if b.subdir == subdir and _fits(b, scene)]
    return max(fitting, key=lambda b: (Version(b.version), Version(b.cuda or "0")), default=None)


def conda_remedy(scene: Scene) -> Remedy | None:
    """The command that installs it; with the driver named, since a solve on a host without one would refuse."""
    build = conda_build(scene)
    if build is None or build.cuda is None:
        return None
    text = f"Install conda-forge's pytorch {build.version} for CUDA {build.cuda}: the CUDA build, asked for by name."
    command = f'conda install -c conda-forge "pytorch={build.version}={build.build}" "cuda-version={build.cuda}"'
    return Remedy(text, command)


def _fits(build: CondaBuild, scene: Scene) -> bool:
    if build.package != "pytorch" or build.channel != "conda-forge" or build.cuda is None or build.arm == "tegra":
        return False
    if scene.python and build.pythons and scene.python not in build.pythons:
        return False
    if build.code and scene.unserved(build.code, build.cuda):
        return False
    fit = driver_runs(build.cuda, scene.driver, scene.os, scene.facts.toolkits, scene.facts.floors)
    return fit.reason.ok is not False

"""conda-forge's PyTorch: a build that the rules accept for the machines."""

from __future__ import annotations

from packaging.version import Version

from envsolve.catalogue.model import CondaBuild
from envsolve.compat.driver import driver_runs
from envsolve.compat.platform import libc_fits
from envsolve.diagnose.model import Remedy
from envsolve.diagnose.scene import Scene

_SUBDIRS = {("linux", "x86_64"): "linux-64", ("linux", "aarch64"): "linux-aarch64", ("windows", "x86_64"): "win-64"}


def conda_remedies(scene: Scene) -> tuple[Remedy, ...]:
    """Commands for conda-forge's CUDA builds that run here: that of the version at hand, then the newest."""
    fitting = sorted((b for b in scene.catalogue.conda if _fits(b, scene)), key=_newness, reverse=True)
    at_hand = scene.torch.version if scene.torch else None
    same = [build for build in fitting if build.version == at_hand]
    return tuple({b.version: _remedy(b) for b in (*same[:1], *fitting[:1])}.values())


def _newness(build: CondaBuild) -> tuple[Version, Version]:
    return Version(build.version), Version(build.cuda or "0")


def _remedy(build: CondaBuild) -> Remedy:
    text = f"Install conda-forge's pytorch {build.version} for CUDA {build.cuda}: the CUDA build, asked for by name."
    command = f'conda install -c conda-forge "pytorch={build.version}={build.build}" "cuda-version={build.cuda}"'
    return Remedy(text, command)


def _fits(build: CondaBuild, scene: Scene) -> bool:
    platform = scene.machine.platform
    subdir = _SUBDIRS.get((platform.os or "linux", platform.arch or "x86_64")) if platform else "linux-64"
    if (
        build.subdir != subdir
        or build.package != "pytorch"
        or build.channel != "conda-forge"
        or build.cuda is None
        or build.arm == "tegra"
    ):
        return False
    if build.libc and libc_fits(build.libc, platform).ok is False:
        return False
    if scene.python and build.pythons and scene.python not in build.pythons:
        return False
    if build.code and scene.unserved(build.code, build.cuda):
        return False
    fit = driver_runs(build.cuda, scene.driver, scene.os, scene.facts.toolkits, scene.facts.floors)
    return fit.reason.ok is not False

"""The virtual packages of the machines that a plan is for, whatever the machine that plans has.

conda, mamba and pixi find them out on the machine that solves, so that a login node, or the build of an image, gets CPU
builds. Here they follow from the machine's description. Source: CEP 30 (the packages), CEP 46 (``__cuda_arch``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from envsolve.compat.facts import Facts
from envsolve.compat.forward import lifted
from envsolve.compat.platform import ASSUMED_GLIBC, libc_of
from envsolve.compat.versions import minor, numbers
from envsolve.conda.model import VirtualPackage
from envsolve.machine.model import Machine, Platform

_SUBDIRS = {("linux", "x86_64"): "linux-64", ("linux", "aarch64"): "linux-aarch64", ("windows", "x86_64"): "win-64"}


def subdir_of(platform: Platform | None) -> str:
    """The subdir whose packages a machine installs, ``linux-64``; its system is settled.

    Raises:
        KeyError: conda has none for it that CUDA builds are published in.
    """
    known = platform or Platform()
    return _SUBDIRS[known.os or "linux", known.arch or "x86_64"]


def virtual_packages(machines: Sequence[Machine], facts: Facts) -> tuple[VirtualPackage, ...]:
    """What all of the machines have: of several, the least.

    Args:
        machines: As they are judged, of one subdir.
        facts: The tables of the rules.
    """
    return (*system_packages(machines), *_cuda(machines, facts))


def system_packages(machines: Sequence[Machine]) -> Iterator[VirtualPackage]:
    """Those of all of the machines that no driver and no card decides."""
    platform = machines[0].platform or Platform()
    if platform.os == "windows":
        yield VirtualPackage("__win", "0")
    else:
        # The kernel's version is not part of a machine's description: a package that asks for one is left out.
        yield from (VirtualPackage("__unix", "0"), VirtualPackage("__linux", "0"))
        known = [libc[1] for machine in machines if (libc := libc_of(machine.platform))]
        unsaid = len(known) < len(machines)
        oldest = min([*known, *([ASSUMED_GLIBC] if unsaid else [])])
        assumed = "a machine's libc is not known" if unsaid and oldest == ASSUMED_GLIBC else None
        yield VirtualPackage("__glibc", ".".join(map(str, oldest)), assumed=assumed)
    # The base of the architecture: which extensions the processor has is not part of a machine's description.
    yield VirtualPackage("__archspec", "1", platform.arch or "x86_64")


def _cuda(machines: Sequence[Machine], facts: Facts) -> Iterator[VirtualPackage]:
    if any(machine.gpus == () for machine in machines):
        return
    known = [cuda for machine in machines if (cuda := _driver_cuda(machine, facts))]
    if len(known) == len(machines):
        yield VirtualPackage("__cuda", min(known, key=minor))
    else:
        # No driver can be told from none: a lower value would hide builds, and the plan says that it is not known.
        newest = max((*(toolkit.version for toolkit in facts.toolkits), *known), key=minor)
        cuda = ".".join(map(str, minor(min(known, key=minor) if known else newest)))
        yield VirtualPackage("__cuda", cuda, assumed="a machine's driver is not known")
    cards = [gpu.cc for machine in machines for gpu in machine.gpus or ()]
    if cards and all(machine.gpus for machine in machines) and all(cards):
        yield VirtualPackage("__cuda_arch", str(min(cc for cc in cards if cc)))


def _driver_cuda(machine: Machine, facts: Facts) -> str | None:
    """The newest CUDA that the driver runs in full: what ``cuDriverGetVersion`` tells conda there."""
    driver = lifted(machine, facts.forward)
    if driver is None:
        return None
    release = numbers(driver.version or "")[:1]
    branch = next((b for b in facts.drivers if numbers(b.branch)[:1] == release), None)
    return driver.cuda or (branch.cuda if branch else None)

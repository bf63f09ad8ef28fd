"""Where an nvcc is taken from: the machines' own toolkit, packages of the plan, or what has to be installed first."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from envsolve.facts.hardware import CompilerPackages
from envsolve.machine.model import Machine
from envsolve.rules.nvidia.toolchain import covers
from envsolve.solve.outcome import Caution
from envsolve.toolchain.model import Toolchain
from envsolve.values import CudaVersion

_CONDAS = ("micromamba", "mamba", "conda")
_WITH_APT = ("debian", "ubuntu")


def nvcc_of(
    cuda: str, libraries: Sequence[str], machines: Sequence[Machine], compilers: Sequence[CompilerPackages]
) -> Toolchain:
    """Where the nvcc of a CUDA version is nearest at hand: a toolchain of which nothing else is settled.

    The machines' own goes first: nothing is downloaded for it. Of package managers the default index is the nearest,
    since the environment is made from it anyway; from CUDA 13 on it has a whole nvcc.

    Args:
        cuda: ``13.0``.
        libraries: Further parts of the toolkit that are needed, ``curand``.
        machines: All that the sources are compiled on.
        compilers: What the package managers have.
    """
    holders: dict[str, CompilerPackages] = {
        one.manager: one for one in compilers if "nvcc" in one.provides and covers(one, cuda)
    }
    packages = {manager: _filled(one, cuda, libraries) for manager, one in holders.items()}
    own = own_toolkit(cuda, machines)
    if own is not None:
        return Toolchain(nvcc=cuda, nvcc_from="machine", CUDA_HOME=own, nvcc_packages=packages)
    if "pip" in holders and all(m.platform is None or m.platform.os in (None, "linux") for m in machines):
        return Toolchain(nvcc=cuda, nvcc_from="pip", CUDA_HOME=holders["pip"].home, nvcc_packages=packages)
    return Toolchain(nvcc=cuda, nvcc_packages=packages, get_nvcc=_command(cuda, holders, packages, machines))


def reach_of(cuda: str, machines: Sequence[Machine], compilers: Sequence[CompilerPackages]) -> int:
    """How near at hand the nvcc of a CUDA version is: 0 on the machines, 1 in the plan, 2 elsewhere."""
    return {"machine": 0, "pip": 1, None: 2}[nvcc_of(cuda, (), machines, compilers).nvcc_from]


def own_toolkit(cuda: str, machines: Sequence[Machine]) -> str | None:
    """Where every one of the machines has a toolkit with an nvcc of a CUDA version; None where one has none there."""
    places = [
        {
            t.path
            for t in machine.toolkits or ()
            if t.nvcc and t.path and t.version and CudaVersion.parse(t.version) == CudaVersion.parse(cuda)
        }
        for machine in machines
    ]
    common = set.intersection(*places) if places else set()
    # A folder whose name says the version stays what it is when another toolkit is installed.
    return max(common, key=lambda path: (cuda in path, path), default=None)


def _filled(packages: CompilerPackages, cuda: str, libraries: Sequence[str]) -> tuple[str, ...]:
    major, lesser = CudaVersion.parse(cuda)
    lines = (*packages.packages, *(packages.libraries[name] for name in libraries if name in packages.libraries))
    return tuple(line.format(cuda=cuda, major=major, minor=lesser) for line in lines)


def _command(
    cuda: str,
    holders: Mapping[str, CompilerPackages],
    packages: Mapping[str, tuple[str, ...]],
    machines: Sequence[Machine],
) -> str | None:
    """The shortest way: by a conda that is there, else by apt where it is, else by micromamba."""
    present = {found.name for machine in machines for found in machine.installers or ()}
    program = next((name for name in _CONDAS if name in present), None)
    distros = {(machine.platform.distro or "").partition(" ")[0] for machine in machines if machine.platform}
    if "apt" in packages and program is None and distros and distros <= {*_WITH_APT}:
        home = (holders["apt"].home or "").format(cuda=cuda)
        return f"sudo apt-get install {shlex.join(packages['apt'])} && export CUDA_HOME={home}"
    if "conda" in packages:
        return _conda_command(cuda, program or _CONDAS[0], holders["conda"].home or ".", packages["conda"])
    return None


def _conda_command(cuda: str, program: str, home: str, packages: Sequence[str]) -> str:
    prefix = f"~/cuda-{cuda}"
    below = home.removeprefix(".")
    # What the packages depend on is only in their own channel, which a conda need not have among its own.
    channels = dict.fromkeys(line.partition("::")[0] for line in packages)
    wanted = [word for channel in channels for word in ("-c", channel)] + [*packages]
    cuda_home = f"{prefix}/{below}" if below else prefix
    return f"{program} create -y -p {prefix} {shlex.join(wanted)} && export CUDA_HOME={cuda_home}"


# What is compiled on Windows: with a compiler that the catalogue has no facts of, and by nobody here.


# What is said of gcc, and of ways to an nvcc for Linux.
_OF_LINUX = ("compiles", "compiles-at-use", "host-compiler", "nvcc")


def is_windows(machines: Sequence[Machine]) -> bool:
    """Whether one of the machines is."""
    return any(machine.platform is not None and machine.platform.os == "windows" for machine in machines)


def on_windows(toolchain: Toolchain, cautions: Sequence[Caution]) -> tuple[Toolchain, tuple[Caution, ...]]:
    """A toolchain that was worked out as for Linux, less what does not hold on Windows, and what to know about it."""
    told = [caution for caution in cautions if caution.code not in _OF_LINUX]
    names = ", ".join(dict.fromkeys((*toolchain.compiles, *toolchain.compiles_at_use)))
    if names:
        nvcc = f"nvcc {toolchain.nvcc}" if toolchain.nvcc else "an nvcc"
        text = (
            f"{names} will be compiled from source, on Windows by {nvcc} and Microsoft's C++ compiler, of which it is"
        )
        text += " not known here what goes with it; envsolve install is for Linux"
        way = "take versions that have wheels for Windows, or WSL 2, which has the card, too: --platform linux-x86_64"
        told.insert(0, Caution("compiles", text, way))
    plain = replace(
        toolchain,
        host_compiler=None,
        host_compilers=None,
        gcc_min=None,
        gcc_max=None,
        get_nvcc=None,
        nvcc_packages={},
    )
    return plain, tuple(told)

"""A CUDA toolkit out of conda packages, in a folder of the environment, where neither the machine nor PyPI has one.

For CUDA 12 the default index has ptxas, libNVVM and headers, and no nvcc; conda-forge has all of it. The folder is a
conda prefix of its own beside NVIDIA's packages: nothing else of the environment is conda's.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path

from envsolve.compat.platform import assumed
from envsolve.errors import IndexUnavailableError
from envsolve.install import record
from envsolve.install.progress import Progress, Step
from envsolve.install.staging import Staging
from envsolve.lock import Building
from envsolve.machine.model import Machine
from envsolve.plan import SITE_PACKAGES

_EXTRA = "envsolve[conda]"


def place(building: Building) -> str:
    """The toolkit's folder below the environment's packages."""
    return f"nvidia/cuda-{building.nvcc}"


def can_bring(building: Building) -> bool:
    """Whether such packages are known, and what installs them is here."""
    return bool(building.conda) and importlib.util.find_spec("rattler") is not None


def way(building: Building) -> str | None:
    """What would make it possible to bring one, in words; None where no packages are known."""
    if not building.conda:
        return None
    return f"with {_EXTRA} beside envsolve (pip install '{_EXTRA}') the same command brings nvcc from conda-forge"


def variables(building: Building) -> Mapping[str, str]:
    """By what programs that compile where they run find it."""
    home = f"{SITE_PACKAGES}/{place(building)}"
    return {"CUDA_HOME": home, "PATH": f"{home}/bin:$PATH"}


def bring(building: Building, machine: Machine | None, stage: Staging, progress: Progress) -> Path:
    """Install the toolkit into the environment that is being made; its folder.

    Raises:
        IndexUnavailableError: The channel cannot be read, or has no such packages for this machine.
        InstallError: rattler fails.
    """
    from envsolve.conda import fill
    from envsolve.conda.client import Channels, UnsolvableError
    from envsolve.conda.spec import read_spec
    from envsolve.conda.virtual import subdir_of, system_packages
    from envsolve.install.conda import carry_out

    home = record.site_packages(stage.environment) / place(building)
    platform = assumed(machine.platform if machine else None)
    channels = tuple(dict.fromkeys(line.rpartition("::")[0] for line in building.conda))
    specs = [read_spec(line.rpartition("::")[2], "the plan's toolchain", {}) for line in building.conda]
    progress(Step("packages", f"bringing nvcc {building.nvcc} from {', '.join(channels)}"))
    try:
        subdir = subdir_of(platform)
        virtual = tuple(system_packages([Machine(platform=platform)]))
        found = Channels(channels).solve(specs, (), virtual, subdir, {})
    except UnsolvableError as failure:
        raise IndexUnavailableError(
            f"{', '.join(channels)} has no nvcc {building.nvcc} for this machine: {failure}",
            hint="install that toolkit yourself, and set CUDA_HOME",
        ) from None
    packages = tuple(fill.Package(f"{one.name} =={one.version}", one.url, one.hashes) for one in found)
    addresses = tuple(dict.fromkeys(one.channel for one in found))
    final = stage.prefix / home.relative_to(stage.environment)
    carry_out(fill.Order(packages, addresses, subdir, str(home), str(final)), stage, progress)
    _link_targets(home)
    return home


def _link_targets(home: Path) -> None:
    """Give the headers and libraries of conda's ``targets/x86_64-linux`` the places of any other toolkit's."""
    for kind in ("include", "lib"):
        for target in sorted(home.glob(f"targets/*/{kind}")):
            folder = home / kind
            folder.mkdir(exist_ok=True)
            for path in sorted(target.iterdir()):
                link = folder / path.name
                if not link.exists() and not link.is_symlink():
                    link.symlink_to(Path("..") / path.relative_to(home))

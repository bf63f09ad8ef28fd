"""Small plans, built by hand."""

from __future__ import annotations

from collections.abc import Mapping

from envsolve.machine.model import Driver, Gpu, Machine, Platform
from envsolve.planning.plan import DriverNeed, Plan, Support
from envsolve.solve.outcome import ConflictFact, Fix, PlannedPackage, PlanWarning

MIRROR = "https://mirror.example/simple/"
CU126 = "https://download.pytorch.org/whl/cu126"

RTX_4090 = Machine(
    platform=Platform(os="linux", arch="x86_64", libc="glibc 2.35"),
    driver=Driver(version="550.54.15", cuda="12.4"),
    gpus=(Gpu("NVIDIA GeForce RTX 4090", "8.9"), Gpu("NVIDIA GeForce RTX 4090", "8.9")),
    python="3.12",
)


def package(
    name: str,
    version: str,
    *,
    index: str | None = MIRROR,
    variant: str | None = None,
    tag: str = "py3-none-any",
    requires: tuple[str, ...] = (),
    hashes: Mapping[str, str] | None = None,
) -> PlannedPackage:
    filename = f"{name.replace('-', '_')}-{version}-{tag}.whl"
    base = (index or "https://files.example").rstrip("/")
    return PlannedPackage(
        name=name,
        version=version,
        variant=variant,
        index=index,
        filename=filename,
        url=f"{base}/{filename.replace('+', '%2B')}",
        hashes={"sha256": f"{len(filename):064x}"} if hashes is None else hashes,
        kind="wheel",
        requires=requires,
        why=(name,),
        size=1000 + len(filename),
        requires_python=">=3.10",
    )


TORCH = package(
    "torch",
    "2.9.0+cu126",
    index=CU126,
    variant="cu126",
    tag="cp312-cp312-manylinux_2_28_x86_64",
    requires=("filelock", "triton"),
)
TRITON = package("triton", "3.5.0", index=CU126, variant="cu126", tag="cp312-cp312-manylinux_2_28_x86_64")
FILELOCK = package("filelock", "3.20.0")

GOOD = Plan(
    machines=(RTX_4090,),
    python="3.12",
    cuda="cu126",
    requirements=("torch>=2.4",),
    packages=(FILELOCK, TORCH, TRITON),
    support=(
        Support("torch", "NVIDIA GeForce RTX 4090", "8.9", "family", "sm_86", "measured"),
        Support("triton", "NVIDIA GeForce RTX 4090", "8.9", "native", "sm_89", "measured"),
    ),
    driver=DriverNeed("525.60.13", "minor-version", "550.54.15"),
    environment={"TRITON_PTXAS_PATH": "{site_packages}/nvidia/cu13/bin/ptxas"},
    warnings=(
        PlanWarning("no-ptx", "extensions that ship PTX alone will not run", "update the driver to 560.28 or newer"),
    ),
    catalogue_date="2026-11-27",
)

IMPOSSIBLE = Plan(
    status="impossible",
    machines=(RTX_4090,),
    python="3.12",
    requirements=("torch==2.9.*", "flash-attn==1.0"),
    conflict=(ConflictFact("flash-attn 1.0 needs torch<2.1", "requirement"), ConflictFact("torch==2.9.* is asked for")),
    remedies=(Fix("request flash-attn>=2.8", unlocks="torch 2.9.0 with cu126"),),
    catalogue_date="2026-11-27",
)

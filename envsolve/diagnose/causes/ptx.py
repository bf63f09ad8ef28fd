"""``ptx-newer-than-driver``: code that had to be compiled by the driver, from PTX that it cannot read."""

from __future__ import annotations

from collections.abc import Iterator

from envsolve.diagnose.causes._shared import driver_text, gpu_names, lines
from envsolve.diagnose.model import Finding, Grounds, Remedy, RuledOut
from envsolve.diagnose.remedies.tools import compat_package, driver_knowing
from envsolve.diagnose.remedies.torch import archs_for, replacements, source_of
from envsolve.diagnose.scene import Scene
from envsolve.diagnose.signatures import Match
from envsolve.values import CudaVersion, DriverVersion

_ERRORS = ("jit-version", "jit-toolchain", "jit-invalid")

_EXPLANATION = (
    "Where a binary has no machine code (SASS) for the card, the driver compiles its PTX at load, and a driver reads "
    "only PTX of toolkits up to its own CUDA version. {made}, and {driver} does not read that. Minor-version "
    "compatibility, the documented minimum driver of a CUDA family, covers machine code alone, so either the code "
    "must be made for the card, or the toolkit and the driver must meet."
)


def weigh(scene: Scene) -> Iterator[Finding | RuledOut]:
    """Hold the PTX's toolkit against the driver's CUDA version."""
    error = scene.first(*_ERRORS)
    if error is None:
        return
    made_with = _toolkit(scene)
    have = _read_by_driver(scene)
    newer = bool(made_with and have and CudaVersion.parse(made_with) > CudaVersion.parse(have))
    what = f"This PTX comes from CUDA {made_with}" if made_with else "This PTX comes from a newer toolkit"
    yield Finding(
        "ptx-newer-than-driver",
        Grounds.CONFIRMED if newer else Grounds.STATED,
        _EXPLANATION.format(made=what, driver=_driver(scene, have)),
        (*lines(error, scene.first("built-with")), *scene.driver_evidence, *scene.gpu_evidence),
        tuple(_remedies(scene, made_with if newer else None, have)),
        explains=frozenset({"driver-too-old", "no-kernel-for-gpu"}),
    )


def _read_by_driver(scene: Scene) -> str | None:
    """The CUDA version whose PTX the driver reads: its own, else what its compiler says in the error."""
    if scene.driver and scene.driver.cuda:
        return scene.driver.cuda
    version = scene.first("jit-version")
    return cuda_of_ptx(scene, version.groups["known"]) if version else None


def _driver(scene: Scene, cuda: str | None) -> str:
    if cuda is None or (scene.driver and scene.driver.cuda):
        return driver_text(scene)
    return f"the driver (which reads that of CUDA {cuda})"


def _toolkit(scene: Scene) -> str | None:
    """The toolkit that wrote the PTX: the error's own PTX version tells best, then who compiled, then torch's."""
    if version := scene.first("jit-version"):
        return cuda_of_ptx(scene, version.groups["asked"])
    stated: Match | None = scene.first("built-with")
    if stated:
        return stated.groups["cuda"]
    if scene.report.nvcc and scene.first("from-source"):
        return str(CudaVersion.parse(scene.report.nvcc.value))
    if scene.torch and scene.torch.cuda:
        return scene.torch.cuda
    compilers = {t.version for t in scene.machine.toolkits or () if t.nvcc and t.version}
    if scene.report.nvcc is None and len(compilers) == 1:
        return str(CudaVersion.parse(compilers.pop()))
    return str(CudaVersion.parse(scene.report.nvcc.value)) if scene.report.nvcc else None


def cuda_of_ptx(scene: Scene, ptx_isa: str) -> str | None:
    """The first toolkit, ``12.1``, that writes a PTX version, ``8.1``; else the first driver's that reads it."""
    for toolkit in scene.catalogue.toolkits:
        if DriverVersion.parse(toolkit.ptx_isa) >= DriverVersion.parse(ptx_isa):
            return str(CudaVersion.parse(toolkit.version)) if toolkit.ptx_isa == ptx_isa else _of_driver(scene, ptx_isa)
    return _of_driver(scene, ptx_isa)


def _of_driver(scene: Scene, ptx_isa: str) -> str | None:
    return next(
        (b.cuda for b in scene.catalogue.drivers if DriverVersion.parse(b.ptx_isa) >= DriverVersion.parse(ptx_isa)),
        None,
    )


def _remedies(scene: Scene, newer: str | None, have: str | None) -> Iterator[Remedy]:
    torch = scene.torch
    if torch and torch.code and scene.unserved([code for code in torch.code if code.startswith("sm_")]):
        yield from replacements(scene)
    yield from _older_package(scene, have)
    if scene.first("from-source") or scene.report.nvcc or not scene.about_torch:
        yield _compile_natively(scene)
    elif not any(name in scene.report.installed for name in ("cudatoolkit", "numba")):
        native = archs_for(scene, scene.gpus)
        code = ", ".join(f"sm_{cc.replace('.', '')}" for cc in native.split(";")) if native else "sm_XY"
        text = (
            f"Use a build that carries machine code for {gpu_names(scene.gpus)} ({code}): a newer release of the "
            f"package, or one built from source for the card; machine code needs no such driver."
        )
        yield Remedy(text)
    if have and newer:
        yield Remedy(
            f"Compile with the toolkit of CUDA {have} or older, the newest whose PTX this driver reads "
            "(nvcc --version shows which one is used)."
        )
    if newer:
        yield from filter(None, (compat_package(scene, newer), driver_knowing(scene, newer)))
    else:
        yield Remedy(
            "Or install a newer driver: one whose CUDA version is that of the toolkit which compiled the "
            "code, at least."
        )


def _older_package(scene: Scene, have: str | None) -> Iterator[Remedy]:
    """A conda toolkit is one package, and can follow the driver."""
    if have and "cudatoolkit" in scene.report.installed:
        text = f"Take the conda toolkit that this driver knows in full, CUDA {have} or older."
        yield Remedy(text, f'conda install "cudatoolkit<={have}"')
    elif have and "numba" in scene.report.installed:
        major = CudaVersion.parse(have).major
        text = f"Let numba compile with a toolkit of CUDA {have}: its PTX is what this driver reads."
        command = f'conda install -c conda-forge "cuda-version={have}" cuda-nvcc cuda-nvrtc'
        yield Remedy(text, command if major >= 12 else f'conda install "cudatoolkit<={have}"')


def _compile_natively(scene: Scene) -> Remedy:
    native = archs_for(scene, scene.gpus)
    if not native:
        return Remedy(
            "Compile for the card itself (-gencode arch=compute_XY,code=sm_XY; TORCH_CUDA_ARCH_LIST for torch "
            "extensions): "
            "machine code needs no compiling by the driver."
        )
    text = (
        f"Compile for the card itself, {gpu_names(scene.gpus)}: machine code needs no compiling by the driver, within "
        f"one CUDA major."
    )
    if not scene.about_torch:
        names = [cc.replace(".", "") for cc in native.split(";")]
        flags = " ".join(f"-gencode arch=compute_{name},code=sm_{name}" for name in names)
        return Remedy(text, f'nvcc {flags} ...  # with CMake: -DCMAKE_CUDA_ARCHITECTURES="{";".join(names)}"')
    source = source_of(scene)
    command = f'TORCH_CUDA_ARCH_LIST="{native}" pip install --no-build-isolation --force-reinstall --no-deps {source}'
    return Remedy(text, command)

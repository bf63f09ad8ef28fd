"""``ptx-newer-than-driver``: the driver had to compile code from PTX that it cannot read (rule 2)."""

from __future__ import annotations

from collections.abc import Iterator

from envsolve.diagnose.causes._shared import Cause, by_triton, capitalized, driver_text, gpu_names, lines
from envsolve.diagnose.fixes import replacements
from envsolve.diagnose.model import Finding, Fix, Grounds
from envsolve.diagnose.rebuilding import archs_for, gencode, runs_nvcc, source_of
from envsolve.diagnose.scene import Scene
from envsolve.diagnose.tool_fixes import compat_package, driver_knowing
from envsolve.values import CudaVersion, DriverVersion

CAUSE = Cause.of(__name__)


def from_report(scene: Scene) -> Iterator[Finding]:
    """Compare the PTX's toolkit with the driver's CUDA version."""
    unread = scene.first("cubin-invalid")
    if unread and scene.torch is None and scene.driver and not by_triton(scene):
        ways = filter(None, (driver_knowing(scene, scene.usual_cuda), CAUSE.fix("older-program")))
        evidence = (*lines(unread), *scene.driver_evidence, *scene.gpu_evidence)
        yield CAUSE.finding("unread", Grounds.STATED, evidence, ways, driver=capitalized(driver_text(scene)))
        return
    error = CAUSE.first(scene)
    # TensorFlow says itself whose code is missing. Without torch, a GPU that it does not know is the cause.
    unknown = scene.torch is None and bool(scene.gpus) and scene.mentions("tensorflow")
    if error is None or unknown or scene.first("tensorflow-code", "tensorflow-jit"):
        return
    made_with, have = _toolkit(scene), _read_by_driver(scene)
    newer = bool(made_with and have and CudaVersion.parse(made_with) > CudaVersion.parse(have))
    own = have is None or (scene.driver and scene.driver.cuda)
    yield CAUSE.finding(
        "newer",
        Grounds.CONFIRMED if newer else Grounds.STATED,
        (*lines(error, scene.first("built-with")), *scene.driver_evidence, *scene.gpu_evidence),
        _fixes(scene, made_with if newer else None, have),
        made=CAUSE.words("made-with", cuda=made_with) if made_with else CAUSE.words("made-with-newer"),
        driver=driver_text(scene) if own else CAUSE.words("reads", cuda=have),
    )


def _read_by_driver(scene: Scene) -> str | None:
    """The CUDA version whose PTX the driver reads: its own, otherwise what its compiler says in the error."""
    if scene.driver and scene.driver.cuda:
        return scene.driver.cuda
    version = scene.first("jit-version")
    return _cuda_of_ptx(scene, version.groups["known"]) if version else None


def _toolkit(scene: Scene) -> str | None:
    """The toolkit that wrote the PTX: best from the error's own PTX version, then from who compiled, then torch's."""
    if version := scene.first("jit-version"):
        return _cuda_of_ptx(scene, version.groups["asked"])
    if stated := scene.first("built-with"):
        return stated.groups["cuda"]
    # What was compiled here has the PTX of the nvcc here; torch's own comes from its toolkit.
    if scene.nvcc and scene.first("from-source"):
        return scene.nvcc
    if scene.toolkit:
        return scene.toolkit
    compilers = {t.version for t in scene.machine.toolkits or () if t.nvcc and t.version}
    return scene.nvcc or (str(CudaVersion.parse(compilers.pop())) if len(compilers) == 1 else None)


def _cuda_of_ptx(scene: Scene, ptx_isa: str) -> str | None:
    """The first toolkit, ``12.1``, that writes a PTX version, ``8.1``; otherwise the first driver's that reads it."""
    wanted = DriverVersion.parse(ptx_isa)
    toolkit = next((t for t in scene.catalogue.toolkits if DriverVersion.parse(t.ptx_isa) >= wanted), None)
    if toolkit and toolkit.ptx_isa == ptx_isa:
        return str(CudaVersion.parse(toolkit.version))
    return next((b.cuda for b in scene.catalogue.drivers if DriverVersion.parse(b.ptx_isa) >= wanted), None)


def _fixes(scene: Scene, newer: str | None, have: str | None) -> Iterator[Fix]:
    torch, native = scene.torch, archs_for(scene, scene.gpus)
    if torch and torch.code and scene.unserved([code for code in torch.code if code.startswith("sm_")]):
        yield from replacements(scene)
    yield from _older_package(scene, have)
    numba = _is_of_numba(scene)
    if numba:
        pass  # numba compiles for the GPU, and its output passes through the driver all the same
    elif scene.first("from-source") or scene.report.nvcc or runs_nvcc(scene) or not scene.about_torch:
        yield _compile(scene, native)
    elif "cudatoolkit" not in scene.report.installed:
        code = ", ".join(f"sm_{cc.replace('.', '')}" for cc in native.split(";")) if native else "sm_XY"
        yield CAUSE.fix("build-with-code", gpus=gpu_names(scene.gpus), code=code)
    if have and newer and not numba:
        yield CAUSE.fix("older-toolkit", cuda=have)
    if newer:
        yield from filter(None, (compat_package(scene, newer), driver_knowing(scene, newer)))
    else:
        yield CAUSE.fix("newer-driver")


def _is_of_numba(scene: Scene) -> bool:
    """Whether numba compiled the code: its linker's name is in the error, whether or not the package is named."""
    return "numba" in scene.report.installed or scene.mentions("numba.cuda", "numba-cuda", "culinkadddata")


def _older_package(scene: Scene, have: str | None) -> Iterator[Fix]:
    """A conda toolkit is one package, and can follow the driver."""
    if have and "cudatoolkit" in scene.report.installed:
        yield CAUSE.fix("cudatoolkit", cuda=have)
    elif have and _is_of_numba(scene):
        ways = ["numba-wheels", "numba"] if not scene.mentions_conda else ["numba"]
        old = ["numba-cudatoolkit"] if scene.mentions_conda or not scene.mentions("without conda") else []
        for name in ways if CudaVersion.parse(have).major >= 12 else old:
            yield CAUSE.fix(name, cuda=have)


def _compile(scene: Scene, native: str) -> Fix:
    if not native:
        return CAUSE.fix("compile-any")
    if runs_nvcc(scene):
        command = f"nvcc {gencode(native)} ..."
    elif scene.about_torch:
        options = "--no-build-isolation --force-reinstall --no-deps"
        command = f'TORCH_CUDA_ARCH_LIST="{native}" pip install {options} {source_of(scene)}'
    else:
        names = [cc.replace(".", "") for cc in native.split(";")]
        command = f'nvcc {gencode(native)} ...  # with CMake: -DCMAKE_CUDA_ARCHITECTURES="{";".join(names)}"'
    return CAUSE.fix("compile", gpus=gpu_names(scene.gpus), command=command)

"""``cuda-home-elsewhere``: a build uses another toolkit than the intended one (rule 10)."""

from __future__ import annotations

from collections.abc import Iterator

from envsolve.diagnose.causes._shared import Cause, lines, shown_variable, torch_evidence
from envsolve.diagnose.causes.nvcc_arch_unknown import another_ran
from envsolve.diagnose.causes.nvcc_missing import (
    build_again,
    fault_of,
    look_for_home,
    other_nvccs,
    set_home,
    toolkit_of,
    toolkit_versions,
)
from envsolve.diagnose.causes.nvcc_torch_mismatch import nvcc_used, unsupported_gpus
from envsolve.diagnose.model import Finding, Fix, Grounds
from envsolve.diagnose.scene import Scene
from envsolve.diagnose.signatures import Match
from envsolve.diagnose.tool_fixes import nvcc_remedies
from envsolve.environment.model import Environment
from envsolve.facts.hardware import Toolkit
from envsolve.values import CudaVersion

CAUSE = Cause.of(__name__)


def from_report(scene: Scene) -> Iterator[Finding]:
    """Two toolkits, and a build that mixes them or uses the wrong one; or a directory without a compiler."""
    if (match := CAUSE.first(scene, "cmake")) and scene.os != "windows":
        named = (CAUSE.fix("cmake-toolkit", again=build_again(scene)), CAUSE.fix("cmake-remove"))
        yield CAUSE.finding("cmake", Grounds.STATED, lines(match), named, ("nvcc-missing",))
        return
    if another := another_ran(scene):
        yield _another(scene, *another)
        return
    match fault_of(scene):
        case "mismatch", match:
            torch, nvcc = match.groups["torch"], nvcc_used(scene, match)
            versions = {CudaVersion.parse(t.version) for t in scene.machine.toolkits or () if t.version}
            taken = CudaVersion.parse(nvcc) in versions and len(versions) > 1
            # Naming another toolkit helps only if the machine has it, and it supports the GPUs.
            if taken and toolkit_of(scene, torch) and not unsupported_gpus(scene, torch):
                evidence = (*lines(match), *torch_evidence(scene), *scene.gpu_evidence)
                found = ("nvcc-torch-mismatch",)
                fixes = set_home(scene, torch)
                yield CAUSE.finding("elsewhere", Grounds.CONFIRMED, evidence, fixes, found, torch=torch, nvcc=nvcc)
        case "headers", match:
            fixes, found = _named(scene, match.group("nvcc")), ("nvcc-missing",)
            values = {"nvcc": match.group("nvcc") or "another version", "headers": match.groups["headers"]}
            yield CAUSE.finding("headers", Grounds.STATED, lines(match), fixes, found, **values)
        case "taken", match:
            other = other_nvccs(scene, match)[0]
            fix, values = CAUSE.fix("cudacxx", nvcc=other), {"taken": match.groups["nvcc"], "other": other}
            yield CAUSE.finding("taken", Grounds.SUGGESTED, lines(match), (fix,), **values)
        case "several", match:
            evidence = (*lines(match), *shown_variable(scene, "PATH"))
            several = " and ".join(toolkit_versions(scene))
            yield CAUSE.finding("several", Grounds.SUGGESTED, evidence, _named(scene, None), versions=several)
        case "path", match:
            path = match.group("path", "other")
            # Without the variable torch and CMake look for nvcc on PATH and in /usr/local/cuda.
            unset = [CAUSE.fix("unset", wanted="")] if scene.mentions("cuda_home=", "cuda_path=") else []
            cuda = scene.toolkit
            if path == "/bin/nvcc":  # what is left of $CUDA_HOME/bin/nvcc without the variable
                unset = [CAUSE.fix("empty")]
            ways = (*unset, *look_for_home(scene, cuda), *nvcc_remedies(scene, cuda))
            yield CAUSE.finding("gone", Grounds.STATED, lines(match), ways, path=path)


def _another(scene: Scene, match: Match, toolkit: Toolkit) -> Finding:
    """An nvcc refused a GPU that the report's toolkit knows, so an older nvcc ran, usually the distribution's."""
    placed = toolkit_of(scene, toolkit.version)
    home = (placed.path if placed else None) or f"/usr/local/cuda-{toolkit.version}"
    named = {"nvcc": f"{home}/bin/nvcc", "home": home, "cuda": toolkit.version, "arch": match.groups["arch"]}
    fixes = [CAUSE.fix("all-nvccs")]
    if scene.mentions("cmake", "gmake"):
        fixes.insert(0, CAUSE.fix("cmake-compiler", **named))
    else:
        fixes.insert(0, CAUSE.fix("first-on-path", **named))
    return CAUSE.finding("another", Grounds.CONFIRMED, (*lines(match), *scene.gpu_evidence), fixes, **named)


def _named(scene: Scene, cuda: str | None) -> Iterator[Fix]:
    """Name the toolkit of torch's CUDA; if that is not known, each that the machine has."""
    wanted = scene.toolkit or cuda
    for version in [wanted] if wanted else reversed(toolkit_versions(scene)):
        toolkit = toolkit_of(scene, version)
        yield CAUSE.fix("name", cuda=version, home=(toolkit.path if toolkit else None) or f"/usr/local/cuda-{version}")
    yield CAUSE.fix("clean")


def from_environment(environment: Environment, scene: Scene) -> Iterator[Finding]:
    """Compare what CUDA_HOME names with what exists."""
    tools = environment.tools
    home, path = tools.home_toolkit, tools.path_toolkit
    if tools.home is None:
        return
    if home is None:
        what = CAUSE.words("no-toolkit", home=tools.home)
    elif home.version and path and path.version and CudaVersion.parse(home.version) != CudaVersion.parse(path.version):
        what = CAUSE.words("another", home=tools.home, cuda=home.version, path=path.version)
    else:
        return
    evidence = (f"CUDA_HOME={tools.home}", *((f"PATH: {path.path}, CUDA {path.version}",) if path else ()))
    cuda = environment.torch.toolkit if environment.torch else None
    fix = CAUSE.fix("unset", wanted=CAUSE.words("of-torch", cuda=cuda) if cuda else "")
    if path and path.nvcc and path.version:
        major = CudaVersion.parse(path.version).major
        # torch.utils.cpp_extension refuses an nvcc of another major, and only warns of another minor release.
        if cuda is None or major == CudaVersion.parse(cuda).major:
            fix = CAUSE.fix("as-path", cuda=path.version, home=path.path)
    yield CAUSE.finding("installed", Grounds.NOTICED, evidence, (fix,), what=what)

"""``nvcc-missing``, ``nvcc-torch-mismatch`` and ``cuda-home-elsewhere``: the compiler beside torch (rule 10)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from envsolve.diagnose.causes._shared import gpu_names, lines
from envsolve.diagnose.model import Finding, Grounds, Remedy, RuledOut
from envsolve.diagnose.remedies.tools import nvcc_remedies
from envsolve.diagnose.remedies.torch import replacements, with_another_python
from envsolve.diagnose.scene import Scene
from envsolve.diagnose.signatures import Match
from envsolve.machine.model import Toolkit
from envsolve.rules.nvidia.code import libraries_serve
from envsolve.values import CudaVersion

_MISMATCHES = ("nvcc-torch", "nvcc-torch-apex", "nvcc-torch-deepspeed")

_MISMATCH = (
    "An extension shares torch's CUDA libraries, so it must be compiled by an nvcc of torch's own CUDA: torch has "
    "{torch}, the nvcc in use is of {nvcc}. The driver's CUDA version, which nvidia-smi shows, has no part in this. "
    "An nvcc of CUDA {torch} in the environment is enough; the system's may stay."
)
_CARD = (
    "An extension must be compiled by an nvcc of torch's own CUDA, here {torch}; but no toolkit of {torch} knows "
    "{cards}, so neither that nvcc nor this torch can serve the card. Another nvcc would only move the failure to "
    "run time. Torch itself has to move to a CUDA that knows the card; the extension then follows."
)
_ELSEWHERE = (
    "The build takes the toolkit that CUDA_HOME (or CUDA_PATH) names, else the nvcc on PATH, else /usr/local/cuda; "
    "here it took CUDA {nvcc}, and torch needs {torch}. A toolkit of the right version is there, at another place. "
    "CUDA_HOME must name it."
)
_MISSING = (
    "Compiling CUDA code needs nvcc, the toolkit's compiler. Torch's wheels bring CUDA's run-time libraries and no "
    "compiler, so that CUDA works in torch while a build finds nothing. An nvcc of torch's own CUDA version is "
    "needed, and CUDA_HOME must name its folder."
)
_HEADERS = (
    "A build must find nvcc, headers and libraries of one toolkit; here nvcc is of CUDA {nvcc} and the headers are of "
    "CUDA {headers}. Two toolkits are installed, and PATH, CUDA_HOME and /usr/local/cuda do not all name the same one. "
    "All must name the toolkit of torch's CUDA."
)
_SEVERAL = (
    "Toolkits of CUDA {versions} are installed, and a build takes the one that CUDA_HOME (or CUDA_PATH) names, else "
    "the nvcc that comes first on PATH, else /usr/local/cuda. The one that was taken is not the one that was meant. "
    "CUDA_HOME and PATH must name the toolkit of torch's CUDA."
)
_TAKEN = (
    "CMake looks for nvcc in CUDACXX, then on PATH as it was at the first run, then in /usr/local/cuda: it took "
    "{taken}, and {other} is there too. Headers and libraries then come from the toolkit of the nvcc that was taken. "
    "CUDACXX must name the one that is meant."
)
_GONE = (
    "CUDA_HOME, or what the build takes for it, names a folder without nvcc: {path}. A toolkit was moved, removed, "
    "or is of the runtime kind, which has no compiler. CUDA_HOME must name a folder that has bin/nvcc."
)


def weigh(scene: Scene) -> Iterator[Finding | RuledOut]:
    """Which CUDA torch has, which nvcc is used, which others there are."""
    if match := scene.first(*_MISMATCHES):
        yield from _mismatch(scene, match)
    elif match := scene.first("cmake-cuda-headers"):
        text = _HEADERS.format(nvcc=match.group("nvcc") or "another version", headers=match.groups["headers"])
        remedies = (*_name_one(scene, match.group("nvcc")), _clean_build())
        found = frozenset({"nvcc-missing"})
        yield Finding("cuda-home-elsewhere", Grounds.STATED, text, lines(match), remedies, found)
    elif (match := scene.first("cmake-cuda-compiler")) and (others := _other_nvccs(scene, match.groups["nvcc"])):
        text = _TAKEN.format(taken=match.groups["nvcc"], other=others[0])
        name = Remedy(
            "Name the nvcc that is meant, on a clean build tree: CMake remembers the first.",
            f"rm -rf build && CUDACXX={others[0]} cmake -B build ...",
        )
        yield Finding("cuda-home-elsewhere", Grounds.SUGGESTED, text, lines(match), (name,))
    elif (match := scene.first("nvcc-torch-words")) and len(versions := _versions(scene)) > 1:
        text = _SEVERAL.format(versions=" and ".join(versions))
        path = scene.report.variables.get("PATH")
        evidence = (*lines(match), *((f"{path.where}: {path.quote}",) if path else ()))
        remedies = (*_name_one(scene, None), _clean_build())
        yield Finding("cuda-home-elsewhere", Grounds.SUGGESTED, text, evidence, remedies)
    elif match := scene.first("nvcc-path-missing"):
        text = _GONE.format(path=match.group("path", "other"))
        yield Finding(
            "cuda-home-elsewhere",
            Grounds.STATED,
            text,
            lines(match),
            (*_set_home(scene, _cuda(scene, None)), *nvcc_remedies(scene, _cuda(scene, None))),
        )
        yield Finding(
            "nvcc-missing",
            Grounds.SUGGESTED,
            _MISSING,
            lines(match),
            (*_set_home(scene, _cuda(scene, None)), *nvcc_remedies(scene, _cuda(scene, None))),
        )
    elif match := scene.first("cuda-home-unset", "nvcc-absent", "cmake-no-cuda"):
        remedies = (*_set_home(scene, _cuda(scene, None)), *nvcc_remedies(scene, _cuda(scene, None)))
        yield Finding("nvcc-missing", Grounds.STATED, _MISSING, lines(match), remedies)


def _cuda(scene: Scene, match: Match | None) -> str | None:
    stated = match.group("torch") if match else None
    return stated or (scene.torch.cuda if scene.torch else None)


def _mismatch(scene: Scene, match: Match) -> Iterator[Finding]:
    torch = match.groups["torch"]
    nvcc = match.group("nvcc") or (str(CudaVersion.parse(scene.report.nvcc.value)) if scene.report.nvcc else None)
    nvcc = nvcc or next((t.version for t in scene.machine.toolkits or () if t.version), None) or "another CUDA"
    evidence = (*lines(match), *(scene.torch.evidence if scene.torch else ()), *scene.gpu_evidence)
    unknown = [
        gpu
        for gpu in scene.gpus
        if gpu.cc and libraries_serve(torch, gpu.cc, scene.facts.toolkits, scene.facts.architectures).ok is False
    ]
    if unknown:
        another = with_another_python(scene)
        remedies = [another[1]] if another else list(replacements(scene))
        text = _CARD.format(torch=torch, cards=gpu_names(unknown))
        yield Finding("nvcc-torch-mismatch", Grounds.CONFIRMED, text, evidence, tuple(remedies))
        return
    other = _toolkit_of(scene, torch)
    if other is not None and _elsewhere(scene, nvcc):
        text = _ELSEWHERE.format(torch=torch, nvcc=nvcc)
        remedies = [*_set_home(scene, torch)]
        found = frozenset({"nvcc-torch-mismatch"})
        yield Finding("cuda-home-elsewhere", Grounds.CONFIRMED, text, evidence, tuple(remedies), found)
    text = _MISMATCH.format(torch=torch, nvcc=nvcc)
    yield Finding(
        "nvcc-torch-mismatch",
        Grounds.CONFIRMED,
        text,
        evidence,
        (*_set_home(scene, torch), *nvcc_remedies(scene, torch)),
    )


def _elsewhere(scene: Scene, nvcc: str) -> bool:
    """Whether the wrong toolkit was taken although the right one is there."""
    versions = {CudaVersion.parse(t.version) for t in scene.machine.toolkits or () if t.version}
    return CudaVersion.parse(nvcc) in versions and len(versions) > 1


_NVCC = re.compile(r"/bin/nvcc\b")
_BEFORE = re.compile(r"[\w./$~-]{1,200}$")
_PLACES = 200


def _other_nvccs(scene: Scene, taken: str) -> list[str]:
    """Other paths of an nvcc that the report names, where it tells of something that failed."""
    if not scene.mentions("fail", "error", "wrong", "mismatch", "incorrect"):
        return []
    text = scene.report.text
    found = islice(_NVCC.finditer(text), _PLACES)
    folders = ((at, _BEFORE.search(text, max(0, at.start() - 200), at.start())) for at in found)
    paths = dict.fromkeys(folder[0] + at[0] for at, folder in folders if folder)
    return [path for path in paths if path != taken]


def _versions(scene: Scene) -> list[str]:
    """The CUDA versions of the toolkits with an nvcc."""
    known = {t.version for t in scene.machine.toolkits or () if t.version and t.nvcc is not False}
    return sorted(known, key=CudaVersion.parse)


def _name_one(scene: Scene, cuda: str | None) -> Iterator[Remedy]:
    """Name the toolkit of torch's CUDA; where that is not known, each that is there."""
    wanted = _cuda(scene, None) or cuda
    for version in [wanted] if wanted else reversed(_versions(scene)):
        toolkit = _toolkit_of(scene, version)
        home = (toolkit.path if toolkit else None) or f"/usr/local/cuda-{version}"
        text = f"Name the toolkit of CUDA {version}, if it is torch's (torch.version.cuda says which that is)."
        yield Remedy(text, f"export CUDA_HOME={home} PATH={home}/bin:$PATH && unset CUDA_PATH CPATH")


def _clean_build() -> Remedy:
    return Remedy("Then build from a clean tree: CMake remembers the toolkit of its first run.", "rm -rf build")


def _toolkit_of(scene: Scene, cuda: str | None) -> Toolkit | None:
    known = scene.machine.toolkits or ()
    return next(
        (t for t in known if cuda and t.version and t.cuda_version == CudaVersion.parse(cuda) and t.nvcc is not False),
        None,
    )


def _set_home(scene: Scene, cuda: str | None) -> Iterator[Remedy]:
    toolkit = _toolkit_of(scene, cuda)
    if toolkit is None:
        if cuda and scene.os != "windows":
            text = f"If the machine has a toolkit of CUDA {cuda} (ls -d /usr/local/cuda-*), name it to the build."
            yield Remedy(text, f"export CUDA_HOME=/usr/local/cuda-{cuda} PATH=/usr/local/cuda-{cuda}/bin:$PATH")
        return
    home = toolkit.path or f"/usr/local/cuda-{cuda}"
    text = f"Name the toolkit of CUDA {cuda} to the build."
    yield Remedy(text, f"export CUDA_HOME={home} PATH={home}/bin:$PATH && unset CUDA_PATH")

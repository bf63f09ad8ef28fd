"""Companions whose files say what they were built for if their METADATA does not.

Each function reads one release's wheel and completes its records. A wheel that says it in a way which is not known is
refused, or its release left out; nothing is guessed.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing

from msgspec.structs import replace
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from envsolve.binaries.files import Artefact, WheelFile, read_text
from envsolve.binaries.library import Extension, cuda_major, read_extension
from envsolve.binaries.measure import read_version
from envsolve.errors import UsageError
from envsolve.facts.builds import Build
from envsolve.facts.evidence import Evidence
from envsolve.facts.hardware import Toolkit
from envsolve.facts.maintain.refresh import Index, Release, each, record_of, releases, with_metadata
from envsolve.values import CudaVersion

# Which libraries of a package are its main ones: how its wheels are read, not a fact about a release.

_MAIN: Mapping[str, re.Pattern[str]] = {
    package: re.compile(pattern)
    for package, pattern in {
        "torchvision": r"torchvision/_C(_stable)?\.([\w-]+\.)?(so|pyd)",
        "torchaudio": r"torchaudio/(lib/)?(lib|_)torchaudio(\.[\w-]+)?\.(so|pyd)",
        "torchcodec": r"torchcodec/libtorchcodec_?(core|decoder)?\d+\.(so|dll)",
        "torch-tensorrt": r"torch_tensorrt/lib/(lib)?torchtrt\.(so|dll)",
        "torchao": r"torchao/(prototype/)?[\w-]+(\.[\w-]+)?\.so",
        "xformers": r"xformers/_C\.(so|pyd)",
        "vllm": r"vllm/_C(_stable_libtorch)?\.[\w.-]+",
        # One is loaded on cc 9.0 and the other on every other GPU; both hold the same list.
        "sgl": r"sgl_kernel/(sm\d+/)?common_ops[\w.-]+",
        "fbgemm-gpu": r"fbgemm_gpu/fbgemm_gpu_py\.so",
        "transformer-engine": r"transformer_engine/(wheel_lib/)?libtransformer_engine\.so",
        "faiss": r"faiss/(_swigfaiss\.cpython[\w.-]*|libfaiss)\.so|faiss_gpu(_cu\d+)?\.libs/libfaiss-[\w.]+\.so",
        "spconv": r"spconv/core_cc[\w.-]*\.(so|pyd)",
        "onnxruntime-gpu": r"onnxruntime/capi/(lib)?onnxruntime_providers_cuda\.(so|dll)",
        # The libraries that hold compiled kernels; CuPy compiles its others for the GPU when they are first used.
        "cupy": r"cupy/(cuda/(cub|thrust)|random/_generator_api)\.[\w.-]+",
        # XLA compiles a program for the GPU at hand; these are the kernels that JAX ships ready-made.
        "jax-plugin": r"jax_cuda\d+_plugin/_(linalg|prng)\.so",
        "jax-pjrt": r"jax_plugins/xla_cuda\d+/xla_cuda_plugin\.so",
        # RAPIDS: the C++ libraries, in wheels of their own; the Python packages call them.
        "lib": r"lib(cudf|cuml|cugraph|cuvs|raft)/lib(64)?/lib(cudf|cuml\+\+|cuml|cugraph|cuvs|raft)\.so",
        "xgboost": r"xgboost/lib/(lib)?xgboost\.(so|dll)",
        "ctranslate2": r"ctranslate2\.libs/libctranslate2-[\w.-]+|ctranslate2/ctranslate2\.dll",
        "catboost": r"catboost/_catboost(\.[\w-]+)?\.(so|pyd)",
        # Until 2.5 all is in one library; the other copy of it, for processors without AVX, has the same kernels.
        "paddlepaddle-gpu": r"paddle/(fluid/core_avx|(fluid|base)/libpaddle|libs/libphi)\.(so|pyd)",
    }.items()
}
# Each of its libraries holds the kernels for other GPUs, and it loads all of them: its list is that of all together.
_OF_ALL_LIBRARIES = frozenset({"torchao"})
_KIND = re.compile(
    r"(cupy)-cuda\w+|(faiss)-gpu(?:-cu\d+)?|(spconv)-cu\d+|(jax)-cuda\d+(-(?:plugin|pjrt))"
    r"|(transformer-engine)-cu\d+|(sgl)(?:ang)?-kernel|(lib)(?:cudf|cuml|cugraph|cuvs|raft)-cu\d+"
)


def extension_of(package: str, wheel: Artefact) -> Extension | None:
    """Contents of a package's main libraries; None if they are unknown or missing.

    Raises:
        UsageError: A library is damaged.
    """
    kind = _KIND.fullmatch(package)
    main = _MAIN.get("".join(filter(None, kind.groups())) if kind else package)
    extension = read_extension(wheel, main) if main else None
    if extension is not None and package in _OF_ALL_LIBRARIES:
        return dataclasses.replace(extension, code=extension.every)
    return extension


def with_extension(build: Build, extension: Extension | None) -> Build:
    """Return the build with the GPU code and the ABIs of its main libraries."""
    if extension is None:
        return build
    build = replace(build, code=extension.code if build.cuda else (), cxx11_abi=extension.cxx11_abi)
    if extension.stable_abi:
        # Rule 9: one wheel serves the torch that it was built for and all later ones.
        return replace(build, stable_abi=True, torch=_or_later(build.torch))
    return build


def _or_later(torch: str | None) -> str | None:
    """``>=2.10`` for ``==2.10.*`` and ``==2.10.0``; other specifiers stay as they are."""
    pinned = re.fullmatch(r"==(\d+\.\d+)(?:\.(?:\*|\d+))?", torch or "")
    return f">={pinned[1]}" if pinned else torch


def compiled_with(cuda: str, extension: Extension, toolkits: Sequence[Toolkit]) -> str:
    """The toolkit that the code was compiled with: of the same major as ``cuda``, with its PTX version and its GPUs.

    Returns:
        ``cuda`` itself where it is among several that could be, otherwise the oldest that could; ``cuda`` where none
        could.
    """
    code = {name.replace("compute_", "sm_") for name in extension.every}
    possible = [
        toolkit.version
        for toolkit in toolkits
        if toolkit.version.split(".")[0] == cuda.split(".")[0]
        and code <= set(toolkit.archs)
        and extension.ptx_isa in (None, toolkit.ptx_isa)
    ]
    return cuda if cuda in possible else min(possible, key=Version, default=cuda)


#: Records of a release, with its METADATA and the torch that this names; its wheel; toolkits -> the records completed.
Reader = Callable[[Sequence[Build], WheelFile, Sequence[Toolkit]], list[Build]]

_ANY = "any"
_LOCAL = re.compile(r"\+(cpu|cu(\d\d)(\d))")
_BNB_LIBRARY = re.compile(r"bitsandbytes/libbitsandbytes_cuda(\d\d)(\d)\.(?:so|dll)")
_BNB_CPU = re.compile(r"bitsandbytes/libbitsandbytes_cpu\.(?:so|dll)")
_BNB_LOADER = re.compile(r"bitsandbytes/(cextension|cuda_setup/main)\.py")
_BNB_FALLS_BACK = re.compile(r"v\[0\] == runtime_version\[0\] and v < runtime_version")
_BNB_EXACT = re.compile(r"libbitsandbytes_(?:\{prefix\}|cuda)\{[\w.]*cuda_version\w*\}")
_AO_PAIR = re.compile(r'\(_parse_version\("([\d.]+)"\), _parse_version\("([\d.]+)"\)\)')
_AO_OLDEST = re.compile(r'min_torch_version = _parse_version\("([\d.]+)"\)')


def named_by_itself(builds: Sequence[Build], wheel: WheelFile, toolkits: Sequence[Toolkit]) -> list[Build]:
    """torchvision, torchaudio, torchcodec: ``version.py`` has the local version that the file name lacks.

    Left out where METADATA names no torch, or ``version.py`` no variant (a CPU build from before they did).
    """
    package = builds[0].package
    version, _ = read_version(read_text(wheel, f"{package}/version.py"))
    match = _LOCAL.search(version or "")
    if match is None or any(build.torch is None for build in builds):
        return []
    cuda = f"{match[2]}.{match[3]}" if match[2] else None
    extension = extension_of(package, wheel)
    return [with_extension(replace(build, variant=match[1], cuda=cuda), extension) for build in builds]


def xformers(builds: Sequence[Build], wheel: WheelFile, toolkits: Sequence[Toolkit]) -> list[Build]:
    """xformers: ``cpp_lib.json`` has the toolkit of the build as ``1208``.

    It is not always that of the torch on the default index; its library needs a runtime of the same major.
    """
    number = int(json.loads(read_text(wheel, "xformers/cpp_lib.json"))["version"]["cuda"])
    major, minor = divmod(number, 100)
    cuda, serves = f"{major}.{minor}", f">={major},<{major + 1}"
    extension = extension_of("xformers", wheel)
    named = [replace(build, variant=f"cu{major}{minor}", cuda=cuda, torch_cuda=serves) for build in builds]
    return [with_extension(build, extension) for build in named]


def torchao(builds: Sequence[Build], wheel: WheelFile, toolkits: Sequence[Toolkit]) -> list[Build]:
    """torchao: Python for any variant; the kernels beside it are optional, and load with some torch versions only.

    ``code`` and ``cuda`` are those of the kernels, ``torch`` is the list in ``__init__.py`` by which it loads them. A
    release without such a list is left out.
    """
    source = read_text(wheel, "torchao/__init__.py")
    oldest = _AO_OLDEST.search(source)
    exact = [torch for version, torch in _AO_PAIR.findall(source) if version == builds[0].version]
    torch = f">={oldest[1]}" if oldest else f"=={exact[0]}" if exact else None
    if torch is None:
        return []
    extension = extension_of("torchao", wheel)
    named = [replace(build, variant=_ANY, torch=torch) for build in builds]
    if extension is None or extension.cuda_major is None:
        return named
    cuda = compiled_with(f"{extension.cuda_major}.0", extension, toolkits)
    return [replace(build, cuda=cuda, code=extension.code, cxx11_abi=extension.cxx11_abi) for build in named]


def bitsandbytes(builds: Sequence[Build], wheel: WheelFile, toolkits: Sequence[Toolkit]) -> list[Build]:
    """bitsandbytes: one library for each CUDA, of which it loads one by torch's own CUDA.

    Until 0.44 there is a second one for old GPUs, which counts as part of the first. Until 0.49 it wants
    exactly torch's CUDA; later it falls back within the major: to the next older one, otherwise to the oldest.

    Raises:
        UsageError: It chooses in a way that is not known.
    """
    source = "".join(read_text(wheel, path) for path in wheel.files() if _BNB_LOADER.fullmatch(path))
    falls_back = bool(_BNB_FALLS_BACK.search(source))
    if not falls_back and not _BNB_EXACT.search(source):
        raise UsageError(f"{wheel.name} chooses its library in an unknown way")
    libraries = {(int(m[1]), int(m[2])): path for path in wheel.files() if (m := _BNB_LIBRARY.fullmatch(path))}
    found: list[Build] = []
    for cuda, path in sorted(libraries.items()):
        either = re.compile(re.escape(path).replace(r"\.", r"(_nocublaslt)?\."))
        extension = read_extension(wheel, either)
        serves = served(cuda, sorted(libraries)) if falls_back else f"=={cuda[0]}.{cuda[1]}"
        found += (_with_library(build, cuda, extension, serves) for build in builds)
    if any(map(_BNB_CPU.fullmatch, wheel.files())):
        found += (replace(build, variant="cpu", code=()) for build in builds)
    return found


def served(cuda: tuple[int, int], libraries: Sequence[tuple[int, int]]) -> str:
    """The CUDA versions for which one of several libraries is loaded, as a specifier: ``>=12.8,<13``.

    Args:
        libraries: All of them, in order.
    """
    same = [other for other in libraries if other[0] == cuda[0]]
    first = f"{cuda[0]}" if cuda == same[0] else f"{cuda[0]}.{cuda[1]}"
    above = next((f"{other[0]}.{other[1]}" for other in same if other > cuda), f"{cuda[0] + 1}")
    return f">={first},<{above}"


def _with_library(build: Build, cuda: tuple[int, int], extension: Extension | None, serves: str) -> Build:
    return replace(
        build,
        variant=f"cu{cuda[0]}{cuda[1]}",
        cuda=f"{cuda[0]}.{cuda[1]}",
        code=extension.every if extension else None,
        torch_cuda=serves,
    )


_BUILD_INFO = "tensorflow/python/platform/build_info.py"
_IS_CUDA = re.compile(r"'is_cuda_build'[,:] (True|False)")
_CAPABILITIES = re.compile(r"'cuda_compute_capabilities'[,:] \[([^\]]*)\]")
_TF_CUDA = re.compile(r"'cuda_version'[,:] '(?:64_(\d\d)(\d)|(\d+)\.(\d+)[\d.]*)'")
_PADDLE_CUDA = re.compile(r"(?m)^cuda_version\s*=\s*'(\d+\.\d+)'")


def tensorflow(builds: Sequence[Build], wheel: WheelFile, toolkits: Sequence[Toolkit]) -> list[Build]:
    """TensorFlow: ``build_info.py`` lists what its hundreds of megabytes of kernels were compiled for.

    ``sm_80`` there is machine code only, ``compute_80`` machine code and PTX. Source: TensorFlow's ``configure.py``.
    A wheel without it only requires another package: one for Windows tensorflow-intel, which has no GPU code.
    """
    source = read_text(wheel, _BUILD_INFO) if _BUILD_INFO in wheel.files() else "'is_cuda_build', False"
    said, archs, cuda = (pattern.search(source) for pattern in (_IS_CUDA, _CAPABILITIES, _TF_CUDA))
    if said is None:
        return []
    if said[1] == "False":
        return [replace(build, variant="cpu", code=()) for build in builds]
    if archs is None or cuda is None:
        raise UsageError(f"{wheel.name} does not say which GPUs it was compiled for")
    names = re.findall(r"\w+_\d+\w?", archs[1])
    ptx = [name for name in names if name.startswith("compute_")]
    code = tuple(dict.fromkeys([*(name.replace("compute_", "sm_") for name in names), *ptx]))
    version = ".".join(filter(None, cuda.groups()))
    return [replace(b, variant=CudaVersion.parse(version).variant, cuda=version, code=code) for b in builds]


def self_contained(builds: Sequence[Build], wheel: WheelFile, toolkits: Sequence[Toolkit]) -> list[Build]:
    """xgboost, CatBoost, CTranslate2, PaddlePaddle: one library with a CUDA runtime of its own, or none with GPU code.

    CUDA is that in PaddlePaddle's version file, otherwise that of the PTX. Builds with neither are left out.
    """
    extension = extension_of(builds[0].package, wheel)
    if extension is None:
        return []
    if not extension.every:
        return [replace(build, variant="cpu", code=()) for build in builds]
    version = "paddle/version/__init__.py"
    named = _PADDLE_CUDA.search(read_text(wheel, version)) if version in wheel.files() else None
    cuda = named[1] if named else min((t.version for t in toolkits if t.ptx_isa == extension.ptx_isa), default=None)
    variant = CudaVersion.parse(cuda).variant if cuda else ""
    return [replace(b, variant=variant, cuda=cuda, code=extension.every) for b in builds] if cuda else []


READERS: Mapping[str, Reader] = {
    "torchvision": named_by_itself,
    "torchaudio": named_by_itself,
    "torchcodec": named_by_itself,
    "xformers": xformers,
    "torchao": torchao,
    "bitsandbytes": bitsandbytes,
    "tensorflow": tensorflow,
    "tensorflow-gpu": tensorflow,
    **dict.fromkeys(("xgboost", "catboost", "ctranslate2", "paddlepaddle-gpu"), self_contained),
}


# Packages whose libraries need the runtime of one CUDA major, and a torch of the same major beside them: vllm, CuPy.
# Their own name says the major (``-cu12``), else their libraries, else the names of what they depend on, or READERS.

# ``vllm-cu12``, ``jax-cuda12-plugin``, ``cupy-cuda12x`` name a major, ``cupy-cuda102`` a toolkit.
_NAMED = re.compile(r"-cu(?:da)?(\d\d)(\d)?x?(?=-|$)")


def bound_builds(
    index: Index,
    package: str,
    since: str,
    source: str,
    torches: Sequence[Build],
    wanted: Callable[[Release], bool] | None = None,
    toolkits: Sequence[Toolkit] = (),
) -> list[Build]:
    """Builds of one such package; pre-releases, and wheels that are not bound or do not name their torch, left out.

    ``variant`` and ``cuda`` of a record are exact in the major. The minor is one that the kernels show to be possible;
    where several are, it is that of the newest torch on the default index that the wheel accepts.

    Args:
        package: Normalised name.
        since: Oldest version.
        source: Key of the records' source.
        torches: Known builds of torch.
        wanted: Leaves releases out; None wants all.
        toolkits: Known toolkits.

    Raises:
        UsageError: A wheel cannot be read, or says what it was built for in a way that is not known.
        IndexUnavailableError: The index fails.
    """
    found = [r for r in releases(index.project(package), since) if not r.version.is_prerelease]
    measured = each(lambda r: _measured(index, r, source, torches, toolkits), filter(wanted, found))
    return [build for builds in measured for build in builds]


def torch_of(requires: Sequence[str]) -> str | None:
    """The only specifier on torch among Requires-Dist lines without extras; None unless there is exactly one."""
    found = {str(r.specifier) for r in _required(requires) if r.name == "torch" and r.specifier}
    return found.pop() if len(found) == 1 else None


def cuda_of(major: int, torch: str | None, torches: Sequence[Build]) -> str:
    """The CUDA version of the newest default-index torch of a major that a specifier takes, otherwise ``MAJOR.0``."""
    specifier = SpecifierSet(torch or "")
    fitting = [
        (Version(b.version), b.cuda)
        for b in torches
        if b.index == "default" and b.cuda and b.cuda.split(".")[0] == str(major) and specifier.contains(b.version)
    ]
    return max(fitting)[1] if torch and fitting else f"{major}.0"


def _measured(
    index: Index, release: Release, source: str, torches: Sequence[Build], toolkits: Sequence[Toolkit]
) -> list[Build]:
    blank = record_of(release, "", Evidence.MEASURED, source)
    builds = [replace(b, torch=torch_of(b.requires or ())) for b in with_metadata(index, release, blank)]
    file = release.representative
    with closing(index.open(file)) as stream:
        wheel = WheelFile(stream, file.filename)
        if release.package in READERS:
            return READERS[release.package](builds, wheel, toolkits)
        return _bound(builds, wheel, torches, toolkits)


def _bound(
    builds: Sequence[Build], wheel: WheelFile, torches: Sequence[Build], toolkits: Sequence[Toolkit]
) -> list[Build]:
    named = _named((builds[0].package,))
    extension = extension_of(builds[0].package, wheel)
    of_main = extension.cuda_major if extension else None
    if named and of_main not in (None, named[0]):
        named = None  # the library of transformer-engine-cu12 2.6.0 needs CUDA 13
    alone = named is not None or (extension is not None and not extension.needs_torch)
    if not alone and any(b.torch is None for b in builds):
        return []
    measured = None if named else of_main or cuda_major(wheel)
    evidence = Evidence.MEASURED if measured or extension else Evidence.PUBLISHED
    of_dependencies = (_named(_dependencies(builds)) or ())[:1]
    version = named or ((measured,) if measured else of_dependencies)
    if not version:
        return []

    def complete(build: Build) -> Build:
        cuda = ".".join(map(str, version)) if len(version) > 1 else cuda_of(version[0], build.torch, torches)
        cuda = compiled_with(cuda, extension, toolkits) if extension else cuda
        bound = replace(build, variant=CudaVersion.parse(cuda).variant, cuda=cuda, evidence=evidence)
        return with_extension(bound, extension)

    return list(map(complete, builds))


def _dependencies(builds: Sequence[Build]) -> Iterator[str]:
    return (requirement.name for build in builds for requirement in _required(build.requires or ()))


def _named(names: Iterable[str]) -> tuple[int, ...] | None:
    """The CUDA major, and the minor where there is one, in the names; None if none has any, or they disagree."""
    found = {tuple(int(n) for n in match.groups() if n) for match in map(_NAMED.search, names) if match}
    return found.pop() if len(found) == 1 else None


def _required(lines: Iterable[str]) -> Iterator[Requirement]:
    """The requirements of a bare installation, those of other platforms included."""
    for line in lines:
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            continue
        if requirement.marker is None or "extra" not in str(requirement.marker):
            yield requirement

"""Companions that say in their own files what they were built for, where their METADATA does not.

Each function reads one release's wheel and completes its records. A wheel that says it in a way which is not known is
refused, or its release left out; nothing is guessed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from envsolve.catalogue.extensions import compiled_with, extension_of, with_extension
from envsolve.catalogue.measure.artefact import WheelFile, read_text
from envsolve.catalogue.measure.extension import Extension, read_extension
from envsolve.catalogue.measure.pytorch import read_version
from envsolve.catalogue.model import Build, Toolkit
from envsolve.errors import UsageError

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

    Left out where METADATA names no torch, or ``version.py`` no flavour (a CPU build from before they did).
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
    """torchao: Python for any flavour; the kernels beside it are optional, and load with some torches alone.

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

    Until 0.44 there is a second one for old cards, which counts as part of the first. Until 0.49 it wants
    exactly torch's CUDA; later it falls back within the major: to the next older one, else to the oldest.

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


READERS: Mapping[str, Reader] = {
    "torchvision": named_by_itself,
    "torchaudio": named_by_itself,
    "torchcodec": named_by_itself,
    "xformers": xformers,
    "torchao": torchao,
    "bitsandbytes": bitsandbytes,
}

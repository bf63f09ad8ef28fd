"""One shared library: what it links, the GPU code in it, and its C++ ABI."""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import IO

from envsolve.binaries import elf
from envsolve.binaries.elf import read_at
from envsolve.binaries.files import Artefact, WheelFile
from envsolve.binaries.model import FatbinEntry, Kind, Library, arch_order, containers
from envsolve.binaries.names import CUDA_NAME, LIBRARY_FILE
from envsolve.errors import UsageError

_CUDA_OR_DLL = re.compile(
    rf"{CUDA_NAME}|(cu(da|blas|dnn|fft|rand|solver|sparse|pti|tensor)"
    r"|nv(cuda|rtc|jitlink|jpeg|tools|toolsext|comp|mdi|infer)|nccl)[\w.-]*\.dll$",
    re.IGNORECASE,
)
# Libraries whose soname or DLL name carries the CUDA major: cuDNN, cuFFT and cuSPARSE count their own versions. A copy
# that a wheel brings along has a hash in its name.
_NAMED = re.compile(
    r"lib(?:cudart|nvrtc|cublas|cublasLt|nvJitLink)(?:-[0-9a-f]+)?\.so\.(\d+)(?:\.\d+)*"
    r"|(?:cudart64|cublas64|cublasLt64)_(\d\d)\d?\.dll",
    re.IGNORECASE,
)
# What a library that loads the runtime itself names it by.
_DLL = re.compile(rb"cudart64_(\d\d)\d?\.dll")
_RUNTIME_CHUNK = 1 << 20
_OVERLAP = 32  # more than the name of the DLL
# Compressed bytes. One small library answers for the wheel: all of them were linked in one build.
_RUNTIME_LARGEST = 2 << 20
# An extension that links libtorch calls c10's torchCheckFail(const char*, const char*, uint32_t, const std::string&);
# its mangled name shows which std::string that is. One on torch's stable ABI exchanges no C++ types and
# does not call it.
_CHECK_FAIL = re.compile(rb"torchCheckFailEPKcS2_jRK(Ss|NSt7__cxx11)")
_NEW_STRING = b"NSt7__cxx1112basic_string"
# Members of the std::string from before C++11: in mangled names it is Ss.
_OLD_STRING = re.compile(rb"\0_ZNK?Ss[0-9A-Z]")
# Names of torch's stable ABI, which is a C interface; and of C++ in its namespaces, which changes with every release.
# Source: PyTorch documentation, "LibTorch Stable ABI".
_STABLE = re.compile(rb"\0(?:aoti_torch_|torch_call_dispatcher|torch_library_(?:init|impl|def)|torch_parallel_for)")
_UNSTABLE = re.compile(rb"(?:\0|^)_ZNK?(?:2at|3c10|5torch(?!6stable|10headeronly))")
_LARGEST_READ = 256 << 20  # bytes; extensions are smaller
PE_MAGIC = b"MZ"
_PE_SIGNATURE = b"PE\0\0"
_COFF = struct.Struct("<HHIIIHH")
_PE32_PLUS = 0x20B
_DIRECTORIES_AT = 112
_DIRECTORY = struct.Struct("<II")
_PE_SECTION = struct.Struct("<8sIIII16x")
_IMPORT, _DELAY_IMPORT = 1, 13
# Sizes of one descriptor, and where in it the address of the DLL's name stands.
_DESCRIPTORS = {_IMPORT: (20, 12), _DELAY_IMPORT: (32, 4)}
_PE_MACHINES = {0x8664: "x86_64", 0xAA64: "aarch64"}
_MOST_DLLS = 4096
_LONGEST_DLL_NAME = 256


@dataclass(frozen=True, slots=True)
class Extension:
    """Facts read from the main libraries of a package.

    Attributes:
        code: The arch list behind most of their code, SASS before PTX; empty if they have no kernels.
        every: All lists together.
        ptx_isa: Newest PTX version among all their kernels, ``8.7``; None if they carry no PTX.
        cuda_major: CUDA major of the runtime that they need; None if they need none, or do not say.
        needs_torch: Whether they need torch's own libraries; a Windows DLL does not say.
        cxx11_abi: Which C++11 ABI they share with torch; None if no symbol shows it.
        stable_abi: Whether they use torch only through its stable ABI; None if they do not use it, or do not say.
    """

    code: tuple[str, ...]
    every: tuple[str, ...]
    ptx_isa: str | None
    cuda_major: int | None
    needs_torch: bool
    cxx11_abi: bool | None
    stable_abi: bool | None = None


def read_extension(artefact: Artefact, main: re.Pattern[str]) -> Extension | None:
    """Read the libraries whose whole path matches, as one; None if none does.

    Raises:
        UsageError: A library is damaged.
    """
    paths = [path for path in artefact.files() if main.fullmatch(path)]
    lists: Counter[tuple[str, ...]] = Counter()
    isas: set[str] = set()
    needed: list[str] = []
    of_dlls: set[int | None] = set()
    abis: set[bytes] = set()
    stable: set[bool | None] = set()
    for path in paths:
        with artefact.open(path) as file:
            if file.read(len(elf.MAGIC)) == elf.MAGIC:
                needed += elf.read_elf(file, path).needed
                symbols = elf.dynamic_strings(file, path)
                abis.update(_CHECK_FAIL.findall(symbols))
                stable.add(stable_abi(file, path, symbols))
            else:
                of_dlls.add(major_in_dll(file, path))
            file.seek(0)
            for entries in containers(file):
                lists[_archs(entries)] += 1
                isas.update(entry.ptx_isa for entry in entries if entry.ptx_isa)
    if not paths:
        return None
    return Extension(
        code=common_code(lists),
        every=_in_order({arch for archs in lists for arch in archs}),
        ptx_isa=max(isas, key=lambda isa: [int(part) for part in isa.split(".")], default=None),
        cuda_major=major_needed(needed) or max(filter(None, of_dlls), default=None),
        needs_torch=any(name.startswith(("libtorch", "libc10")) for name in needed),
        cxx11_abi=abis == {b"NSt7__cxx11"} if len(abis) == 1 else None,
        stable_abi=False if False in stable else True if True in stable else None,
    )


def common_code(lists: Mapping[tuple[str, ...], int]) -> tuple[str, ...]:
    """The arch list of most of the code: the highest product of its length and the number of fat binaries with it.

    Fat binaries for one generation may outnumber the others (in onnxruntime-gpu 1.31 those for ``sm_90a`` do), and each
    holds one piece of code. Empty if the library has none.

    Args:
        lists: How many fat binaries have each list.
    """
    carried = {archs: count for archs, count in lists.items() if archs}
    return max(carried, key=lambda archs: (carried[archs] * len(archs), len(archs), archs), default=())


def read_library(file: IO[bytes], name: str) -> Library:
    """One library: ELF or PE headers, and the headers of its fat binaries.

    Args:
        file: Seekable.
        name: Path inside the artefact.

    Raises:
        UsageError: A library that is damaged.
    """
    machine, needed, abi, stable = _linkage(file, name)
    file.seek(0)
    lists: Counter[tuple[str, ...]] = Counter()
    isas: dict[str, str] = {}
    for entries in containers(file):
        lists[_archs(entries)] += 1
        for entry in entries:
            if entry.ptx_isa:
                isas[entry.arch] = max(isas.get(entry.arch, "0"), entry.ptx_isa, key=_numbers)
    every = {arch for archs in lists for arch in archs}
    return Library(
        file=name,
        machine=machine,
        sass=_in_order({arch for arch in every if arch.startswith("sm_")}),
        ptx=tuple(sorted(isas, key=arch_order)),
        ptx_isa=max(isas.values(), key=_numbers, default=None),
        ptx_isas={arch: isas[arch] for arch in sorted(isas, key=arch_order)},
        code=common_code(lists),
        needed=needed,
        cuda_major=major_needed(needed),
        cxx11_abi=abi,
        stable_abi=stable,
    )


def _linkage(file: IO[bytes], name: str) -> tuple[str | None, tuple[str, ...], bool | None, bool | None]:
    """The machine, NVIDIA libraries needed, C++11 ABI, and whether only torch's stable ABI is used.

    Nothing is known about a file that is neither ELF nor PE.
    """
    file.seek(0)
    start = file.read(len(elf.SUPPORTED))
    if start == elf.SUPPORTED:
        header = elf.read_elf(file, name)
        symbols = elf.dynamic_strings(file, name)
        needed = tuple(filter(_CUDA_OR_DLL.match, header.needed))
        return header.machine, needed, cxx11_abi(symbols), stable_abi(file, name, symbols)
    if start.startswith(PE_MAGIC) and name.lower().endswith((".dll", ".pyd", ".exe")):
        image = read_pe(file, name)
        return image.machine, tuple(filter(_CUDA_OR_DLL.match, image.needed)), None, None
    return None, (), None, None


def cxx11_abi(symbols: bytes) -> bool | None:
    """Which std::string the symbols of a library pass around; None if no symbol shows it, or they disagree.

    Args:
        symbols: Its dynamic strings, NUL-separated. If it shares any with torch, only those count.
    """
    shared = set(_CHECK_FAIL.findall(symbols))
    if shared:
        return shared == {b"NSt7__cxx11"} if len(shared) == 1 else None
    new, old = _NEW_STRING in symbols, _OLD_STRING.search(symbols) is not None
    return new if new != old else None


def stable_abi(file: IO[bytes], name: str, symbols: bytes) -> bool | None:
    """Whether a library uses torch only through its stable ABI, so that one build is compatible with later torches too.

    Args:
        file: The library.
        name: For messages.
        symbols: Its dynamic strings, NUL-separated.

    Returns:
        None if it names nothing of torch, or is too large to be read.
    """
    unstable = _UNSTABLE.search(symbols) is not None
    if not _STABLE.search(symbols):
        return False if unstable else None
    if not unstable:
        return True
    # Headers of torch leave C++ names in a library that the library itself defines (torchaudio 2.11, xformers 0.0.35):
    # only what must be found in torch's own libraries counts.
    file.seek(0)
    data = file.read(_LARGEST_READ + 1)
    if len(data) > _LARGEST_READ:
        return None
    return not any(_UNSTABLE.match(taken.name) for taken in elf.Symbols(data, name).taken())


def _archs(entries: tuple[FatbinEntry, ...]) -> tuple[str, ...]:
    return _in_order({entry.arch for entry in entries if entry.kind is not Kind.OTHER})


def _in_order(archs: set[str]) -> tuple[str, ...]:
    return tuple(sorted(archs, key=lambda arch: (arch.startswith("compute"), arch_order(arch))))


def _numbers(isa: str) -> list[int]:
    return [int(part) for part in isa.split(".")]


def cuda_major(wheel: WheelFile) -> int | None:
    """The CUDA major of a wheel, from the smallest of its libraries that names one.

    Returns:
        None if no library of up to 2 MiB (compressed) needs one of CUDA's libraries that has the major in its name.

    Raises:
        UsageError: A library is damaged.
    """
    sizes = {path: wheel.compressed_size(path) for path in wheel.files() if LIBRARY_FILE.search(path)}
    for path in sorted(sizes, key=lambda name: (sizes[name], name)):
        if sizes[path] > _RUNTIME_LARGEST:
            break
        with wheel.open(path) as file:
            major = _major_in(file, path)
        if major is not None:
            return major
    return None


def major_needed(libraries: Iterable[str]) -> int | None:
    """The CUDA major in the names of needed libraries: 13 for ``libcudart.so.13``; None if no name has one."""
    return next((int(match[1] or match[2]) for match in map(_NAMED.fullmatch, libraries) if match), None)


def _major_in(file: IO[bytes], name: str) -> int | None:
    if file.read(len(elf.MAGIC)) == elf.MAGIC:
        return major_needed(elf.read_elf(file, name).needed)
    return major_in_dll(file, name)


def major_in_dll(file: IO[bytes], name: str) -> int | None:
    """The CUDA major of a Windows library: from the DLLs that it imports, or the only runtime named in it.

    A library with the runtime linked in imports only cuBLAS, or nothing.

    Args:
        file: Seekable.
        name: For messages.

    Returns:
        None if it names no runtime, or several: one of them is then but in a message.

    Raises:
        UsageError: It is damaged.
    """
    file.seek(0)
    image = name.lower().endswith((".dll", ".pyd")) and file.read(len(PE_MAGIC)) == PE_MAGIC
    if image and (imported := major_needed(read_pe(file, name).needed)):
        return imported
    file.seek(0)
    tail = b""
    found: set[int] = set()
    while chunk := file.read(_RUNTIME_CHUNK):
        window = tail + chunk
        found.update(map(int, _DLL.findall(window)))
        tail = window[-_OVERLAP:]
    return found.pop() if len(found) == 1 else None


@dataclass(frozen=True, slots=True)
class Pe:
    """The machine (``x86_64``, ``aarch64``, ``pe-machine-N``), and the DLLs that it imports, delayed ones included."""

    machine: str
    needed: tuple[str, ...]


def read_pe(file: IO[bytes], name: str) -> Pe:
    """Read the headers and the import tables of a PE image; those of 32-bit images are not read.

    Layout: Microsoft's PE format, PE32+ (64-bit) images, the only ones that CUDA supports on Windows.

    Args:
        file: Seekable.
        name: For messages.

    Raises:
        UsageError: Not a PE image, or cut off.
    """
    start = struct.unpack("<I", read_at(file, 60, 4, name))[0]
    head = read_at(file, start, len(_PE_SIGNATURE) + _COFF.size, name)
    if not head.startswith(_PE_SIGNATURE):
        raise UsageError(f"{name} is not a Windows library: it has no PE signature")
    machine, sections, _, _, _, optional_size, _ = _COFF.unpack_from(head, len(_PE_SIGNATURE))
    at = start + len(head)
    optional = read_at(file, at, optional_size, name)
    if len(optional) < _DIRECTORIES_AT or struct.unpack_from("<H", optional)[0] != _PE32_PLUS:
        return Pe(_PE_MACHINES.get(machine, f"pe-machine-{machine}"), ())
    table = list(_PE_SECTION.iter_unpack(read_at(file, at + optional_size, sections * _PE_SECTION.size, name)))
    found: dict[str, None] = {}
    for number, (size, name_at) in _DESCRIPTORS.items():
        place = _DIRECTORIES_AT + number * _DIRECTORY.size
        if place + _DIRECTORY.size <= len(optional):
            address = _DIRECTORY.unpack_from(optional, place)[0]
            found.update(dict.fromkeys(_names(file, table, address, size, name_at, name)))
    return Pe(_PE_MACHINES.get(machine, f"pe-machine-{machine}"), tuple(found))


def _names(
    file: IO[bytes], sections: list[tuple[bytes, int, int, int, int]], address: int, size: int, name_at: int, name: str
) -> Iterator[str]:
    """The DLLs of one import table, which ends with an empty descriptor."""
    start = _pe_file_offset(sections, address) if address else None
    if start is None:
        return
    for number in range(_MOST_DLLS):
        descriptor = read_at(file, start + number * size, size, name)
        pointer = _pe_file_offset(sections, struct.unpack_from("<I", descriptor, name_at)[0])
        if pointer is None:
            return
        file.seek(pointer)
        text, end, _ = file.read(_LONGEST_DLL_NAME).partition(b"\0")
        if not end:
            raise UsageError(f"{name} is damaged: a DLL's name does not end")
        yield text.decode("ascii", "replace")


def _pe_file_offset(sections: list[tuple[bytes, int, int, int, int]], address: int) -> int | None:
    for _, virtual_size, start, raw_size, offset in sections:
        if start and start <= address < start + max(virtual_size, raw_size):
            return offset + address - start
    return None

"""The result of measuring an artefact: frozen values that print as JSON; and the reader of the GPU code in a file."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice
from typing import IO, Literal

from envsolve.binaries.names import is_runtime_package

SCHEMA: Literal["envsolve.measurement/1"] = "envsolve.measurement/1"


@dataclass(frozen=True, slots=True)
class Library:
    """One shared library.

    Attributes:
        file: Path inside the artefact.
        machine: ``x86_64`` or ``aarch64``; None if the file is neither ELF nor a Windows library.
        sass: SASS for which it carries cubins, ``("sm_80", "sm_90a")``.
        ptx: PTX that it carries, ``("compute_90",)``.
        ptx_isa: Highest PTX version among ``ptx``, ``8.7``.
        needed: NVIDIA libraries that the loader must find, ``libcudart.so.12``.
        ptx_isas: PTX version by name, for each of ``ptx``.
        code: The list that most of its fat binaries have. A few kernels may be for more GPUs, or for only one.
        cuda_major: CUDA major of the runtime that it needs; None if it needs none, or links it statically.
        cxx11_abi: Whether it uses libstdc++'s C++11 ABI; None if no symbol shows it.
        stable_abi: Whether it uses torch only through its stable ABI; None if it does not use torch, or does not say.
    """

    file: str
    machine: str | None
    sass: tuple[str, ...] = ()
    ptx: tuple[str, ...] = ()
    ptx_isa: str | None = None
    needed: tuple[str, ...] = ()
    ptx_isas: Mapping[str, str] = field(default_factory=dict)
    code: tuple[str, ...] = ()
    cuda_major: int | None = None
    cxx11_abi: bool | None = None
    stable_abi: bool | None = None


@dataclass(frozen=True, slots=True)
class Assembler:
    """One ``ptxas`` program.

    Attributes:
        file: Path inside the artefact.
        cuda: CUDA release, ``12.8``.
        version: Full version, ``12.8.93``.
        ptx_isa: Highest PTX version it reads, ``8.7``; None if it could not be run.
        archs: GPU names it accepts, ``sm_90a``.
        ran: True if the program was run, False if its strings were read.
    """

    file: str
    cuda: str
    version: str
    ptx_isa: str | None
    archs: tuple[str, ...]
    ran: bool


@dataclass(frozen=True, slots=True)
class Measurement:
    """Contents of one artefact. Empty means that it has none, None that the artefact does not say.

    Attributes:
        kind: What was read.
        name: File or directory name.
        package: Normalised project name; ``version`` is its full version, with the local part.
        tags: Compatibility tags, ``cp312-cp312-manylinux_2_28_x86_64``.
        cuda: CUDA version that the build says it was made with; None for a CPU build.
        arch_flags: The list that ``torch.cuda.get_arch_list()`` reports, read from the library's own literal.
        cxx11_abi: Whether libstdc++'s C++11 ABI is used, if a symbol shows it.
        requires: Requires-Dist lines.
        libraries: Libraries that carry CUDA code or need an NVIDIA library.
        assemblers: Bundled ``ptxas`` programs.
        tools: Paths of the CUDA tools that it bundles: ``ptxas``, ``nvcc``, ``cuobjdump``, ``nvdisasm`` and their like.
        parts: For an environment, the distributions that carry anything of the above.
    """

    kind: Literal["wheel", "distribution", "library", "program", "environment"]
    name: str
    schema: Literal["envsolve.measurement/1"] = SCHEMA
    package: str | None = None
    version: str | None = None
    tags: tuple[str, ...] = ()
    requires_python: str | None = None
    requires: tuple[str, ...] = ()
    cuda: str | None = None
    arch_flags: tuple[str, ...] | None = None
    cxx11_abi: bool | None = None
    libraries: tuple[Library, ...] = ()
    assemblers: tuple[Assembler, ...] = ()
    parts: tuple[Measurement, ...] = ()
    tools: tuple[str, ...] = ()

    @property
    def carries_cuda(self) -> bool:
        """Whether anything in it uses CUDA, or it is torch itself."""
        return (
            self.arch_flags is not None
            or any((self.assemblers, self.parts, self.tools))
            or any(library.sass or library.ptx or library.needed for library in self.libraries)
        )


def arch_order(name: str) -> tuple[int, str]:
    """Sort key of ``sm_90a`` and its like: by number, then by suffix."""
    digits = "".join(c for c in name if c.isdigit())
    return (int(digits or 0), name)


# A measurement in words, for a person. Pure.


def describe(found: Measurement) -> str:
    """Print the kind of an artefact, then its contents."""
    return "\n".join(_lines(found)) + "\n"


def _lines(found: Measurement) -> Iterator[str]:
    name = f"{found.package} {found.version}" if found.package else found.name
    yield f"{name}  ({found.kind}{f' {found.name}' if found.package else ''})"
    if found.arch_flags is not None:
        yield f"  CUDA       {found.cuda or 'none: a CPU build'}"
    if found.arch_flags:
        yield f"  code       {' '.join(found.arch_flags)}  (as torch.cuda.get_arch_list() has it)"
    if found.cxx11_abi is not None:
        yield f"  C++11 ABI  {_yes(found.cxx11_abi)}"
    for assembler in found.assemblers:
        yield from _assembler(assembler)
    asked = {assembler.file for assembler in found.assemblers}
    for tool in (path for path in found.tools if path not in asked):
        yield f"  tool       {tool}"
    for library in found.libraries:
        yield from _library(library)
    if found.requires:
        wanted = [line for line in found.requires if is_runtime_package(line) or line.startswith(("torch", "jax"))]
        for line in wanted:
            yield f"  requires   {line}"
        if others := len(found.requires) - len(wanted):
            yield f"  requires   {others} more, see --format json"
    for part in found.parts:
        yield ""
        yield from _lines(part)


def _assembler(found: Assembler) -> Iterator[str]:
    isa = f"PTX up to {found.ptx_isa}" if found.ptx_isa else "its newest PTX is not known: it does not run here"
    yield f"  assembler  {found.file}: CUDA {found.version}, {isa}"
    yield f"             {' '.join(found.archs)}"


def _library(found: Library) -> Iterator[str]:
    yield f"  library    {found.file}" + (f"  ({found.machine})" if found.machine else "")
    if found.code:
        yield f"    code       {' '.join(found.code)}"
    if rare := [arch for arch in (*found.sass, *found.ptx) if arch not in found.code]:
        yield f"    and        {' '.join(rare)}, only in some kernels"
    if found.ptx_isas:
        yield f"    PTX        {', '.join(f'{arch} in version {isa}' for arch, isa in found.ptx_isas.items())}"
    if found.cuda_major is not None:
        yield f"    CUDA       {found.cuda_major}"
    if found.cxx11_abi is not None:
        yield f"    C++11 ABI  {_yes(found.cxx11_abi)}"
    if found.stable_abi is not None:
        yield f"    stable ABI {_yes(found.stable_abi)}"
    if found.needed:
        yield f"    needs      {' '.join(found.needed)}"
    elif found.code:
        yield "    needs      no NVIDIA library: its runtime is linked in"


def _yes(value: bool) -> str:
    return "yes" if value else "no"


# The reader of fat binaries: which GPU code and PTX a file carries, from headers alone.
#
# A fat binary is a container with magic 0xBA55ED50 (u32 magic, u16 version 1, u16 header size, u64 size of the rest)
# and then entries. The header of an entry, little-endian: u16 kind (1 PTX, 2 cubin), u16, u32 header size, u64 payload
# size, u32 compressed size, u32, u16 minor, u16 major (the PTX ISA, for PTX), u32 arch, u32, u32, u64 flags. The
# payload may be compressed (flags 0x2000 LZ4, 0x8000 zstd); the header never is, so no payload is decompressed. Flag
# bit 20 marks arch-specific code (sm_90a), bit 21 family-specific code (sm_100f), on PTX and cubins alike. Layout and
# bits were read from the output of fatbinary 13.0 and 13.5 for known inputs; the ELF flags of a cubin do not
# distinguish sm_100a from sm_100.

MAGIC = struct.pack("<I", 0xBA55ED50)
# The only version there is; looking for both passes over most of the magic numbers that occur by chance.
_START = MAGIC + struct.pack("<H", 1)
_CONTAINER = struct.Struct("<4sHHQ")
_ENTRY = struct.Struct("<HHIQIIHHIIIQ")
_ARCH_SPECIFIC = 1 << 20
_FAMILY_SPECIFIC = 1 << 21
_LARGEST = 1 << 40
_CHUNK = 1 << 20
# A translation unit has one for each GPU that it is compiled for, or two.
_MOST_ENTRIES = 1 << 12


class Kind(str, Enum):
    """The content of an entry."""

    PTX = "ptx"
    SASS = "sass"
    OTHER = "other"


_KINDS = {1: Kind.PTX, 2: Kind.SASS}


@dataclass(frozen=True, slots=True)
class FatbinEntry:
    """One piece of device code.

    Attributes:
        arch: ``sm_90a`` or, for PTX, ``compute_90``.
        ptx_isa: PTX version, ``8.7``; None for anything but PTX.
    """

    kind: Kind
    arch: str
    ptx_isa: str | None


def fat_binaries(data: bytes | bytearray | memoryview) -> tuple[FatbinEntry, ...]:
    """Every entry of every fat binary in ``data``, in file order."""
    return tuple(scan(io.BytesIO(data)))


def scan(stream: IO[bytes]) -> Iterator[FatbinEntry]:
    """Every entry of every fat binary from the stream's position on, in file order, in bounded memory."""
    for entries in containers(stream):
        yield from entries


def containers(stream: IO[bytes]) -> Iterator[tuple[FatbinEntry, ...]]:
    """The entries of each fat binary from the stream's position on, in file order; one translation unit makes one.

    Data that is inconsistent (a wrong size, a truncated file) ends its container and is not an error: magic numbers
    occur in data by chance.

    Args:
        stream: Seekable; payloads are skipped, not read.
    """
    window = _Window(stream)
    while window.find(_START):
        header = window.peek(_CONTAINER.size)
        if len(header) < _CONTAINER.size:
            return
        _, _, header_size, size = _CONTAINER.unpack(header)
        if header_size >= _CONTAINER.size and size < _LARGEST:
            window.skip(header_size)
            yield tuple(islice(_entries(window, size), _MOST_ENTRIES))
        else:
            window.skip(len(MAGIC))


def _entries(window: _Window, remaining: int) -> Iterator[FatbinEntry]:
    while remaining >= _ENTRY.size:
        header = window.peek(_ENTRY.size)
        if len(header) < _ENTRY.size:
            return
        kind, _, header_size, payload, _, _, minor, major, arch, _, _, flags = _ENTRY.unpack(header)
        length = header_size + payload
        if header_size < _ENTRY.size or length > remaining or not 10 <= arch <= 999:
            return
        yield _entry(kind, arch, flags, f"{major}.{minor}")
        window.skip(length)
        remaining -= length


def _entry(kind: int, arch: int, flags: int, isa: str) -> FatbinEntry:
    what = _KINDS.get(kind, Kind.OTHER)
    suffix = "a" if flags & _ARCH_SPECIFIC else "f" if flags & _FAMILY_SPECIFIC else ""
    prefix = "compute" if what is Kind.PTX else "sm"
    return FatbinEntry(what, f"{prefix}_{arch}{suffix}", isa if what is Kind.PTX else None)


class _Window:
    """A forward-only view of a stream that holds one chunk of it."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._buffer = b""
        self._at = 0

    def peek(self, count: int) -> bytes:
        """The next ``count`` bytes, or fewer at the end, without moving."""
        while len(self._buffer) - self._at < count and (more := self._stream.read(_CHUNK)):
            self._buffer = self._buffer[self._at :] + more
            self._at = 0
        return self._buffer[self._at : self._at + count]

    def skip(self, count: int) -> None:
        """Move ahead, past the end if it must be."""
        held = len(self._buffer) - self._at
        if count <= held:
            self._at += count
        else:
            self._stream.seek(count - held, io.SEEK_CUR)
            self._buffer, self._at = b"", 0

    def find(self, needle: bytes) -> bool:
        """Move to the next ``needle``; return False at the end."""
        while True:
            self.peek(len(needle))
            found = self._buffer.find(needle, self._at)
            if found >= 0:
                self._at = found
                return True
            if len(self._buffer) - self._at < len(needle):
                return False
            self._at = len(self._buffer) - len(needle) + 1

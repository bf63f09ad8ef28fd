"""Files that are made to crash, to hang or to fill a disk: refused with a reason, soon, in bounded memory."""

from __future__ import annotations

import io
import os
import struct
import time
import tracemalloc
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from envsolve.binaries.measure import measure, measure_environment, measure_path, read_python_library, read_version
from envsolve.binaries.model import MAGIC, fat_binaries
from envsolve.errors import UsageError
from tests.binaries.artefacts import CUBIN, container, elf, entry, torch_wheel, wheel

MIB = 1 << 20


@contextmanager
def bounded(seconds: float, mib: float) -> Iterator[None]:
    """Fail where the block takes longer, or more memory of Python's."""
    tracemalloc.start()
    start = time.process_time()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1] / MIB
    finally:
        tracemalloc.stop()
    assert time.process_time() - start < seconds
    assert peak < mib


def zipped(members: dict[str, bytes]) -> bytes:
    return wheel("bomb", "1.0", dict(members))


def test_a_member_that_grows_a_thousandfold_is_not_unpacked() -> None:
    data = zipped({"bomb/_C.so": bytes(128 * MIB)})
    assert len(data) < MIB
    with bounded(2, 64), pytest.raises(UsageError, match="claims to hold"):
        measure(io.BytesIO(data), "bomb.whl")


@pytest.mark.parametrize("size", [0xFFFFFFFE, 0x7FFFFFFF, 5])
def test_a_size_that_is_a_lie_is_damage(size: int) -> None:
    data = bytearray(zipped({"bomb/_C.so": elf(tail=bytes(4096))}))
    # The size in the central directory stands 22 bytes before the name, in the local header likewise.
    for sign, offset in ((b"PK\x01\x02", 24), (b"PK\x03\x04", 22)):
        at = data.find(sign)
        struct.pack_into("<I", data, at + offset, size)
    with bounded(5, 64), pytest.raises(UsageError):
        measure(io.BytesIO(bytes(data)), "bomb.whl")


def test_zip_in_an_unknown_compression_is_refused() -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("bomb-1.0.dist-info/METADATA", "Name: bomb\nVersion: 1.0\n")
    with pytest.raises(UsageError, match="compressed by a method"):
        measure(out, "bomb.whl")


def test_many_tiny_entries_in_one_container_are_bounded() -> None:
    tiny = entry(CUBIN, 90, payload=b"")
    data = elf(tail=container(tiny * (4 * MIB // len(tiny))))
    with bounded(20, 96):
        assert measure(io.BytesIO(data), "lib.so").libraries[0].sass == ("sm_90",)


def test_magic_numbers_without_end() -> None:
    with bounded(20, 96):
        assert fat_binaries(MAGIC * MIB) == ()
        assert fat_binaries(container() * (MIB // 16)) == ()


@pytest.mark.parametrize("size", [0, 1, 16, 2**39, 2**40 - 1, 2**63, 2**64 - 1])
def test_a_container_of_any_size_ends(size: int) -> None:
    data = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, size) + entry(CUBIN, 90)
    with bounded(2, 32):
        assert {found.arch for found in fat_binaries(data)} <= {"sm_90"}


@pytest.mark.parametrize("payload", [2**31, 2**32 - 1, 2**38, 2**63, 2**64 - 1])
def test_a_payload_of_any_size_ends(payload: int) -> None:
    broken = bytearray(entry(CUBIN, 90))
    struct.pack_into("<Q", broken, 8, payload)
    data = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 2**39) + bytes(broken) * 3
    with bounded(2, 32):
        assert {found.arch for found in fat_binaries(data)} <= {"sm_90"}


def test_an_elf_with_as_many_needed_entries_as_fit() -> None:
    with bounded(20, 128), suppress(UsageError):
        measure(io.BytesIO(elf(["libcudart.so.12"] * 20_000)), "lib.so")


def test_arch_names_without_end_are_read_in_time() -> None:
    with bounded(20, 64):
        read_python_library(io.BytesIO(b"sm_80 " * (MIB // 8)))


@pytest.mark.parametrize(
    "source", ["(" * 60_000, "-" * 60_000 + "1", "x = " * 20_000 + "1", "\0", "cuda = '" + "1" * 60_000]
)
def test_a_version_file_that_no_python_reads(source: str) -> None:
    with bounded(20, 256):
        # How deeply an expression may be nested differs between the versions of Python.
        try:
            assert read_version(source) == (None, None)
        except UsageError as error:
            assert str(error).startswith("torch/version.py cannot be read")


def test_a_large_version_file_is_not_read_whole() -> None:
    data = torch_wheel(extra={"torch/version.py": "__version__ = '2.11.0'\ncuda = '13.0'\n" + "#" * (4 * MIB)})
    with bounded(10, 64):
        assert measure(io.BytesIO(data), "torch.whl").cuda in ("13.0", None)


@pytest.mark.parametrize(
    ("record", "refused"),
    [
        (b"\xff\xfe,,\n", None),
        (b'"' + b"x" * 300_000 + b'",,\n', None),
        (b"\0,,\n", None),
        (b"../../../../etc/passwd,,\n", "has no .dist-info/METADATA"),
    ],
)
def test_an_installed_record_that_is_damaged(tmp_path: Path, record: bytes, refused: str | None) -> None:
    info = tmp_path / "ext-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: ext\nVersion: 1.0\n")
    (info / "RECORD").write_bytes(record)
    if refused is None:
        assert measure_environment(tmp_path).parts == ()
    else:
        with pytest.raises(UsageError, match=refused):
            measure_environment(tmp_path)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "lib.so")
    with pytest.raises(UsageError, match="a pipe or a device"):
        measure_path(tmp_path / "lib.so")
    with pytest.raises(UsageError, match="a pipe or a device"):
        measure_path(Path(os.devnull))

from __future__ import annotations

import contextlib
import io
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envsolve.binaries.elf import read_elf
from envsolve.errors import UsageError
from tests.binaries.artefacts import elf


@pytest.mark.parametrize(
    ("number", "machine"), [(62, "x86_64"), (183, "aarch64"), (190, "cuda"), (243, "elf-machine-243")]
)
def test_machine_and_needed(number: int, machine: str) -> None:
    found = read_elf(io.BytesIO(elf(["libcudart.so.12", "libc.so.6"], machine=number)), "lib.so")
    assert (found.machine, found.needed) == (machine, ("libcudart.so.12", "libc.so.6"))


@pytest.mark.parametrize(
    "data", [b"", b"MZ\x90\0", b"\x7fELF", elf()[:63], elf()[:100], b"\x7fELF\x01\x01" + elf()[6:]]
)
def test_what_is_no_elf_is_refused_with_its_name(data: bytes) -> None:
    with pytest.raises(UsageError, match=r"lib\.so"):
        read_elf(io.BytesIO(data), "lib.so")


@given(st.binary(max_size=64), st.integers(0, 300))
def test_damaged_files_are_usage_errors_at_worst(noise: bytes, at: int) -> None:
    data = bytearray(elf(["libcudart.so.12"]))
    data[at : at + len(noise)] = noise
    with contextlib.suppress(UsageError):
        read_elf(io.BytesIO(bytes(data)), "lib.so")


def test_huge_counts_and_offsets_are_refused() -> None:
    data = bytearray(elf(["libcudart.so.12"]))
    struct.pack_into("<Q", data, 32, 2**63 + 5)
    with pytest.raises(UsageError):
        read_elf(io.BytesIO(bytes(data)), "lib.so")

from __future__ import annotations

import contextlib
import io
import struct
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from envsolve.binaries.elf import Symbols, Taken, read_elf
from envsolve.errors import UsageError
from tests.binaries.artefacts import elf
from tests.binaries.elves import library, write


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


@pytest.mark.parametrize("hashes", ["gnu", "sysv", "sections"])
def test_what_a_library_takes_and_gives(tmp_path: Path, hashes: str) -> None:
    gives = [] if hashes == "sections" else ["one", "two", ("three", "V_1"), "four", "five"]
    path = write(tmp_path, "x.so", takes=["a", ("b", "V_2", "y.so")], weak=["maybe"], gives=gives, hashes=hashes)
    with closing(Symbols(path)) as symbols:
        assert list(symbols.taken()) == [Taken(b"a"), Taken(b"b", b"V_2", b"y.so")]
        given = {name for name in (b"one", b"two", b"three", b"four", b"five") if symbols.gives(Taken(name))}
        assert len(given) == len(gives)
        for name in (b"six", b"a", b"maybe", b"on", b"ones", b""):
            assert not symbols.gives(Taken(name))


@pytest.mark.parametrize(
    ("gives", "wanted", "found"),
    [
        (("f", "V_1"), Taken(b"f", b"V_1"), True),
        (("f", "V_1"), Taken(b"f", b"V_2"), False),
        (("f", "V_1"), Taken(b"f"), True),
        ("f", Taken(b"f", b"V_1"), True),
    ],
)
def test_versions_are_heeded(tmp_path: Path, gives: Any, wanted: Taken, found: bool) -> None:
    with closing(Symbols(write(tmp_path, "x.so", gives=[gives]))) as symbols:
        assert symbols.gives(wanted) == found


WHOLE = library(takes=["a", ("b", "V_1", "y.so")], gives=["one", ("two", "V_2")], needed=["y.so"])


@given(st.integers(0, len(WHOLE) - 1), st.integers(0, 255), st.integers(0, len(WHOLE)))
@example(135, 128, 176)
def test_a_damaged_library_is_an_answer(tmp_path_factory: Any, place: int, byte: int, length: int) -> None:
    path = tmp_path_factory.mktemp("damaged") / "x.so"
    path.write_bytes((WHOLE[:place] + bytes([byte]) + WHOLE[place + 1 :])[:length])
    try:
        with closing(Symbols(path)) as symbols:
            list(symbols.taken())
            symbols.gives(Taken(b"one", b"V_1"))
    except UsageError:
        pass

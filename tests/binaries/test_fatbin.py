from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envsolve.binaries.model import MAGIC, FatbinEntry, Kind, fat_binaries, scan
from tests.binaries.artefacts import ARCH_SPECIFIC, CUBIN, FAMILY_SPECIFIC, PTX, container, entry

# The first 48 bytes of entries that NVIDIA's fatbinary 13.0.88 wrote for inputs of these names.
REAL_HEADERS = [
    ("sm_75", None, "020001014000000020030000000000001a03000000000000080001004b00000000000000000000001180000000000000"),
    (
        "compute_75",
        "9.0",
        "0100010150000000a0000000000000009a00000040000000000009004b00000000000000000000001180000000000000",
    ),
    (
        "sm_90a",
        None,
        "020001014000000098030000000000009503000000000000080001005a00000000000000000000001180100000000000",
    ),
    (
        "compute_90a",
        "9.0",
        "0100010150000000a0000000000000009900000040000000000009005a00000000000000000000001180100000000000",
    ),
    (
        "sm_100f",
        None,
        "0200010170000000d804000000000000d504000040000000080001006400000000000000000000001180200100000000",
    ),
    (
        "compute_100f",
        "9.0",
        "0100010150000000a0000000000000009b00000040000000000009006400000000000000000000001180200000000000",
    ),
    (
        "sm_121a",
        None,
        "020001017000000088130000000000000000000040000000080001007900000000000000000000001100100100000000",
    ),
]


def real(header: str) -> bytes:
    """A container around one real entry header, its payload blanked."""
    raw = bytes.fromhex(header)
    length = int.from_bytes(raw[4:8], "little") + int.from_bytes(raw[8:16], "little")
    return container(raw.ljust(length, b"\0"))


@pytest.mark.parametrize(("arch", "isa", "header"), REAL_HEADERS)
def test_reads_what_fatbinary_writes(arch: str, isa: str | None, header: str) -> None:
    (found,) = fat_binaries(real(header))
    assert (found.arch, found.ptx_isa) == (arch, isa)


@pytest.mark.parametrize(
    ("kind", "arch", "flags", "expected"),
    [
        (CUBIN, 80, 0x11, FatbinEntry(Kind.SASS, "sm_80", None)),
        (CUBIN, 90, 0x11 | ARCH_SPECIFIC, FatbinEntry(Kind.SASS, "sm_90a", None)),
        (CUBIN, 100, 0x8011 | FAMILY_SPECIFIC, FatbinEntry(Kind.SASS, "sm_100f", None)),
        (PTX, 90, 0x8011, FatbinEntry(Kind.PTX, "compute_90", "8.7")),
        (PTX, 121, 0x2011 | ARCH_SPECIFIC, FatbinEntry(Kind.PTX, "compute_121a", "8.7")),
        (8, 90, 0x11, FatbinEntry(Kind.OTHER, "sm_90", None)),
    ],
)
def test_kinds_and_flags(kind: int, arch: int, flags: int, expected: FatbinEntry) -> None:
    assert fat_binaries(container(entry(kind, arch, flags=flags))) == (expected,)


def test_finds_every_container_among_other_bytes() -> None:
    data = b"\0" * 5 + container(entry(CUBIN, 80), entry(PTX, 80)) + b"junk" + MAGIC + container(entry(CUBIN, 86))
    assert [e.arch for e in fat_binaries(data)] == ["sm_80", "compute_80", "sm_86"]


@pytest.mark.parametrize("before", [(1 << 20) - n for n in (0, 1, 2, 3, 10, 40, 64, 70)])
def test_a_container_may_straddle_the_chunks_it_is_read_in(before: int) -> None:
    data = b"\0" * before + container(entry(CUBIN, 80), entry(CUBIN, 90)) + container(entry(CUBIN, 120))
    assert [e.arch for e in fat_binaries(data)] == ["sm_80", "sm_90", "sm_120"]


def test_payloads_are_skipped_not_read() -> None:
    class Counting(io.BytesIO):
        count = 0

        def read(self, size: int | None = -1) -> bytes:
            data = super().read(size)
            self.count += len(data)
            return data

    stream = Counting(container(entry(CUBIN, 80, payload=bytes(20 << 20)), entry(CUBIN, 90)))
    assert [e.arch for e in scan(stream)] == ["sm_80", "sm_90"]
    assert stream.count < 3 << 20


@pytest.mark.parametrize(
    ("offset", "value"),
    [
        (16 + 4, b"\0\0\0\0"),  # an entry header of no size
        (16 + 8, b"\xff" * 8),  # a payload larger than its container
        (16 + 28, b"\xff" * 4),  # an arch that no CUDA has
        (8, b"\xff" * 8),  # a container larger than any file
        (4, b"\x07\0"),  # an unknown version
    ],
)
def test_what_does_not_hold_together_is_no_code_and_no_error(offset: int, value: bytes) -> None:
    broken = bytearray(container(entry(CUBIN, 80)))
    broken[offset : offset + len(value)] = value
    assert [e.arch for e in fat_binaries(bytes(broken) + container(entry(CUBIN, 90)))] == ["sm_90"]


pieces = st.one_of(
    st.binary(max_size=60),
    st.just(MAGIC),
    st.builds(entry, st.integers(0, 9), st.integers(0, 2000), flags=st.integers(0, 2**64 - 1)),
    st.builds(container, st.builds(entry, st.sampled_from([PTX, CUBIN]), st.integers(10, 999))),
)


@given(st.lists(pieces, max_size=8).map(b"".join))
def test_any_bytes_are_read_to_the_end(data: bytes) -> None:
    assert len(fat_binaries(data)) <= len(data) // 48


@given(st.binary(max_size=400).map(lambda tail: container(entry(CUBIN, 80)) + tail), st.data())
def test_damage_never_crashes(data: bytes, draw: st.DataObject) -> None:
    at = draw.draw(st.integers(0, len(data) - 1))
    value = draw.draw(st.integers(0, 255))
    fat_binaries(data[:at] + bytes([value]) + data[at + 1 :])
    fat_binaries(data[:at])


@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from([PTX, CUBIN]), st.integers(20, 130), st.binary(max_size=9)), max_size=4),
        max_size=4,
    )
)
def test_what_is_written_is_read(containers: list[list[tuple[int, int, bytes]]]) -> None:
    data = b"".join(container(*(entry(k, a, payload=p) for k, a, p in entries)) for entries in containers)
    expected = [("compute" if k == PTX else "sm") + f"_{a}" for entries in containers for k, a, _ in entries]
    assert [e.arch for e in fat_binaries(data)] == expected

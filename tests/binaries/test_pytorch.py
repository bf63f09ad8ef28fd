from __future__ import annotations

import io

import pytest

from envsolve.binaries.measure import read_python_library, read_version
from envsolve.errors import UsageError


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("__version__ = '2.15.0+cu132'\ncuda: Optional[str] = '13.2'\n", ("2.15.0+cu132", "13.2")),
        ("__version__ = '2.1.0+cu121'\ncuda = '12.1'\nhip = None\n", ("2.1.0+cu121", "12.1")),
        ("__version__ = '2.10.0+cpu'\ncuda: Optional[str] = None\n", ("2.10.0+cpu", None)),
        ("", (None, None)),
    ],
)
def test_version_file(source: str, expected: tuple[str | None, str | None]) -> None:
    assert read_version(source) == expected


def test_version_file_that_is_no_python() -> None:
    with pytest.raises(UsageError, match=r"version\.py"):
        read_version("__version__ = ")


@pytest.mark.parametrize(
    ("data", "flags"),
    [
        (b"\0sm_75 sm_80 sm_90\0", ("sm_75", "sm_80", "sm_90")),
        (b"Invalid valuesm_50 sm_60 compute_60\0", ("sm_50", "sm_60", "compute_60")),
        (b"\0sm_90\0 and \0sm_100 sm_103a sm_120f\0", ("sm_100", "sm_103a", "sm_120f")),
        (b"\0sm_90 is a card\0", ()),
        (b"no such literal\0", ()),
    ],
)
def test_arch_literal(data: bytes, flags: tuple[str, ...]) -> None:
    assert read_python_library(io.BytesIO(data))[0] == flags


@pytest.mark.parametrize("before", [(1 << 20) - n for n in range(0, 40, 3)])
def test_the_literal_may_straddle_the_chunks_it_is_read_in(before: int) -> None:
    data = b"\1" * before + b"\0sm_75 sm_80 sm_86 sm_90 sm_100 sm_120\0" + b"\1" * 3000
    assert len(read_python_library(io.BytesIO(data))[0]) == 6


@pytest.mark.parametrize(
    ("symbols", "cxx11"),
    [
        (b"_ZN3c106detail14torchCheckFailEPKcS2_jRKSs\0", False),
        (b"_ZN3c106detail14torchCheckFailEPKcS2_jRKNSt7__cxx1112basic_stringIcEE\0", True),
        (b"_ZN3c105ErrorC1ENS_14SourceLocationESs\0", False),
        (b"_ZN3c105ErrorC2ENS_14SourceLocationENSt7__cxx1112basic_stringIcEE\0", True),
        (b"nothing", None),
    ],
)
def test_abi(symbols: bytes, cxx11: bool | None) -> None:
    assert read_python_library(io.BytesIO(symbols))[1] is cxx11

"""The main libraries of a package, from wheels made by hand."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envsolve.binaries.files import WheelFile
from envsolve.binaries.library import Extension, common_code, read_extension
from envsolve.errors import UsageError
from tests.binaries.artefacts import ARCH_SPECIFIC, CUBIN, FAMILY_SPECIFIC, PTX, container, elf, entry, wheel

MAIN = re.compile(r"x/_C\w*\.so")
BROAD = container(entry(CUBIN, 80), entry(CUBIN, 90), entry(PTX, 90, isa=(8, 7)))
HOPPER = container(entry(CUBIN, 90, flags=ARCH_SPECIFIC))
FAMILY = container(entry(CUBIN, 100, flags=FAMILY_SPECIFIC), entry(PTX, 80, isa=(9, 0)))
NEW = "_ZN3c106detail14torchCheckFailEPKcS2_jRKNSt7__cxx1112basic_stringIcE"
OLD = "_ZN3c106detail14torchCheckFailEPKcS2_jRKSs"


def read(members: Mapping[str, bytes | str]) -> Extension | None:
    return read_extension(WheelFile(io.BytesIO(wheel("x", "1", members)), "x-1-py3-none-any.whl"), MAIN)


def test_the_code_is_the_list_of_most_kernels_and_the_rest_is_told_apart() -> None:
    library = elf(["libc10.so", "libcudart.so.12"], tail=BROAD + HOPPER + BROAD + FAMILY)
    found = read({"x/_C.so": library, "x/_other.so": elf(tail=HOPPER * 9)})
    assert found is not None
    assert found.code == ("sm_80", "sm_90", "compute_90")
    assert found.every == ("sm_80", "sm_90", "sm_90a", "sm_100f", "compute_80", "compute_90")
    assert (found.ptx_isa, found.cuda_major) == ("9.0", 12)


def test_several_main_libraries_are_read_as_one() -> None:
    found = read({"x/_C.so": elf(tail=HOPPER), "x/_C_stable.so": elf(tail=BROAD * 2)})
    assert found is not None and found.code == ("sm_80", "sm_90", "compute_90")


@pytest.mark.parametrize(
    ("members", "code", "abi"),
    [
        ({"x/_C.so": elf(["libc10.so", NEW])}, (), True),
        ({"x/_C.so": elf(["libc10.so", OLD], tail=HOPPER)}, ("sm_90a",), False),
        ({"x/_C.so": elf([NEW]), "x/_C_2.so": elf([OLD])}, (), None),
        ({"x/_C.so": elf(["libtorch.so"], tail=NEW.encode())}, (), None),  # not a name that the loader sees
        ({"x/_C.so": b"MZ" + HOPPER}, ("sm_90a",), None),
    ],
)
def test_the_abi_is_that_of_the_symbols(
    members: Mapping[str, bytes | str], code: tuple[str, ...], abi: bool | None
) -> None:
    found = read(members)
    assert found is not None
    assert (found.code, found.cxx11_abi) == (code, abi)


def test_a_wheel_without_them_says_nothing() -> None:
    assert read({"x/other.so": elf(tail=BROAD)}) is None


def test_a_damaged_library_is_refused() -> None:
    with pytest.raises(UsageError):
        read({"x/_C.so": elf(["libc10.so"])[:100]})


@pytest.mark.parametrize(
    ("lists", "code"),
    [
        ({("sm_80",): 2, ("sm_80", "sm_90"): 2, (): 9}, ("sm_80", "sm_90")),
        ({("sm_90a",): 292, ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90a", "sm_120a"): 217}, None),
        ({("sm_90a",): 9, ("sm_80", "sm_90"): 1}, ("sm_90a",)),
        ({(): 3}, ()),
        ({}, ()),
    ],
)
def test_the_list_behind_most_of_the_code(lists: dict[tuple[str, ...], int], code: tuple[str, ...] | None) -> None:
    assert common_code(lists) == (max(lists, key=len) if code is None else code)


@given(
    st.dictionaries(
        st.lists(st.sampled_from(["sm_80", "sm_90", "compute_90"]), unique=True).map(tuple), st.integers(1, 9)
    )
)
def test_the_common_code_is_one_of_the_lists_and_a_lone_list_wins(lists: dict[tuple[str, ...], int]) -> None:
    code = common_code(lists)
    carried = [archs for archs in lists if archs]
    assert code in carried if carried else code == ()
    assert common_code({code: 1} if code else {}) == code

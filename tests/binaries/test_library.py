"""One library: what it needs, on Linux and Windows, its ABI, and its code by how common it is."""

from __future__ import annotations

import contextlib
import io
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envsolve.binaries.library import cxx11_abi, read_library, read_pe
from envsolve.errors import UsageError
from tests.binaries.artefacts import CUBIN, PTX, container, elf, entry, pe
from tests.binaries.elves import library

NEW = "_ZN3fooERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEE"
OLD = "_ZNSs6assignEPKcm"
TORCH_NEW = "_ZN3c106detail14torchCheckFailEPKcS2_jRKNSt7__cxx1112basic_stringIcE"
TORCH_OLD = "_ZN3c106detail14torchCheckFailEPKcS2_jRKSs"


@pytest.mark.parametrize(
    ("symbols", "abi"),
    [
        ([], None),
        (["cudaMalloc", "_ZN3bar7ProcessSsEv"], None),
        ([NEW], True),
        ([OLD], False),
        ([NEW, OLD], None),
        ([TORCH_NEW, OLD], True),
        ([TORCH_OLD, NEW], False),
        ([TORCH_OLD, TORCH_NEW], None),
    ],
)
def test_the_abi_is_told_by_symbols_and_by_those_shared_with_torch_first(symbols: list[str], abi: bool | None) -> None:
    assert read_library(io.BytesIO(elf(["libc.so.6"], symbols=symbols)), "lib.so").cxx11_abi is abi
    assert cxx11_abi(b"\0" + b"".join(symbol.encode() + b"\0" for symbol in symbols)) is abi


@pytest.mark.parametrize(
    ("symbols", "stable"),
    [
        ([], None),
        (["cudaMalloc"], None),
        (["aoti_torch_get_dim", "torch_library_impl"], True),
        (["aoti_torch_get_dim", "_ZN5torch6stable6TensorD1Ev", "_ZN5torch10headeronly4HalfC1Ef"], True),
        (["_ZNK2at6Tensor4sizeEl"], False),
        (["_ZN5torch8autograd4NodeD1Ev"], False),
    ],
)
def test_the_stable_abi_is_told_by_symbols(symbols: list[str], stable: bool | None) -> None:
    library = read_library(io.BytesIO(elf(["libtorch.so"], symbols=symbols)), "lib.so")
    assert library.stable_abi is stable


@pytest.mark.parametrize(("side", "stable"), [("gives", True), ("takes", False)])
def test_names_that_a_library_defines_itself_do_not_bind_it_to_one_torch(side: str, stable: bool) -> None:
    """xformers 0.0.35 and torchaudio 2.11 have such names of torch's headers, and use its stable ABI alone."""
    symbols = {"takes": ["aoti_torch_get_dim"], "gives": ["x"]}
    symbols[side] = [*symbols[side], "_ZN3c108BFloat16C1Ef"]
    found = read_library(io.BytesIO(library(**symbols)), "lib.so")  # type: ignore[arg-type]
    assert found.stable_abi is stable


@pytest.mark.parametrize(
    ("needed", "major"),
    [
        (["libcudart.so.12"], 12),
        (["libcudart-1234abcd.so.11.0"], 11),
        (["libcublas.so.13", "libc.so.6"], 13),
        (["libcudnn.so.9", "libcufft.so.11", "libcuda.so.1"], None),
        ([], None),
    ],
)
def test_the_cuda_that_it_links_on_linux(needed: list[str], major: int | None) -> None:
    found = read_library(io.BytesIO(elf(needed)), "lib.so")
    assert found.cuda_major == major
    assert found.needed == tuple(name for name in needed if name.startswith("libcu"))


@pytest.mark.parametrize(
    ("imports", "delayed", "major"),
    [
        (["KERNEL32.dll", "cudart64_12.dll"], [], 12),
        (["cudart64_110.dll"], [], 11),
        (["KERNEL32.dll"], ["cublas64_13.dll", "nvcuda.dll"], 13),
        (["cudnn64_9.dll", "c10_cuda.dll", "curl.dll"], [], None),
    ],
)
def test_the_cuda_that_it_links_on_windows(imports: list[str], delayed: list[str], major: int | None) -> None:
    found = read_library(io.BytesIO(pe(imports, delayed)), "_C.pyd")
    assert (found.machine, found.cuda_major) == ("x86_64", major)
    assert found.needed == tuple(
        n for n in (*imports, *delayed) if n.startswith(("cudart", "cublas", "cudnn", "nvcuda"))
    )


@pytest.mark.parametrize(("number", "machine"), [(0x8664, "x86_64"), (0xAA64, "aarch64"), (0x14C, "pe-machine-332")])
def test_the_machine_of_a_windows_library(number: int, machine: str) -> None:
    assert read_pe(io.BytesIO(pe(["a.dll"], machine=number)), "a.dll").machine == machine


def test_code_is_what_most_kernels_have_and_ptx_has_its_version() -> None:
    usual = container(entry(CUBIN, 80), entry(CUBIN, 90), entry(PTX, 90, isa=(8, 7)))
    special = container(entry(CUBIN, 120), entry(PTX, 90, isa=(8, 10)), entry(PTX, 120, isa=(8, 8)))
    found = read_library(io.BytesIO(elf(tail=usual + special + usual)), "lib.so")
    assert found.code == ("sm_80", "sm_90", "compute_90")
    assert found.sass == ("sm_80", "sm_90", "sm_120")
    assert found.ptx_isas == {"compute_90": "8.10", "compute_120": "8.8"}
    assert found.ptx_isa == "8.10"


@pytest.mark.parametrize("data", [b"\x7fELF\x01\x01" + elf()[6:], b"INPUT(libfoo.a)", b"MZ" + bytes(100)])
def test_what_no_cuda_package_has_is_no_library_and_no_damage(data: bytes) -> None:
    found = read_library(io.BytesIO(data), "lib.so")
    assert (found.machine, found.needed, found.sass) == (None, (), ())


@pytest.mark.parametrize("cut", [2, 63, 64, 70, 90, 200, 0x150, 0x200, 0x210, 0x230])
def test_a_windows_library_that_is_cut_off_is_refused_with_its_name(cut: int) -> None:
    with pytest.raises(UsageError, match=r"_C\.pyd"):
        read_library(io.BytesIO(pe(["cudart64_12.dll"], ["nvcuda.dll"])[:cut]), "_C.pyd")


@given(st.data())
def test_a_damaged_library_is_a_usage_error_at_worst(data: st.DataObject) -> None:
    name, whole = data.draw(
        st.sampled_from(
            [("a.so", elf(["libcudart.so.12"], symbols=[NEW])), ("a.dll", pe(["cudart64_12.dll"], ["b.dll"]))]
        )
    )
    damaged = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 4))):
        noise = data.draw(st.binary(min_size=1, max_size=9))
        at = data.draw(st.integers(0, len(whole) - 1))
        damaged[at : at + len(noise)] = noise
    with contextlib.suppress(UsageError):
        read_library(io.BytesIO(bytes(damaged)), name)


@given(st.integers(0, 2**32 - 1), st.sampled_from([60, 64 + 4 + 16, 64 + 24 + 112 + 8, 64 + 24 + 112 + 13 * 8]))
def test_offsets_that_lead_anywhere_end(value: int, at: int) -> None:
    data = bytearray(pe(["cudart64_12.dll"], ["b.dll"]))
    struct.pack_into("<I", data, at, value)
    with contextlib.suppress(UsageError):
        read_library(io.BytesIO(bytes(data)), "a.dll")

from __future__ import annotations

import contextlib
import io
import json
import random
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envsolve.binaries.files import WheelFile
from envsolve.binaries.measure import measure, measure_libraries, measure_path
from envsolve.binaries.model import Library
from envsolve.errors import UsageError
from tests.binaries.artefacts import CUBIN, PTX, container, elf, entry, pe, torch_wheel, wheel
from tests.binaries.test_ptxas import STRINGS

KERNELS = elf(["libcudart.so.13", "libcurl.so.4"], tail=container(entry(CUBIN, 90), entry(PTX, 90, isa=(9, 0))))


class Counting(io.BytesIO):
    """Counts what is read, as a server's bill would."""

    count = 0

    def read(self, size: int | None = -1) -> bytes:
        data = super().read(size)
        self.count += len(data)
        return data


def test_torch_is_measured_by_its_own_words_without_reading_its_kernels() -> None:
    noise = random.Random(1).randbytes(4 << 20)
    file = Counting(torch_wheel(extra={"torch/lib/libtorch_cuda.so": KERNELS + noise}))
    found = measure(file, "torch-2.11.0-cp312-cp312-linux_x86_64.whl")
    assert (found.package, found.version, found.cuda) == ("torch", "2.11.0+cu130", "13.0")
    assert found.arch_flags == ("sm_75", "sm_80", "sm_90", "compute_90")
    assert found.cxx11_abi is True
    assert found.requires == ("filelock", "triton==3.6.0; sys_platform == 'linux'")
    assert (found.requires_python, found.tags) == (">=3.9", ("cp312-cp312-linux_x86_64",))
    assert file.count < 1 << 18


def test_the_kernels_of_torch_are_a_question_of_their_own() -> None:
    data = torch_wheel(extra={"torch/lib/libtorch_cuda.so": KERNELS})
    (library,) = measure_libraries(WheelFile(io.BytesIO(data), "torch.whl"))
    assert library == Library(
        file="torch/lib/libtorch_cuda.so",
        machine="x86_64",
        sass=("sm_90",),
        ptx=("compute_90",),
        ptx_isa="9.0",
        needed=("libcudart.so.13",),
        ptx_isas={"compute_90": "9.0"},
        code=("sm_90", "compute_90"),
        cuda_major=13,
    )


def test_a_cpu_build_has_an_empty_code_list() -> None:
    found = measure(io.BytesIO(torch_wheel(cuda=None)), "torch.whl")
    assert (found.version, found.cuda, found.arch_flags) == ("2.11.0+cpu", None, ())


def test_other_packages_are_measured_by_their_libraries() -> None:
    codes = [entry(CUBIN, arch, payload=b"") for arch in (100, 80, 90)] + [entry(PTX, 80, isa=(8, 0))]
    members = {
        "pkg/_C.so": elf(tail=container(*codes, entry(PTX, 90, isa=(8, 10)))),
        "pkg/plain.so": elf(["libm.so.6"]),
        "pkg/_C.dll": pe(tail=container(entry(CUBIN, 86))),
        "pkg/data.bin": container(entry(CUBIN, 61)),
    }
    found = measure(io.BytesIO(wheel("pkg", "1.0", members)), "pkg.whl")
    assert {library.file: library.sass for library in found.libraries} == {
        "pkg/_C.so": ("sm_80", "sm_90", "sm_100"),
        "pkg/_C.dll": ("sm_86",),
    }
    assert found.libraries[0].ptx_isa == "8.10"
    assert found.arch_flags is None


def test_bundled_assemblers_are_listed() -> None:
    data = wheel("triton", "3.6.0", {"triton/backends/nvidia/bin/ptxas": STRINGS})
    (found,) = measure(io.BytesIO(data), "triton.whl").assemblers
    assert (found.file, found.cuda) == ("triton/backends/nvidia/bin/ptxas", "12.8")


def test_a_measurement_prints_as_json() -> None:
    found = asdict(measure(io.BytesIO(torch_wheel()), "torch.whl"))
    assert json.loads(json.dumps(found))["schema"] == "envsolve.measurement/1"


@given(st.data())
def test_a_wheel_cut_off_anywhere_is_a_usage_error(data: st.DataObject) -> None:
    whole = torch_wheel()
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(UsageError):
        measure(io.BytesIO(whole[:cut]), "torch.whl")


@given(st.data())
def test_a_damaged_wheel_is_a_usage_error_at_worst(data: st.DataObject) -> None:
    damaged = bytearray(torch_wheel())
    for _ in range(3):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(UsageError):
        measure(io.BytesIO(bytes(damaged)), "torch.whl")


def test_a_wheel_without_metadata_is_refused() -> None:
    with pytest.raises(UsageError, match="METADATA"):
        measure(io.BytesIO(wheel("a", "1", {}).replace(b"METADATA", b"METADAT_")), "a.whl")


def test_single_files_are_told_apart_by_name() -> None:
    assert measure(io.BytesIO(KERNELS), "lib.so").libraries[0].sass == ("sm_90",)
    assert measure(io.BytesIO(STRINGS), "ptxas").assemblers[0].cuda == "12.8"
    assert measure(io.BytesIO(container(entry(CUBIN, 90))), "k.fatbin").libraries[0].machine is None
    with pytest.raises(UsageError, match=r"notes\.txt"):
        measure(io.BytesIO(b"hello"), "notes.txt")


def test_a_path_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        measure_path(tmp_path / "none.whl")

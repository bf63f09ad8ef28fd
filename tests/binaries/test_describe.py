"""A measurement in words, and the command that prints it."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from envsolve.binaries.measure import measure
from envsolve.binaries.model import describe
from envsolve.cli.main import run
from tests.binaries.artefacts import CUBIN, PTX, container, elf, entry, torch_wheel, wheel
from tests.binaries.test_environment import install
from tests.binaries.test_ptxas import STRINGS

USUAL = container(entry(CUBIN, 80), entry(CUBIN, 90), entry(PTX, 90, isa=(8, 7)))
SYMBOL = "_ZN3c106detail14torchCheckFailEPKcS2_jRKNSt7__cxx1112basic_stringIcE"
KERNELS = elf(["libcudart.so.12"], symbols=[SYMBOL], tail=USUAL + USUAL + container(entry(CUBIN, 120)))


def test_an_extension() -> None:
    data = wheel("ext", "1.0", {"ext/_C.so": KERNELS}, requires=["torch==2.9.*", "numpy"])
    assert (
        describe(measure(io.BytesIO(data), "ext-1.0.whl"))
        == """\
ext 1.0  (wheel ext-1.0.whl)
  library    ext/_C.so  (x86_64)
    code       sm_80 sm_90 compute_90
    and        sm_120, only in some kernels
    PTX        compute_90 in version 8.7
    CUDA       12
    C++11 ABI  yes
    stable ABI no
    needs      libcudart.so.12
  requires   torch==2.9.*
  requires   1 more, see --format json
"""
    )


def test_torch() -> None:
    text = describe(measure(io.BytesIO(torch_wheel()), "torch.whl"))
    assert text.splitlines()[:4] == [
        "torch 2.11.0+cu130  (wheel torch.whl)",
        "  CUDA       13.0",
        "  code       sm_75 sm_80 sm_90 compute_90  (as torch.cuda.get_arch_list() has it)",
        "  C++11 ABI  yes",
    ]
    assert "none: a CPU build" in describe(measure(io.BytesIO(torch_wheel(cuda=None)), "torch.whl"))


def test_all_libraries_of_torch_are_read_when_asked_for() -> None:
    data = torch_wheel(extra={"torch/lib/libtorch_cuda.so": KERNELS})
    assert measure(io.BytesIO(data), "torch.whl").libraries == ()
    assert [lib.code for lib in measure(io.BytesIO(data), "torch.whl", every=True).libraries] == [
        ("sm_80", "sm_90", "compute_90")
    ]


def test_tools_and_assemblers() -> None:
    members: dict[str, bytes | str] = {f"nvidia/cu13/bin/{name}": b"" for name in ("nvcc", "cuobjdump", "bin.txt")}
    members["nvidia/cu13/bin/ptxas"] = STRINGS
    found = measure(io.BytesIO(wheel("nvcc", "13.0", members)), "nvcc.whl")
    assert [tool.rsplit("/", 1)[-1] for tool in found.tools] == ["nvcc", "cuobjdump", "ptxas"]
    assert "  assembler  nvidia/cu13/bin/ptxas: CUDA 12.8.93, its newest PTX is not known" in describe(found)
    tools = [line.split()[-1] for line in describe(found).splitlines() if line.startswith("  tool")]
    assert tools == ["nvidia/cu13/bin/nvcc", "nvidia/cu13/bin/cuobjdump"]


def ended(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[Any, str, str]:
    with pytest.raises(SystemExit) as left:
        run(["index", "measure", *words])
    said = capsys.readouterr()
    return left.value.code, said.out, said.err


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "torch.whl"
    path.write_bytes(torch_wheel(extra={"torch/lib/libtorch_cuda.so": KERNELS}))
    code, out, _ = ended(capsys, str(path))
    assert (code, out.splitlines()[0]) == (0, "torch 2.11.0+cu130  (wheel torch.whl)")
    assert "libtorch_cuda.so" in ended(capsys, str(path), "--all")[1]
    assert json.loads(ended(capsys, str(path), "--format", "json")[1])["schema"] == "envsolve.measurement/1"
    install(path.read_bytes(), tmp_path / "site")
    assert "\n\ntorch 2.11.0+cu130  (distribution" in ended(capsys, str(tmp_path / "site"))[1]


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("torch.whl", torch_wheel()[:300], "is not a readable wheel"),
        ("lib.so", KERNELS[:90], "is cut off"),
        ("plain.so", elf(["libm.so.6"]), "contains no CUDA code"),
        ("plain-1.0-py3-none-any.whl", wheel("plain", "1.0", {"plain.py": ""}), "contains no CUDA code"),
        ("notes.txt", b"hello", "is not a wheel, shared library, fat binary or ptxas"),
        ("ptxas", b"#!/bin/sh\n", "is not a ptxas program"),
        ("empty.whl", b"", "is not a readable wheel"),
    ],
)
def test_what_is_damaged_or_has_no_cuda_is_told_with_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, data: bytes, message: str
) -> None:
    (tmp_path / name).write_bytes(data)
    code, out, err = ended(capsys, str(tmp_path / name))
    assert (code, out) == (2, "")
    assert message in err
    assert "Traceback" not in err

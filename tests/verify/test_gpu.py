"""The ladder on a real GPU: a healthy environment passes, and each check fails once it or its kernel is broken."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from envsolve.verify.report import Check
from envsolve.verify.runner import run_checks
from envsolve.verify.scripts import BUILT_IN, find_scripts

pytestmark = pytest.mark.gpu
PYTHON = Path(os.environ.get("ENVSOLVE_GPU_PYTHON", sys.executable))
"""The interpreter that has torch; that of the tests unless told otherwise."""

ENDLESS = ("@%p bra done;", "forever: bra forever;")
FAULTS = [
    ("driver_cubin.py", "arch // 10 == major and arch % 10 <= minor", "arch == 120", "error 209", "no-kernel-for-gpu"),
    ("driver_jit.py", 'OLDEST = "6.0"', 'OLDEST = "99.0"', "Unsupported .version 99.0", "ptx-newer-than-driver"),
    ("driver_jit.py", "%value, 3, %i", "%value, 5, %i", "999 of 1000 values are wrong", None),
    ("driver_jit.py", "add.s64 %at, %base, %at;", "mov.u64 %at, 64;", "cuCtxSynchronize failed", None),
    ("driver_jit.py", *ENDLESS, "did not end within 15 s and was killed", None),
    ("nvrtc.py", "3 * values[i]", "5 * values[i]", "999 of 1000 values are wrong", None),
    ("nvrtc.py", '"sm_{}".format(arch)', '"sm_{}".format(120)', "no kernel image", "no-kernel-for-gpu"),
    ("nvcc.py", "3 * values[i]", "5 * values[i]", "999 of 1000 values are wrong", None),
    ("nvcc.py", "arch=compute_{0},code=sm_{0}", "arch=compute_120,code=sm_120", "no kernel image", "no-kernel-for-gpu"),
    ("torch_elementwise.py", "left * right + 1", "left * right + 2", "product in torch.float32", None),
    ("torch_code.py", "* 3 + 1\n", "* 3 + 2\n", "wrong values", None),
    ("torch_matmul.py", "left.to(device, dtype) @", "left.t().to(device, dtype) @", "product in torch.float32", None),
    ("torch_matmul.py", "right.t().contiguous()", "right.contiguous()", "product in float8_e4m3fn", None),
    ("torch_convolution.py", "filters.to(device", "-filters.to(device", "convolution in torch.float32", None),
    (
        "torch_attention.py",
        "found = attention(*inputs)",
        "found = attention(*inputs, is_causal=True)",
        "by flash",
        None,
    ),
    ("triton_kernel.py", "+ 1.0", "+ 2.0", "10007 of 10007 values differ", None),
    ("triton_dot.py", "total += tl.dot", "total -= tl.dot", "tl.dot in torch.float16", None),
    ("torch_compile.py", "found = torch.compile(function", "found = torch.compile(torch.add", "values differ", None),
    ("torch_compile.py", "torch.compile(function, fullgraph=True)", "function", "without compiling it", None),
    ("torch_extension.py", "3 * values[i]", "5 * values[i]", "999 of 1000 values differ", None),
    ("torchvision_nms.py", ", 0.5)", ", 0.9)", "nms kept 1000 boxes", None),
    ("peer_copy.py", "arrived.copy_(sent)", "arrived.copy_(sent + 1)", "copy from GPU 0 to GPU 1", None),
    ("nccl_all_reduce.py", "(rank + 1)", "(rank + 2)", "0 of 2 processes found their sums right", None),
]


def of(folder: Path, name: str, environment: dict[str, str] | None = None) -> Check:
    """How a check of a folder ends on the first GPU."""
    limit = 15 if name == "driver-jit" else 120
    report = run_checks(PYTHON, folder=folder, only=[name], time_limit=limit, environment=environment)
    return next(check for check in report.checks if check.name == name)


def test_a_healthy_environment_passes() -> None:
    report = run_checks(PYTHON)
    assert not report.failed, [check for check in report.checks if check.status == "fail"]
    passed = {check.name for check in report.checks if check.status == "pass"}
    assert {"driver", "driver-cubin", "driver-jit", "nvrtc", "torch-import", "torch-matmul"} <= passed


@pytest.mark.parametrize(
    ("file", "old", "new", "words", "cause"), FAULTS, ids=[f"{fault[0]}: {fault[2]}" for fault in FAULTS]
)
def test_a_broken_check_fails(tmp_path: Path, file: str, old: str, new: str, words: str, cause: str | None) -> None:
    text = (BUILT_IN / file).read_text()
    assert old in text
    (tmp_path / file).write_text(text.replace(old, new))
    shutil.copy(BUILT_IN / "driver.py", tmp_path)
    (name,) = (script.name for script in find_scripts(tmp_path) if script.name != "driver")
    check = of(tmp_path, name)
    if check.status == "skip":
        pytest.skip(check.detail)
    assert (check.status, check.cause) == ("fail", cause), check.detail
    assert words in check.detail


@pytest.mark.parametrize(
    ("module", "old", "new", "name"),
    [
        ("check_driver.py", "found[i] != 4 * i", "found[i] != 5 * i", "driver-cubin"),
        ("check_values.py", "right = expected.to", "right = 1 + expected.to", "torch-matmul"),
        ("check_attention.py", "values[0, head, chosen[head]]", "values[0, head, :LENGTH // 2]", "torch-attention"),
    ],
)
def test_a_broken_comparison_fails(tmp_path: Path, module: str, old: str, new: str, name: str) -> None:
    text = (BUILT_IN.with_name("shared") / module).read_text()
    assert old in text
    (tmp_path / module).write_text(text.replace(old, new))
    check = of(BUILT_IN, name, {"PYTHONPATH": str(tmp_path)})  # Before what the checks share.
    assert (check.status, check.cause) == ("fail", None), check.detail

"""The ladder on a real GPU: a healthy environment passes, and each check fails once it or its kernel is broken."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from envsolve.diagnose.signatures import explain
from envsolve.planning.plan import DriverNeed
from envsolve.verify import runner
from envsolve.verify.expectations import Code, Expected, held_against
from envsolve.verify.measure import measure
from envsolve.verify.report import Check, Report, describe
from envsolve.verify.scripts import BUILT_IN
from tests.verify.faults import OF_COMPARISONS, ON_A_GPU, Fault, file_of

run_checks = partial(runner.run_checks, explain=explain)
pytestmark = pytest.mark.gpu
PYTHON = Path(os.environ.get("ENVSOLVE_GPU_PYTHON", sys.executable))
"""The interpreter that has torch; that of the tests unless told otherwise."""
PATHS = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
"""What the caller lets that interpreter import; other tests are kept from it."""
OLD_PTXAS = os.environ.get("ENVSOLVE_GPU_OLD_PTXAS", "")


def _named(fault: Fault) -> str:
    return f"{fault[0]}: {fault[2]}"


def of(folder: Path, name: str, environment: dict[str, str] | None = None) -> Check:
    """How a check of a folder ends on the first GPU."""
    limit = 15 if name == "driver-jit" else 120
    report = run_checks(
        PYTHON, folder=folder, only=[name], time_limit=limit, environment={**PATHS, **(environment or {})}
    )
    return next(check for check in report.checks if check.name == name)


def told(report: Report) -> float:
    """Print a report, and return what it took beyond importing torch once."""
    print(describe(report))
    assert report.passed
    assert report.seconds is not None
    return report.seconds - (report.import_seconds or 0.0)


def test_a_healthy_environment_passes_within_a_minute() -> None:
    report = run_checks(PYTHON, environment=PATHS)
    assert told(report) < 60
    passed = {check.name for check in report.checks if check.status == "pass"}
    assert {"driver", "driver-cubin", "driver-jit", "nvrtc", "torch-import", "torch-matmul"} <= passed


def test_the_quick_ones_take_less_than_ten_seconds() -> None:
    assert told(run_checks(PYTHON, quick=True, environment=PATHS)) < 10


@pytest.fixture(scope="module")
def seen() -> Report:
    """What the checks saw that a plan is held against."""
    return run_checks(PYTHON, only=["driver", "torch-code", "triton-kernel", "nvcc"], environment=PATHS)


def test_what_is_there_is_what_a_plan_of_it_expects(seen: Report) -> None:
    checks = {check.name: check for check in seen.checks}
    (capability,) = re.findall(r"cc (\d+\.\d+)", checks["torch-code"].gpu or "")
    driver, kernel, nvcc = (checks[name].seen for name in ("driver", "triton-kernel", "nvcc"))
    right = Expected(
        cuda=f"cu{driver['cuda'].replace('.', '')}",
        code={capability: Code("sass", None)},
        driver=DriverNeed(driver["kernel_driver"], "full", None),
        ptxas={capability: kernel["ptxas_cuda"]},
        nvcc=nvcc.get("nvcc_cuda"),
        versions={"torch": (seen.versions["torch"],)},
    )
    held = held_against(seen, right)
    print(describe(held))
    assert not held.failed
    assert {name for check in held.checks for name in check.expected} >= {"code", "cuda", "mode", "ptxas", "ptxas_cuda"}
    wrong = Expected(
        cuda="cu990",
        code={capability: Code("ptx", None)},
        driver=DriverNeed("999.0", "full", None),
        ptxas={capability: "1.0"},
        nvcc="1.0",
        versions={"torch": ("1.0",)},
    )
    failed = {check.name for check in held_against(seen, wrong).checks if check.status == "fail"}
    assert failed >= {"plan", "driver", "torch-code", "triton-kernel"}


@pytest.mark.parametrize("name", ["torchvision-nms", "flash-attn", "xformers-attention", "bitsandbytes"])
def test_a_companion_works(name: str) -> None:
    check = of(BUILT_IN, name)
    if check.status == "skip":
        pytest.skip(check.detail)
    print(describe(Report(checks=(check,))))
    assert check.status == "pass", check.detail


@pytest.mark.parametrize(("name", "old", "new", "words", "cause"), ON_A_GPU, ids=map(_named, ON_A_GPU))
def test_a_broken_check_fails(tmp_path: Path, name: str, old: str, new: str, words: str, cause: str | None) -> None:
    path = file_of(name)
    text = path.read_text()
    assert old in text
    shutil.copy(BUILT_IN / "driver.py", tmp_path)
    (tmp_path / path.name).write_text(text.replace(old, new))
    check = of(tmp_path, name)
    if check.status == "skip":
        pytest.skip(check.detail)
    assert (check.status, check.cause) == ("fail", cause), check.detail
    assert words in check.detail


@pytest.mark.parametrize(("module", "old", "new", "name"), OF_COMPARISONS)
def test_a_broken_comparison_fails(tmp_path: Path, module: str, old: str, new: str, name: str) -> None:
    text = (BUILT_IN.with_name("shared") / module).read_text()
    assert old in text
    (tmp_path / module).write_text(text.replace(old, new))
    check = of(
        BUILT_IN, name, {"PYTHONPATH": os.pathsep.join([str(tmp_path), *PATHS.values()])}
    )  # Before what the checks share.
    assert (check.status, check.cause) == ("fail", None), check.detail


HOG = """
import sys, torch
free, _ = torch.cuda.mem_get_info()
taken = torch.empty(free - (200 << 20), dtype=torch.uint8, device="cuda")
print("full", flush=True)
sys.stdin.read()
"""


def test_a_full_gpu_is_told_from_one_that_does_not_fit() -> None:
    environment = {**os.environ, **PATHS}
    with subprocess.Popen(
        [PYTHON, "-c", HOG], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as hog:
        assert hog.stdout is not None
        assert hog.stdout.readline() == "full\n"
        check = of(BUILT_IN, "torch-matmul")
        hog.communicate("")
    assert (check.status, check.cause) == ("fail", "out-of-memory"), check.detail


def test_triton_without_a_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CC", raising=False)
    check = of(BUILT_IN, "triton-kernel", {"PATH": str(tmp_path)})
    assert (check.status, check.cause) == ("fail", "host-compiler-missing"), check.detail


@pytest.mark.skipif(not OLD_PTXAS, reason="ENVSOLVE_GPU_OLD_PTXAS names no ptxas that is too old for the card")
def test_triton_told_to_use_an_old_ptxas() -> None:
    named = dict.fromkeys(("TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH"), OLD_PTXAS)
    check = of(BUILT_IN, "triton-kernel", named)
    assert check.status == "fail"
    assert check.cause in ("triton-ptxas-too-old", "triton-ptxas-lacks-arch"), check.detail
    assert OLD_PTXAS in check.detail


def test_no_fast_path_is_wrong() -> None:
    report = measure(PYTHON, "fast-paths", explain=explain)
    print(describe(report))
    assert report.passed
    capability = re.findall(r"cc (\d+)\.\d+", report.checks[1].gpu or "")
    works = {check.name for check in report.checks if check.status == "pass"}
    if int(capability[0]) >= 8:
        assert works >= {"bf16-matmul", "tf32-matmul", "sdpa-flash", "cuda-graphs", "triton-bf16-dot"}


def test_rates_are_measured_within_a_minute() -> None:
    report = measure(PYTHON, "bench", explain=explain)
    print(describe(report))
    assert report.passed
    assert (report.seconds or 0) < 60
    assert {"memory_gbs", "pcie_gbs"} <= set(report.checks[-1].seen)


def test_a_long_run_passes_and_names_the_gpu() -> None:
    report = measure(PYTHON, "soak", minutes=0.2, explain=explain)
    print(describe(report))
    assert report.passed
    assert "GPU-" in report.checks[-1].detail


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("torch.equal(left @ right, first)", "torch.equal(left @ right, first + runs // 60)", "changed a product"),
        ("wrong = memory.ne(", "memory[7] += 1\n            wrong = memory.ne(", "lost a pattern"),
        ("int(ends)", "int(ends) + 1", "wrong sum"),
    ],
)
def test_a_long_run_sees_a_changing_result(tmp_path: Path, old: str, new: str, words: str) -> None:
    text = (BUILT_IN.with_name("measures") / "numbers.py").read_text()
    assert old in text
    (tmp_path / "numbers.py").write_text(text.replace(old, new))
    report = run_checks(PYTHON, folder=tmp_path, only=["soak"], environment=PATHS, arguments=["0.1"])
    check = report.checks[-1]
    assert check.status == "fail"
    assert words in check.detail
    assert "GPU 0 (" in check.detail

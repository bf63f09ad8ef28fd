"""The shipped checks: their declarations, and what they say on real interpreters, drivers and packages."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from unittest import SkipTest

import pytest

from envsolve._default_index import DEFAULT_INDEX
from envsolve.binaries.names import ACCELERATOR_LIBRARY
from envsolve.diagnose.signatures import explain
from envsolve.values import ComputeCapability
from envsolve.verify import runner
from envsolve.verify.harness import load
from envsolve.verify.quick_script import LIBRARY
from envsolve.verify.scripts import BUILT_IN, find_scripts
from tests.verify.faults import COMPILING, OF_COMPARISONS, ON_A_GPU, file_of

run_checks = partial(runner.run_checks, explain=explain)
run_compile_checks = partial(runner.run_compile_checks, explain=explain)

PYTHON = Path(sys.executable)
SHARED = BUILT_IN.with_name("shared")
HAS_GPU = any(Path("/dev").glob("nvidia[0-9]*"))


def test_the_shipped_checks_in_their_order() -> None:
    assert [(script.name, script.runs_on) for script in find_scripts() if script.runs_on != "architecture"] == [
        ("driver", "host"),
        ("driver-cubin", "gpu"),
        ("driver-jit", "gpu"),
        ("nvrtc", "gpu"),
        ("nvcc", "gpu"),
        ("torch-import", "host"),
        ("lib-loads", "host"),
        ("torch-operators", "host"),
        ("torch-elementwise", "gpu"),
        ("torch-code", "gpu"),
        ("lib-nvrtc", "gpu"),
        ("torch-matmul", "gpu"),
        ("lib-cublas", "gpu"),
        ("torch-convolution", "gpu"),
        ("lib-cudnn", "gpu"),
        ("torch-attention", "gpu"),
        ("lib-cusparse", "gpu"),
        ("lib-cusolver", "gpu"),
        ("lib-cufft", "gpu"),
        ("lib-curand", "gpu"),
        ("lib-cusparselt", "gpu"),
        ("triton-kernel", "gpu"),
        ("triton-dot", "gpu"),
        ("torch-compile", "gpu"),
        ("lib-nccl", "gpu"),
        ("lib-cufile", "gpu"),
        ("lib-cupti", "gpu"),
        ("lib-nvshmem", "gpu"),
        ("torch-extension", "gpu"),
        ("torchvision-nms", "gpu"),
        ("flash-attn", "gpu"),
        ("xformers-attention", "gpu"),
        ("bitsandbytes", "gpu"),
        ("peer-copy", "gpus"),
        ("nccl-all-reduce", "gpus"),
    ]


def test_the_quick_the_building_and_the_compiling_ones() -> None:
    scripts = find_scripts()
    assert [s.name for s in scripts if s.quick] == ["driver", "driver-cubin", "driver-jit", "nvrtc", "torch-matmul"]
    assert [s.name for s in scripts if s.builds and s.runs_on == "gpu"] == ["nvcc", "torch-extension"]
    assert [s.name for s in scripts if s.runs_on == "architecture"] == [
        "nvrtc",
        "nvcc",
        "triton-compile",
        "torch-extension",
    ]


@pytest.mark.parametrize("path", [*sorted(BUILT_IN.glob("*.py")), *sorted(SHARED.glob("*.py"))], ids=lambda p: p.stem)
def test_a_check_stands_alone(path: Path) -> None:
    text = path.read_text()
    compile(text, str(path), "exec", dont_inherit=True)
    assert "envsolve" not in text


def test_the_tried_interpreter_knows_the_names_of_libraries_by_the_same_pattern() -> None:
    assert LIBRARY.pattern.startswith(ACCELERATOR_LIBRARY.pattern.partition("[")[0])


FAULTS = [*ON_A_GPU, *COMPILING]


def test_every_check_has_a_fault_that_is_seen() -> None:
    assert {fault[0] for fault in FAULTS} == {script.name for script in find_scripts()}


@pytest.mark.parametrize(("name", "old", "new"), sorted({fault[:3] for fault in FAULTS}))
def test_what_a_fault_breaks_stands_there(name: str, old: str, new: str) -> None:
    path = file_of(name)
    text = path.read_text()
    assert old in text
    compile(text.replace(old, new), str(path), "exec", dont_inherit=True)


@pytest.mark.parametrize(("module", "old"), sorted((fault[0], fault[1]) for fault in OF_COMPARISONS))
def test_what_breaks_a_comparison_stands_there(module: str, old: str) -> None:
    assert old in (SHARED / module).read_text()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "def f(): pass",
        "@check('x', runs_on='moon', order=1)\ndef f(): pass",
        "@check('x', runs_on='gpu')\ndef f(): pass",
        "@check('x', runs_on='gpu', order=FIRST)\ndef f(): pass",
        "@check(runs_on='gpu', order=1)\ndef f(): pass",
    ],
)
def test_a_script_that_does_not_declare_itself(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.py").write_text(text)
    with pytest.raises(ValueError, match=r"x\.py"):
        find_scripts(tmp_path)


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """An interpreter without any package."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    return tmp_path / "bare" / "bin" / "python"


@pytest.mark.skipif(HAS_GPU, reason="has a GPU")
def test_where_there_is_neither_gpu_nor_package_nothing_passes(bare: Path) -> None:
    report = run_checks(bare)
    assert {check.status for check in report.checks} == {"skip"}
    assert not report.passed
    driver, torch = report.checks[0], next(check for check in report.checks if check.name == "torch-import")
    assert driver.cause == "no-driver"
    assert torch.detail == "torch is not installed in this environment"


def test_compiling_without_triton_is_a_skip_and_no_pass(bare: Path) -> None:
    report = run_compile_checks(bare, [ComputeCapability(9, 0)])
    assert [(check.name, check.status) for check in report.checks] == [
        ("nvrtc", "skip"),
        ("nvcc", "skip"),
        ("triton-compile", "skip"),
        ("torch-extension", "skip"),
    ]
    assert report.checks[2].detail == "triton is not installed in this environment"
    assert not report.passed


@pytest.mark.parametrize(
    ("body", "variables", "words"),
    [
        ("raise AssertionError('not reached')", {"TRITON_INTERPRET": "1"}, ["with TRITON_INTERPRET set", "to 1"]),
        ("open('/no/ptxas')", {"TRITON_PTXAS_PATH": "/x"}, ["No such file", "TRITON_PTXAS_PATH is set to /x"]),
        ("raise ModuleNotFoundError(\"No module named 'setuptools'\")", {}, ["the environment has no setuptools"]),
    ],
)
def test_a_failure_names_the_variables_and_packages_that_it_may_come_from(
    tmp_path: Path, body: str, variables: dict[str, str], words: list[str]
) -> None:
    (tmp_path / "triton.py").write_text(body)
    environment = {"PYTHONPATH": str(tmp_path), **variables}
    cards = [ComputeCapability(9, 0)]
    (check,) = run_compile_checks(PYTHON, cards, environment=environment, only=["triton-compile"]).checks
    absent = "ModuleNotFoundError" in body
    assert (check.status, check.cause) == ("fail", "dependency-missing" if absent else None)
    for word in words:
        assert word in check.detail


LIBCUDA = """
int cuInit(unsigned flags) { return STATUS; }
int cuGetErrorString(int status, const char **text) { *text = TEXT; return 0; }
int cuDriverGetVersion(int *version) { *version = 13000; return 0; }
int cuDeviceGetCount(int *count) { *count = COUNT; return 0; }
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler to make a libcuda")
@pytest.mark.skipif(HAS_GPU, reason="has a GPU")
@pytest.mark.parametrize(
    ("number", "text", "status", "cause"),
    [
        (803, "system has unsupported display driver / cuda driver combination", "fail", "compat-libcuda"),
        (999, "unknown error", "fail", "driver-needs-reload"),
        (100, "no CUDA-capable device is detected", "skip", "no-driver"),
        (34, "CUDA driver is a stub library", "skip", "no-driver"),
        (0, "", "skip", "no-driver"),
        (-1, "", "skip", "no-driver"),
    ],
)
def test_a_driver_that_does_not_start(tmp_path: Path, number: int, text: str, status: str, cause: str | None) -> None:
    source, library = tmp_path / "cuda.c", tmp_path / "libcuda.so.1"
    source.write_text(LIBCUDA)
    # A negative number stands for a driver that starts, and lists so many cards.
    defines = [f"-DSTATUS={max(number, 0)}", f"-DCOUNT={min(number, 0)}", f'-DTEXT="{text}"']
    subprocess.run(["cc", "-shared", "-fPIC", *defines, "-o", str(library), str(source)], check=True)
    driver = run_checks(PYTHON, environment={"LD_LIBRARY_PATH": str(tmp_path)}, only=["driver"]).checks[0]
    assert (driver.name, driver.status, driver.cause) == ("driver", status, cause)
    assert text in driver.detail


@pytest.mark.parametrize(
    ("hidden", "error"),
    [("", SkipTest), ("-1", SkipTest), ("-1,0", SkipTest), ("0,-1", RuntimeError), ("99", RuntimeError)],
)
def test_a_card_that_is_hidden_is_none_to_be_used(
    monkeypatch: pytest.MonkeyPatch, hidden: str, error: type[Exception]
) -> None:
    monkeypatch.syspath_prepend(str(SHARED))
    script = load(str(BUILT_IN / "driver.py"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
    monkeypatch.setattr(script, "nvidia_card", lambda: "/dev/nvidia0")
    assert isinstance(script.no_gpu("cuInit failed"), error)


@pytest.mark.skipif(HAS_GPU, reason="has a GPU")
@pytest.mark.parametrize(
    ("torch", "status", "words"),
    [
        ("__version__ = '9.9'\nclass version: cuda = '13.0'\n", "skip", "lists no GPU for it to see"),
        ("__version__ = '9.9'\nclass version: cuda = None\n", "pass", "CPU only, imports"),
        ("raise ImportError('libcudart.so.13: cannot open shared object file')", "fail", "libcudart.so.13"),
    ],
)
def test_importing_torch_without_a_gpu(tmp_path: Path, torch: str, status: str, words: str) -> None:
    (tmp_path / "torch.py").write_text(torch)
    checks = run_checks(PYTHON, environment={"PYTHONPATH": str(tmp_path)}, only=["torch-import"]).checks
    (check,) = (check for check in checks if check.name == "torch-import")
    assert check.status == status
    assert words in check.detail


def with_packages(folder: Path, *requirements: str) -> Path:
    """Make an environment with real packages."""
    uv = Path(sys.executable).with_name("uv")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("UV_", "PIP_", "VIRTUAL_ENV"))}
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, folder], check=True, env=clean)
    python = folder / "bin" / "python"
    settings = ["--quiet", "--python", str(python), "--index-url", DEFAULT_INDEX]
    subprocess.run([str(uv), "pip", "install", *settings, *requirements], check=True, env=clean)
    return python


@pytest.mark.network
@pytest.mark.skipif(sys.platform != "linux", reason="Triton has wheels for Linux alone")
@pytest.mark.parametrize(
    ("version", "knows", "lacks"),
    [
        ("3.2.0", ["7.5", "9.0"], ["10.0", "12.1"]),
        ("3.3.1", ["9.0", "10.0", "12.0"], ["12.1"]),
        ("3.5.1", ["7.5", "9.0", "12.0"], ["10.3", "12.1"]),
        ("3.6.0", ["7.5", "9.0", "10.3", "12.1"], []),
        ("3.9.0", ["7.5", "9.0", "12.0", "12.1"], []),
    ],
)
def test_real_tritons_compile_for_the_cards_that_their_ptxas_knows(
    tmp_path: Path, version: str, knows: list[str], lacks: list[str]
) -> None:
    python = with_packages(tmp_path / "e", f"triton=={version}", "setuptools")
    cards = [ComputeCapability.parse(text) for text in [*knows, *lacks, "6.1"]]
    report = run_compile_checks(python, cards, only=["triton-compile"])
    assert [check.gpu for check in report.checks if check.status == "pass"] == knows
    failed = {check.gpu: check.cause for check in report.checks if check.status == "fail"}
    assert failed == {**dict.fromkeys(lacks, "triton-ptxas-lacks-arch"), "6.1": "triton-gpu-unsupported"}


@pytest.mark.network
@pytest.mark.skipif(sys.platform != "linux", reason="Triton has wheels for Linux alone")
def test_a_plans_variable_makes_an_older_triton_compile_for_a_newer_card(tmp_path: Path) -> None:
    older = with_packages(tmp_path / "older", "triton==3.5.1")
    with_packages(tmp_path / "newer", "triton==3.6.0")
    (ptxas,) = (tmp_path / "newer").glob("lib/python*/site-packages/triton/backends/nvidia/bin/ptxas-blackwell")
    settings = {"TRITON_PTXAS_PATH": str(ptxas)}
    cards = [ComputeCapability(12, 1)]
    report = run_compile_checks(older, cards, environment=settings, only=["triton-compile"])
    assert report.passed
    assert "ptxas-blackwell 12.9" in report.checks[0].detail


@pytest.mark.network
@pytest.mark.skipif(sys.platform != "linux", reason="Triton has wheels for Linux alone")
def test_a_real_triton_that_passes_over_the_ptxas_that_is_named(tmp_path: Path) -> None:
    python = with_packages(tmp_path / "e", "triton==3.5.1")
    environment = {"TRITON_PTXAS_PATH": "/no/such/ptxas"}
    cards = [ComputeCapability(9, 0)]
    (check,) = run_compile_checks(python, cards, environment=environment, only=["triton-compile"]).checks
    assert check.status == "pass"
    assert "TRITON_PTXAS_PATH=/no/such/ptxas had no effect: Triton ran " in check.detail


@pytest.fixture(scope="module")
def compilers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Triton, NVRTC and a whole nvcc."""
    wheels = [f"nvidia-{part}==13.0.*" for part in ("cuda-nvrtc", "cuda-nvcc", "cuda-crt", "nvvm", "cuda-runtime")]
    return with_packages(tmp_path_factory.mktemp("compilers") / "e", "triton==3.6.0", *wheels)


@pytest.mark.network
@pytest.mark.skipif(sys.platform != "linux", reason="Triton has wheels for Linux alone")
@pytest.mark.parametrize(("name", "old", "new", "words", "cause"), COMPILING)
def test_a_broken_compiling_check_fails(
    tmp_path: Path, compilers: Path, name: str, old: str, new: str, words: str, cause: str | None
) -> None:
    path = file_of(name)
    shutil.copy(path, tmp_path)
    (sound,) = run_compile_checks(compilers, [ComputeCapability(9, 0)], folder=tmp_path, only=[name]).checks
    if name == "torch-extension" and sound.status == "skip":
        pytest.skip(sound.detail)  # torch and its libraries take 3 GB
    assert sound.status == "pass", sound.detail
    (tmp_path / path.name).write_text(path.read_text().replace(old, new))
    (check,) = run_compile_checks(compilers, [ComputeCapability(9, 0)], folder=tmp_path, only=[name]).checks
    assert (check.status, check.cause) == ("fail", cause), check.detail
    assert words in check.detail

"""Fast paths, rates and long runs: how they are declared, judged and shown. What runs on a GPU is in test_gpu.py."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from envsolve.errors import UsageError
from envsolve.facts.catalogue import Catalogue
from envsolve.facts.files import PEAKS
from envsolve.verify.measure import judged, measure
from envsolve.verify.page import page
from envsolve.verify.report import Check, Report, again, describe
from envsolve.verify.scripts import BUILT_IN, find_scripts
from tests.verify.test_command import ended

HAS_GPU = any(Path("/dev").glob("nvidia[0-9]*"))
RATES = {name: peak for peak in Catalogue().records(PEAKS) for name in peak.names}
SOUND = {"bf16_tflops": "788.0", "fp8_tflops": "1400.0", "memory_gbs": "4300.0", "pcie_gbs": "50.0"}


def benched(seen: Mapping[str, str], gpu: str = "0: NVIDIA H200 (cc 9.0)") -> Check:
    return judged(Check("bench", gpu, "pass", 9.0, "rates", seen=seen), RATES)


@pytest.mark.parametrize("name", ["fast_paths", "measures"])
def test_the_scripts_declare_themselves_and_stand_alone(name: str) -> None:
    scripts = find_scripts(BUILT_IN.with_name(name))
    assert {script.runs_on for script in scripts} == {"gpu"}
    names = [script.name for script in scripts]
    assert len(names) == len(set(names)) == {"fast_paths": 34, "measures": 2}[name]
    assert all("envsolve" not in script.path.read_text() for script in scripts)


def test_rates_of_a_sound_gpu() -> None:
    check = benched(SOUND)
    assert check.detail.splitlines() == [
        "rates; compared with the documented rates: bf16 80% of 989.5 TFLOP/s, fp8 71% of 1979 TFLOP/s, "
        "memory 90% of 4800 GB/s"
    ]
    assert check.expected["memory_gbs"] == "4800 GB/s documented"


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({}, "nvidia-smi shows no reason"),
        ({"power.limit": "300", "power.default_limit": "700"}, "the power limit is 300 W instead of 700 W"),
        ({"clocks_event_reasons.sw_thermal_slowdown": "Active", "temperature.gpu": "92"}, "it is hot (92 °C)"),
        ({"clocks_event_reasons.hw_slowdown": "Active"}, "lowered by the hardware"),
        ({"pcie.link.width.current": "4", "pcie.link.width.max": "16"}, "PCIe runs with 4 of 16 lanes"),
        ({"mig.mode.current": "Enabled"}, "MIG divides it"),
    ],
)
def test_a_slow_gpu_is_warned_of_with_the_reason(state: Mapping[str, str], words: str) -> None:
    warning = benched({**SOUND, "bf16_tflops": "250.0", **state}).detail.splitlines()[1]
    assert warning.startswith("warning: bf16 far below what such GPUs reach: ")
    assert words in warning


def test_a_gpu_without_documented_rates_is_not_judged() -> None:
    check = benched(SOUND, "0: NVIDIA H100 CNX (cc 9.0)")
    assert check.detail == "rates; the catalogue has no documented rates of this GPU"


PATHS = Report(
    python="/e/bin/python",
    kind="fast-paths",
    checks=(
        Check("driver", None, "pass", 0.1, "CUDA 13.0 driver"),
        Check("bf16-matmul", "0: H200 (cc 9.0)", "pass", 5.0, "exact; 788 TFLOP/s", seen={"kernel": "nvjet_tst"}),
        Check("nvfp4-matmul", "0: H200 (cc 9.0)", "skip", 3.0, "NVFP4 needs compute capability 10.0 or newer"),
        Check("sdpa-flash", "0: H200 (cc 9.0)", "fail", 3.0, "ArithmeticError: wrong"),
    ),
)


def test_fast_paths_as_a_table() -> None:
    lines = describe(PATHS).splitlines()
    assert lines[1:3] == [
        "yes   bf16-matmul                exact; 788 TFLOP/s [nvjet_tst]",
        "no    nvfp4-matmul               NVFP4 needs compute capability 10.0 or newer",
    ]
    assert lines[3].startswith("fail  sdpa-flash")
    assert "repeat: envsolve verify --python /e/bin/python --fast-paths --only sdpa-flash" in describe(PATHS)
    assert "nvfp4-matmul" in page(PATHS)


@pytest.mark.parametrize(("kind", "option"), [("bench", "--bench"), ("soak", "--minutes 1")])
def test_a_measure_is_repeated_by_its_option(kind: str, option: str) -> None:
    assert again(PATHS.checks[1], replace(PATHS, kind=kind)).endswith(option)  # type: ignore[arg-type]


def test_a_warning_is_shown_though_the_check_passed() -> None:
    check = benched({**SOUND, "bf16_tflops": "250.0"})
    assert "warning: bf16 far below" in describe(Report(kind="bench", checks=(check,)))


@pytest.mark.skipif(HAS_GPU, reason="has a GPU")
def test_without_a_gpu_nothing_is_measured() -> None:
    report = measure(sys.executable, "fast-paths", only=["bf16-matmul"])
    assert [(check.name, check.status) for check in report.checks] == [("driver", "skip"), ("bf16-matmul", "skip")]
    assert not report.passed


def test_what_is_no_time_or_no_path() -> None:
    with pytest.raises(UsageError, match="not a positive number of minutes: 0"):
        measure(sys.executable, "soak", minutes=0)
    with pytest.raises(UsageError, match="there is no check nothing"):
        measure(sys.executable, "fast-paths", only=["nothing"])


@pytest.mark.parametrize(
    "options",
    [
        ["--fast-paths", "--bench"],
        ["--bench", "--minutes", "1"],
        ["--fast-paths", "--quick"],
        ["--bench", "--only", "driver"],
        ["--bench", "--hashes"],
        ["--fast-paths", "--compile-only", "--gpu", "9.0"],
    ],
)
def test_measures_are_runs_of_their_own(options: list[str]) -> None:
    assert ended("verify", "--python", sys.executable, *options) == 2

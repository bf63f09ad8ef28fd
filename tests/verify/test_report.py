"""The report as JSON and as text, and the causes read out of error texts."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from envsolve.diagnose.signatures import cause_of
from envsolve.system.files import dump
from envsolve.verify.report import Check, Report, Status, again, describe

FAILED = Check(
    "triton-compile", "12.1", "fail", 0.71, "PTXASError: no\nfatal: sm_121a", "triton-ptxas-lacks-arch", "py x"
)


def check(status: Status) -> Check:
    return Check("c", None, status, 0.1, "d")


def test_packages_as_planned_prove_nothing_of_what_they_do() -> None:
    report = Report(checks=(replace(check("pass"), name="plan"), check("skip")))
    assert not report.passed
    assert "no GPU check could run" in describe(report)


def test_a_raw_error_does_nothing_to_the_terminal() -> None:
    text = describe(Report(checks=(Check("c", None, "fail", 0.1, "\x1b[2Jgone\r\x07 \udcff\tand é\x9b"),)))
    assert r"\x1b[2Jgone" in text
    assert r"\x07 \udcff" "\tand é" r"\x9b" in text


@pytest.mark.parametrize(
    ("name", "gpu", "expected", "words"),
    [
        ("loader", None, {}, "--compile-only --only loader"),
        ("nvrtc", "9.0", {}, "--compile-only --gpu 9.0 --only nvrtc"),
        ("nvrtc", "0: H100 (cc 9.0)", {}, "--only nvrtc"),
        ("torch-code", "0: H100 (cc 9.0)", {"code": "x"}, "--plan plan.json --only torch-code"),
        ("plan", None, {}, "--plan plan.json --only driver"),
    ],
)
def test_the_command_that_repeats_a_check(name: str, gpu: str | None, expected: dict[str, str], words: str) -> None:
    failed = Check(name, gpu, "fail", 1.0, "", expected=expected)
    assert again(failed, Report(python="/e", plan="plan.json")) == f"envsolve verify --python /e {words}"


@pytest.mark.parametrize(
    ("states", "passed", "failed"),
    [
        ((), False, False),
        (("skip",), False, False),
        (("pass",), True, False),
        (("pass", "skip"), True, False),
        (("pass", "fail"), False, True),
        (("skip", "fail"), False, True),
    ],
)
def test_what_counts_as_passed(states: tuple[Status, ...], passed: bool, failed: bool) -> None:
    report = Report(checks=tuple(map(check, states)))
    assert (report.passed, report.failed) == (passed, failed)


def test_json() -> None:
    assert json.loads(dump(Report(python="/e/bin/python", checks=(FAILED,)))) == {
        "schema": "envsolve.checks/1",
        "python": "/e/bin/python",
        "checks": [
            {
                "name": "triton-compile",
                "gpu": "12.1",
                "status": "fail",
                "seconds": 0.71,
                "detail": "PTXASError: no\nfatal: sm_121a",
                "cause": "triton-ptxas-lacks-arch",
                "command": "py x",
                "seen": {},
                "expected": {},
                "imports": None,
            }
        ],
        "made": None,
        "seconds": None,
        "machine": None,
        "versions": {},
        "plan": None,
        "changes": None,
        "kind": "checks",
    }


def test_a_failure_is_told_with_its_whole_error_and_how_to_repeat_it() -> None:
    assert describe(Report(python="/e/bin/python", checks=(FAILED, check("pass")))).splitlines() == [
        "fail  triton-compile [12.1] 0.7 s: PTXASError: no",
        "      fatal: sm_121a",
        "      cause: triton-ptxas-lacks-arch",
        "      repeat: envsolve verify --python /e/bin/python --compile-only --gpu 12.1 --only triton-compile",
        "      its process: py x",
        "pass  c: d",
        "1 passed, 1 failed, 0 skipped",
    ]


def test_a_report_that_proves_nothing_says_so() -> None:
    assert "nothing could be checked" in describe(Report(checks=(check("skip"),)))
    assert "nothing is proved" not in describe(Report(checks=(check("skip"), check("pass"))))


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("ptxas-blackwell fatal   : Value 'sm_121a' is not defined for option 'gpu-name'", "triton-ptxas-lacks-arch"),
        ("ptxas fatal   : Unsupported .version 8.7; current version is '8.4'", "triton-ptxas-too-old"),
        (
            "cuModuleLoadDataEx failed: the provided PTX was compiled with an unsupported toolchain. (error 222)\n"
            "ptxas application ptx input, line 2; fatal   : Unsupported .version 9.1; current version is '9.0'",
            "ptx-newer-than-driver",
        ),
        (
            "cuInit failed: system has unsupported display driver / cuda driver combination (error 803)",
            "compat-libcuda",
        ),
        ("The NVIDIA driver on your system is too old (found version 12040).", "driver-too-old"),
        ("CUDA error: no kernel image is available for execution on the device", "no-kernel-for-gpu"),
        ("torch 2.14.1+cpu, CPU only: is a CPU build, and the driver lists 1 GPU(s)", "cpu-build"),
        ("CUDA error: device kernel image is invalid", "triton-ptxas-newer-than-driver"),
        ("libcuda.so.1 cannot be loaded: no such file", "no-driver"),
        ("cuInit failed: no CUDA-capable device is detected (error 100)", "no-driver"),
        ("torch.OutOfMemoryError: CUDA out of memory.", "out-of-memory"),
        ("Triton supports devices of compute capability 7.0 and newer, not 6.1", "triton-gpu-unsupported"),
        ("ArithmeticError: 3 of 7 values differ", None),
    ],
)
def test_causes(text: str, cause: str | None) -> None:
    assert cause_of(text) == cause

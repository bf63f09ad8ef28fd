"""What a plan expected against what was seen."""

from __future__ import annotations

from pathlib import Path

import pytest

from envsolve.errors import UsageError
from envsolve.jsontext import dump
from envsolve.plan import DriverNeed, Plan, Support
from envsolve.verify.expectations import Expected, held_against, read_expected
from envsolve.verify.report import Check, Report

GPU = "0: NVIDIA H100 80GB HBM3 (cc 9.0)"


def expected(level: str, mode: str | None = None, capability: str = "9.0") -> Expected:
    support = Support("torch", "H100", capability, level, "sm_90", "measured")  # type: ignore[arg-type]
    return Expected("cu130", (support,), DriverNeed("580.65.06", mode, None))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("level", "seen", "status"),
    [
        ("native", "sass", "pass"),
        ("family", "sass", "pass"),
        ("native", "ptx", "fail"),
        ("ptx", "ptx", "pass"),
        ("ptx", "sass", "fail"),
        ("unknown", "sass", "pass"),
    ],
)
def test_the_code_that_runs_is_the_one_expected(level: str, seen: str, status: str) -> None:
    report = Report(checks=(Check("torch-code", GPU, "pass", 1.0, "runs", seen={"code": seen}),))
    (check,) = held_against(report, expected(level)).checks
    assert check.status == status
    assert ("and the plan expects otherwise" in check.detail) == (status == "fail")
    assert held_against(report, expected(level, capability="8.0")) == report


@pytest.mark.parametrize(
    ("mode", "cuda", "status"),
    [("full", "13.0", "pass"), ("full", "13.2", "pass"), ("full", "12.8", "fail"), ("minor-version", "12.8", "pass")],
)
def test_the_driver_knows_as_much_as_expected(mode: str, cuda: str, status: str) -> None:
    report = Report(checks=(Check("driver", None, "pass", 1.0, "starts", seen={"cuda": cuda}),))
    (check,) = held_against(report, expected("native", mode)).checks
    assert check.status == status
    assert ("one that knows CUDA 13.0 in full" in check.detail) == (mode == "full")


def test_what_failed_stays_as_it_is() -> None:
    report = Report(
        checks=(Check("torch-code", GPU, "fail", 1.0, "no", seen={"code": "ptx"}), Check("c", None, "pass", 0, ""))
    )
    assert held_against(report, expected("native", "full")) == report


def test_a_plans_json_is_read(tmp_path: Path) -> None:
    wanted = expected("native", "full")
    path = tmp_path / "plan.json"
    path.write_text(dump(Plan(cuda=wanted.cuda, support=wanted.support, driver=wanted.driver)))
    assert read_expected(path) == wanted


@pytest.mark.parametrize("text", ["", "[]", '{"support": 5}'])
def test_what_is_no_plan(tmp_path: Path, text: str) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(UsageError, match="is no plan"):
        read_expected(path)

"""Real Tritons with a real ptxas out of a package: planned, installed, and compiled with, without a GPU."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

import pytest

import envsolve
from envsolve import Request

pytestmark = [
    pytest.mark.network,
    pytest.mark.skipif(sys.platform != "linux" or platform.machine() != "x86_64", reason="the wheels are for Linux"),
]


@pytest.mark.parametrize(
    ("triton", "target", "cc", "said"),
    [
        ("3.5.1", "GB10, driver 580.95.05", "12.1", "cubins for sm_121 by ptxas 12.9."),
        ("3.6.0", "Thor, driver 580.95.05", "11.0", "cubins for sm_110 by ptxas 13."),
        ("3.7.1", "RTX 5090, driver 570.86.10", "12.0", "cubins for sm_120 by ptxas 12.9."),
    ],
)
def test_triton_compiles_with_the_ptxas_of_the_plan(
    tmp_path: Path, triton: str, target: str, cc: str, said: str
) -> None:
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    machine = envsolve.describe_target(f"{target}, linux-x86_64, glibc 2.35, python {python}")
    plan = envsolve.plan(Request([f"triton=={triton}"]), [machine])
    assert plan.environment
    prefix = envsolve.install(plan, tmp_path / "env", machine=machine, check=False).prefix
    prefix.rename(tmp_path / "moved")
    report = envsolve.verify_compiles(tmp_path / "moved" / "bin" / "python", [cc])
    (check,) = (check for check in report.checks if check.name == "triton-compile")
    assert (check.status, said in check.detail) == ("pass", True), check.detail

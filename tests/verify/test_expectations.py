"""What a plan or a lock expects against what was seen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from envsolve.errors import UsageError
from envsolve.facts.catalogue import Catalogue
from envsolve.machine.model import Machine, Platform
from envsolve.planning.plan import DriverNeed, Plan, Support
from envsolve.solve.outcome import PlannedPackage
from envsolve.system.files import dump
from envsolve.toolchain.model import Toolchain
from envsolve.verify.expectations import Code, Expected, held_against, read_expected
from envsolve.verify.report import Check, Report

GPU = "0: NVIDIA H100 80GB HBM3 (cc 9.0)"
OWN = "/e/lib/python3.12/site-packages/triton/backends/nvidia/bin/ptxas"
OTHER = "/e/lib/python3.12/site-packages/nvidia/cu13/bin/ptxas"
HERE = Machine(platform=Platform("linux", "x86_64"))
MINOR = DriverNeed("580.65.06", "minor-version", None)
FULL = DriverNeed("580.65.06", "full", None)
COMPAT = DriverNeed("580.65.06", "forward-compat", None)
SASS = Expected(code={"9.0": Code("sass", "sm_90")})
PTX = Expected(code={"9.0": Code("ptx", "compute_80")})
BROUGHT = Expected(ptxas={"9.0": "12.8"})
NAMED = Expected(ptxas={"9.0": "12.8"}, environment={"TRITON_PTXAS_PATH": "{site_packages}/nvidia/cu13/bin/ptxas"})

#: What is expected, the check, what it saw, and how it ends: None where nothing is expected of it.
CASES: list[tuple[Expected, str, dict[str, str], bool | None]] = [
    (SASS, "torch-code", {"code": "sass"}, True),
    (SASS, "torch-code", {"code": "ptx"}, False),
    (PTX, "torch-code", {"code": "ptx"}, True),
    (PTX, "torch-code", {"code": "sass"}, False),
    (Expected(code={"8.0": Code("sass", "sm_80")}), "torch-code", {"code": "ptx"}, None),
    (Expected(cuda="cu130", driver=FULL), "driver", {"cuda": "13.0"}, True),
    (Expected(cuda="cu130", driver=FULL), "driver", {"cuda": "13.2"}, True),
    (Expected(cuda="cu130", driver=FULL), "driver", {"cuda": "12.8"}, False),
    (Expected(cuda="cu130", driver=MINOR), "driver", {"cuda": "12.8"}, None),
    (Expected(cuda="cpu", driver=None), "driver", {"cuda": "12.8"}, None),
    (Expected(driver=MINOR), "driver", {"kernel_driver": "580.95.05"}, True),
    (Expected(driver=MINOR), "driver", {"kernel_driver": "570.26"}, False),
    (Expected(driver=COMPAT), "driver", {"kernel_driver": "535.54.03"}, None),
    (Expected(driver=MINOR), "driver", {"mode": "native"}, True),
    (Expected(driver=FULL), "driver", {"mode": "compat"}, False),
    (Expected(driver=COMPAT), "driver", {"mode": "compat", "kernel_driver": "535.54.03"}, True),
    (Expected(driver=COMPAT), "driver", {"mode": "native", "kernel_driver": "535.54.03"}, False),
    (Expected(driver=COMPAT), "driver", {"mode": "native", "kernel_driver": "590.44.01"}, True),
    (Expected(driver=DriverNeed("580.65.06", None, None)), "driver", {"mode": "compat"}, None),
    (BROUGHT, "triton-kernel", {"ptxas": OWN, "ptxas_cuda": "12.8.93"}, True),
    (BROUGHT, "triton-dot", {"ptxas": "/usr/local/cuda/bin/ptxas", "ptxas_cuda": "12.8.93"}, False),
    (BROUGHT, "triton-kernel", {"ptxas": OWN, "ptxas_cuda": "13.0.88"}, False),
    (BROUGHT, "torch-compile", {"ptxas": "/e/torch/bin/ptxas", "ptxas_cuda": "11.8.89"}, None),
    (Expected(ptxas={"8.0": "12.8"}), "triton-kernel", {"ptxas": OTHER, "ptxas_cuda": "13.0.88"}, None),
    (NAMED, "triton-kernel", {"ptxas": OTHER, "ptxas_cuda": "13.0.88"}, True),
    (NAMED, "triton-kernel", {"ptxas": OWN, "ptxas_cuda": "12.8.93"}, False),
    (Expected(environment={"TRITON_PTXAS_PATH": "/x/ptxas"}), "triton-kernel", {"ptxas": "/x/ptxas"}, True),
    (Expected(environment={"TRITON_PTXAS_PATH": "/x/ptxas"}), "triton-kernel", {"ptxas": "/y/ptxas"}, False),
    (Expected(nvcc="13.0"), "torch-extension", {"nvcc_cuda": "13.0.88"}, True),
    (Expected(nvcc="13.0"), "nvcc", {"nvcc_cuda": "12.8.93"}, False),
    (Expected(environment={"CUDA_HOME": "/opt/cuda"}), "torch-extension", {"cuda_home": "/opt/cuda"}, True),
    (Expected(environment={"CUDA_HOME": "/opt/cuda"}), "torch-extension", {"cuda_home": "/usr/local/cuda"}, False),
    (Expected(), "torch-extension", {"cuda_home": "/opt/cuda", "nvcc_cuda": "12.8.93"}, None),
]


@pytest.mark.parametrize(("expected", "name", "seen", "met"), CASES)
def test_a_surprise_fails_and_what_was_expected_passes(
    expected: Expected, name: str, seen: dict[str, str], met: bool | None
) -> None:
    before = Check(name, None if name == "driver" else GPU, "pass", 1.0, "all values are right", seen=seen)
    (check,) = held_against(Report(checks=(before,)), expected).checks
    if met is None:
        assert check == before
        return
    assert check.status == ("pass" if met else "fail")
    assert ("but the plan expects" in check.detail) == (not met)
    assert "all values are right" in check.detail
    assert set(check.expected) <= set(seen)
    assert check.expected


def test_a_check_that_compiles_for_a_card_is_held_too() -> None:
    before = Check("triton-compile", "9.0", "pass", 1.0, "", seen={"ptxas": OWN, "ptxas_cuda": "13.0.88"})
    (check,) = held_against(Report(checks=(before,)), BROUGHT).checks
    assert check.status == "fail"
    assert check.detail == "its CUDA is 13.0.88, but the plan expects CUDA 12.8\n"


def test_what_failed_stays_failed_and_shows_both_sides() -> None:
    before = Check("torch-code", GPU, "fail", 1.0, "no", seen={"code": "sass"})
    (check,) = held_against(Report(checks=(before,)), SASS).checks
    assert (check.status, check.detail, check.expected) == ("fail", "no", {"code": "machine code (sm_90)"})


PLANNED = Expected(versions={"torch": ("2.11.0",), "numpy": ("2.4.0",)})


@pytest.mark.parametrize(
    ("expected", "versions", "words"),
    [
        (PLANNED, {"torch": "2.11.0", "numpy": "2.4.0", "more": "1"}, None),
        (PLANNED, {"torch": "2.11.0+cu130", "numpy": "2.4.0"}, None),
        (PLANNED, {"torch": "2.10.0", "numpy": "2.4.0"}, "torch 2.11.0 is planned, and 2.10.0 is installed"),
        (PLANNED, {"torch": "2.11.0"}, "numpy 2.4.0 is planned and not installed"),
        (Expected(versions={"torch": ("2.11.0+cu126",)}), {"torch": "2.11.0"}, "torch 2.11.0+cu126 is planned"),
        (Expected(versions={"a": ("1", "2")}), {"a": "2"}, None),
        (Expected(versions={"a": ("1",)}, optional=frozenset({"a"})), {"b": "2"}, None),
    ],
)
def test_packages_are_those_of_the_plan(expected: Expected, versions: dict[str, str], words: str | None) -> None:
    (check,) = held_against(Report(versions=versions), expected).checks
    assert (check.name, check.status) == ("plan", "fail" if words else "pass")
    assert (words or "planned packages are there") in check.detail


def planned(name: str, version: str) -> PlannedPackage:
    return PlannedPackage(name, version, None, None, None, None, {}, "wheel")


def test_a_plans_json_is_read(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    plan = Plan(
        cuda="cu130",
        packages=(planned("torch", "2.11.0"), planned("triton", "3.6.0")),
        support=tuple(Support("torch", "x", card, "native", "sm_90", "measured") for card in ("9.0", "10.0")),
        driver=FULL,
        environment={"CUDA_HOME": "/opt/cuda"},
        toolchain=Toolchain("13.0", "gcc 13", "9.0"),
    )
    path.write_text(dump(plan))
    assert read_expected(path, HERE, Catalogue()) == Expected(
        source=str(path),
        cuda="cu130",
        code=dict.fromkeys(("9.0", "10.0"), Code("sass", "sm_90")),
        driver=FULL,
        ptxas={"9.0": "12.8", "10.0": "12.9"},
        environment={"CUDA_HOME": "/opt/cuda"},
        nvcc="13.0",
        versions={"torch": ("2.11.0",), "triton": ("3.6.0",)},
    )


LOCK = """
lock-version = "1.0"
created-by = "envsolve"
{packages}
[tool.envsolve]
schema = "envsolve.lock/1"
python = "3.12"
os = "linux"
arch = "x86_64"
driver_required = "580.65.06"
cuda = "cu130"
gpus = ["8.6", "9.0"]
{more}
"""
PACKAGE = """
[[packages]]
name = "{name}"
version = "{version}"
[[packages.wheels]]
name = "{name}-{version}-py3-none-any.whl"
url = "https://example.org/{name}-{version}-py3-none-any.whl"
hashes = {{sha256 = "00"}}
"""


def lock(folder: Path, more: str = "", **versions: str) -> Path:
    path = folder / "pylock.toml"
    packages = "".join(PACKAGE.format(name=name, version=version) for name, version in versions.items())
    path.write_text(LOCK.format(packages=packages, more=more))
    return path


def test_a_lock_is_read_and_what_it_does_not_say_is_what_was_measured(tmp_path: Path) -> None:
    path = lock(tmp_path, torch="2.11.0", triton="3.6.0")
    assert read_expected(path, HERE, Catalogue()) == Expected(
        source=str(path),
        cuda="cu130",
        code={"8.6": Code("sass", "sm_86"), "9.0": Code("sass", "sm_90")},
        driver=DriverNeed("580.65.06", None, None),
        ptxas={"8.6": "12.8", "9.0": "12.8"},
        versions={"torch": ("2.11.0",), "triton": ("3.6.0",)},
    )


def test_a_lock_that_counts_on_cuda_compat(tmp_path: Path) -> None:
    read = read_expected(lock(tmp_path, 'compat_libcuda = "13.0"', torch="2.11.0"), HERE, Catalogue())
    assert read.driver == COMPAT


def test_a_lock_of_a_torch_that_is_not_known(tmp_path: Path) -> None:
    assert read_expected(lock(tmp_path, torch="99.0"), HERE, Catalogue()).code == {}


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"support": 5}', '{"schema": "envsolve.checks/1"}'])
def test_what_is_no_plan(tmp_path: Path, text: str) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(UsageError, match="is not a plan"):
        read_expected(path, HERE, Catalogue())


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("plan.json", dump(Plan(status="impossible")), "is impossible"),
        ("pylock.toml", 'lock-version = "1.0"\ncreated-by = "x"\npackages = []', "has no .tool.envsolve. table"),
        ("pylock.toml", "[", "is not TOML"),
    ],
)
def test_what_expects_nothing(tmp_path: Path, name: str, content: str, words: str) -> None:
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(UsageError, match=words):
        read_expected(path, HERE, Catalogue())


def test_every_expectation_has_a_case() -> None:
    from envsolve.verify.expectations import _RULES

    seen: set[Any] = {name for _, _, case, met in CASES if met is False for name in case}
    assert set(_RULES) <= seen

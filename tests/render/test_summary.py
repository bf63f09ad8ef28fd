from __future__ import annotations

import datetime
from dataclasses import replace

import pytest

from envsolve.machine.model import Driver, Gpu, Machine
from envsolve.plan import DriverNeed, Plan, Support, Toolchain
from envsolve.render import render
from envsolve.render._words import describe, driver_sentence
from envsolve.render.summary import render as summary
from tests.render.plans import FILELOCK, GOOD, IMPOSSIBLE, RTX_4090

DAY = datetime.date(2026, 12, 9)


def test_a_good_plan() -> None:
    assert (
        summary(GOOD, today=DAY)
        == """\
For       2x NVIDIA GeForce RTX 4090 (cc 8.9), driver 550.54.15, linux x86_64, glibc 2.35, Python 3.12
Asked     torch>=2.4
Flavour   cu126: family, code of the GPU's own family
Driver    550.54.15 is older than this CUDA: it runs machine code of it (minor-version compatibility), no PTX; \
525.60.13 or newer is needed

Package  Version      Flavour  NVIDIA GeForce RTX 4090 (cc 8.9)
torch    2.9.0+cu126  cu126    family sm_86 (measured)
triton   3.5.0        cu126    native sm_89 (measured)
and 1 other package

Warning   extensions that ship PTX alone will not run [no-ptx]
          update the driver to 560.28 or newer

Set where it runs: TRITON_PTXAS_PATH=/usr/local/cuda/bin/ptxas

Facts     of 2026-11-27, 12 days ago
Next      the same command with --format pylock -o pylock.toml, then:
          envsolve install pylock.toml --prefix DIR
"""
    )


def test_an_impossible_plan() -> None:
    assert (
        summary(IMPOSSIBLE, today=DAY)
        == """\
For       2x NVIDIA GeForce RTX 4090 (cc 8.9), driver 550.54.15, linux x86_64, glibc 2.35, Python 3.12
Asked     torch==2.9.*, flash-attn==1.0

Nothing fits
  because flash-attn 1.0 needs torch<2.1 [requirement]
  because torch==2.9.* is asked for

What would make it fit, cheapest first
  1. ask for flash-attn>=2.8: torch 2.9.0 with cu126

Facts     of 2026-11-27, 12 days ago
"""
    )


def test_a_plan_without_gpu_code() -> None:
    assert (
        summary(Plan(requirements=("filelock",), packages=(FILELOCK,)), today=DAY)
        == """\
Asked     filelock

1 package

Next      the same command with --format pylock -o pylock.toml, then:
          envsolve install pylock.toml --prefix DIR
"""
    )


def test_two_machines_an_unknown_level_and_a_toolchain() -> None:
    h100 = Machine(driver=Driver(version="580.95"), gpus=(Gpu("NVIDIA H100", "9.0"),))
    plan = replace(
        GOOD,
        status="unknown",
        machines=(RTX_4090, h100),
        support=(*GOOD.support, Support("torch", "NVIDIA H100", "9.0", "unknown", None, None)),
        toolchain=Toolchain("12.6", "gcc 13", "8.9;9.0"),
    )
    lines = summary(plan, today=DAY).splitlines()
    assert lines[1] == "For       NVIDIA H100 (cc 9.0), driver 580.95"
    assert "Status    unknown: something that decides is not known, see below" in lines
    assert "Flavour   cu126: unknown, not known whether there is code for the GPU" in lines
    assert "Build     nvcc 12.6, host compiler gcc 13, TORCH_CUDA_ARCH_LIST 8.9;9.0" in lines
    assert "Package  Version      Flavour  NVIDIA GeForce RTX 4090 (cc 8.9)  NVIDIA H100 (cc 9.0)" in lines
    assert "torch    2.9.0+cu126  cu126    family sm_86 (measured)           unknown" in lines
    assert "triton   3.5.0        cu126    native sm_89 (measured)           -" in lines


@pytest.mark.parametrize(
    ("date", "age"), [("2026-12-09", "today"), ("2026-12-08", "1 day ago"), ("2026-12-10", "today")]
)
def test_age_of_the_facts(date: str, age: str) -> None:
    assert f"Facts     of {date}, {age}\n" in summary(replace(GOOD, catalogue_date=date), today=DAY)


def test_the_real_day_is_the_default() -> None:
    day = datetime.date.today().isoformat()
    assert f"of {day}, " in render(replace(GOOD, catalogue_date=day), "summary")


@pytest.mark.parametrize(
    ("need", "sentence"),
    [
        (DriverNeed(None, None, None), "the plan needs no NVIDIA driver"),
        (DriverNeed("580.65.06", None, None), "580.65.06 or newer is needed; the machine's is not known"),
        (DriverNeed("580.65.06", "full", "580.95"), "580.95 runs this CUDA in full; 580.65.06 or newer is needed"),
        (
            DriverNeed("580.65.06", "forward-compat", "535.104"),
            "535.104 runs this CUDA through the cuda-compat libraries (forward compatibility); "
            "580.65.06 or newer is needed",
        ),
    ],
)
def test_driver_sentences(need: DriverNeed, sentence: str) -> None:
    assert driver_sentence(need) == sentence


@pytest.mark.parametrize(
    ("machine", "words"),
    [
        (Machine(), "GPUs unknown"),
        (Machine(gpus=()), "no GPU"),
        (Machine(gpus=(Gpu("A", "8.0"), Gpu("B", "9.0"), Gpu("A", "8.0"))), "2x A (cc 8.0) + B (cc 9.0)"),
    ],
)
def test_machines_in_words(machine: Machine, words: str) -> None:
    assert describe(machine) == words

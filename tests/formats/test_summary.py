from __future__ import annotations

import datetime
from typing import Literal

import pytest
from msgspec.structs import replace

from envsolve.formats import render
from envsolve.formats._packages import driver_sentence, in_a_line, variant_sentence
from envsolve.formats.summary import render as summary
from envsolve.machine.model import Driver, Gpu, Machine
from envsolve.planning.plan import DriverNeed, Plan, Support
from envsolve.rules.verdict import FastPath
from envsolve.solve.outcome import Fix, PlanWarning
from envsolve.toolchain.model import Toolchain
from tests.formats.plans import CU126, FILELOCK, GOOD, IMPOSSIBLE, RTX_4090, TORCH

DAY = datetime.date(2026, 12, 9)


def test_a_good_plan() -> None:
    assert (
        summary(GOOD, today=DAY)
        == """\
For       2x NVIDIA GeForce RTX 4090 (cc 8.9), driver 550.54.15, linux x86_64, glibc 2.35
Python    3.12
Request   torch>=2.4
Variant   cu126: family, compiled for an older GPU of the same architecture family, and runs unchanged
Driver    550.54.15 runs CUDA 12.6 builds through minor-version compatibility (machine code, no PTX); \
needs 525.60.13 or newer

Package  Version      Variant  NVIDIA GeForce RTX 4090 (cc 8.9)
torch    2.9.0+cu126  cu126    family sm_86 (measured)
triton   3.5.0        cu126    native sm_89 (measured)
and 1 other package

Warning   extensions that ship PTX alone will not run [no-ptx]
          update the driver to 560.28 or newer

Set at run time: TRITON_PTXAS_PATH={site_packages}/nvidia/cu13/bin/ptxas

Facts     of 2026-11-27, 12 days ago
Next      save this plan with -o pylock.toml, then:
          envsolve install pylock.toml --prefix DIR
"""
    )


def test_the_next_step_is_the_command_that_was_given() -> None:
    shown = summary(GOOD, today=DAY, command=["envsolve", "plan", "torch>=2.4", "--gpu", "RTX 4090"])
    assert "Next      envsolve plan 'torch>=2.4' --gpu 'RTX 4090' -o pylock.toml\n" in shown
    assert shown.endswith("          envsolve install pylock.toml --prefix .venv\n")


def test_a_short_line_for_pip_is_shown_if_pip_does_what_the_plan_says() -> None:
    def short(plan: Plan) -> str:
        return summary(plan, today=DAY).partition("\nOr        ")[2].strip()

    good = replace(GOOD, environment={}, requirements=("torch[opt]>=2.4",), packages=(TORCH, FILELOCK))
    assert short(good) == (
        f"pip install 'torch[opt]==2.9.0+cu126' --index-url https://mirror.example/simple/ --extra-index-url {CU126}"
    )
    assert short(replace(good, environment={"TRITON_PTXAS_PATH": "x"})) == ""
    assert short(replace(good, requirements=("torch", "foo @ https://example.org/foo-1.tar.gz"))) == ""
    # pip would take the other index's torch of that version.
    assert short(replace(good, packages=(replace(TORCH, version="2.9.0"), FILELOCK))) == ""
    numpy = replace(FILELOCK, name="numpy", version="1.26.4")
    assert short(replace(good, packages=(TORCH, FILELOCK, numpy))).startswith(
        "pip install 'torch[opt]==2.9.0+cu126' numpy==1"
    )


def test_verbose_says_why_each_package_is_there() -> None:
    filelock = replace(FILELOCK, why=("torch 2.9.0 [cu126] needs filelock",))
    shown = summary(replace(GOOD, packages=(TORCH, filelock)), today=DAY, sources=True)
    assert shown.partition("\nfilelock ")[2].partition("\n")[0].endswith(" torch 2.9.0 [cu126] needs filelock")


def test_verbose_says_which_fast_kernels_the_wheels_have() -> None:
    paths = (
        FastPath("torch", "H100 (cc 9.0)", "flash attention", "sm_90", ("sm_80", "sm_90")),
        FastPath("torch", "H100 (cc 9.0)", "grouped MXFP8", None, ("sm_100a",)),
        FastPath("torch", "T4 (cc 7.5)", "grouped MXFP8", None, ("sm_100a",)),
    )
    shown = summary(replace(GOOD, fast_paths=paths), today=DAY, sources=True)
    hopper, turing = shown.partition("\nKernels   ")[2].splitlines()[:2]
    assert hopper == "torch on H100 (cc 9.0) has flash attention sm_90; lacks grouped MXFP8"
    assert turing == "          torch on T4 (cc 7.5) lacks grouped MXFP8"
    assert "Kernels" not in summary(replace(GOOD, fast_paths=paths), today=DAY)


def test_a_toolchain_that_nothing_of_the_plan_needs_is_not_shown() -> None:
    assert "Build " not in summary(replace(GOOD, toolchain=Toolchain("12.6", "gcc 13", "8.9")), today=DAY)


def test_what_was_asked_for_is_always_in_the_table() -> None:
    asked = replace(GOOD, requirements=("torch", "filelock"))
    assert "\nfilelock " in summary(asked, today=DAY)
    assert "other package" not in summary(GOOD, today=DAY, sources=True)


def test_an_impossible_plan() -> None:
    assert (
        summary(IMPOSSIBLE, today=DAY)
        == """\
For       2x NVIDIA GeForce RTX 4090 (cc 8.9), driver 550.54.15, linux x86_64, glibc 2.35
Python    3.12
Request   torch==2.9.*, flash-attn==1.0

Nothing fits
  because flash-attn 1.0 needs torch<2.1
  because torch==2.9.* is asked for

What would make it fit
  1. request flash-attn>=2.8: torch 2.9.0 with cu126

Facts     of 2026-11-27, 12 days ago
"""
    )


def test_sources_stand_under_their_facts_where_they_are_asked_for() -> None:
    assert (
        "  because flash-attn 1.0 needs torch<2.1\n          (source: requirement)\n  because torch==2.9.*"
        in summary(IMPOSSIBLE, today=DAY, sources=True)
    )


def test_remedies_are_ranked_where_there_are_several_and_need_not_say_what_they_unlock() -> None:
    plan = replace(IMPOSSIBLE, remedies=(Fix("request less", unlocks="torch 2.8"), Fix("request nothing")))
    lines = summary(plan, today=DAY).splitlines()
    at = lines.index("What would make it fit, cheapest first")
    assert lines[at + 1 : at + 3] == ["  1. request less: torch 2.8", "  2. request nothing"]


def test_what_cannot_be_locked_is_not_said_to_be_next() -> None:
    unseen = replace(TORCH, hashes={}, evidence="measured")
    plan = replace(GOOD, packages=(FILELOCK, unseen), warnings=(PlanWarning("index-unreachable", "no answer"),))
    text = summary(plan, today=DAY)
    assert (
        f"Next      this plan cannot be locked: {CU126} cannot be reached, "
        "and the catalogue has no sha256 of torch 2.9.0+cu126\n          run the same command on a machine" in text
    )
    assert "envsolve install" not in text


@pytest.mark.parametrize(
    ("gpus", "status", "sentence"),
    [
        ([(Gpu("A", "8.0"),)], "ok", "cpu: as requested"),
        ([(Gpu("A", "8.0"),), ()], "ok", "cpu: as requested"),
        ([()], "ok", "cpu: the machine has no NVIDIA GPU"),
        ([(), ()], "ok", "cpu: the machines have no NVIDIA GPU"),
        ([None], "ok", "cpu: as requested"),
        ([None], "unknown", "cpu: whether the machine has an NVIDIA GPU is not known"),
    ],
)
def test_why_a_plan_is_without_cuda(
    gpus: list[tuple[Gpu, ...] | None], status: Literal["ok", "unknown"], sentence: str
) -> None:
    machines = tuple(Machine(gpus=found) for found in gpus)
    assert variant_sentence(Plan(status=status, machines=machines, cuda="cpu")) == sentence


def test_cuda_builds_of_which_no_code_is_known() -> None:
    assert variant_sentence(replace(GOOD, support=())) == "cu126: the GPU code in its builds is not known"


@pytest.mark.parametrize(
    ("plan", "line"),
    [
        (GOOD, "chosen: cu126, torch 2.9.0+cu126, 3 packages"),
        (Plan(packages=(FILELOCK,)), "chosen: 1 package"),
        (IMPOSSIBLE, "nothing fits; because flash-attn 1.0 needs torch<2.1; because torch==2.9.* is asked for"),
    ],
)
def test_a_plan_in_a_line(plan: Plan, line: str) -> None:
    assert in_a_line(plan) == line


def test_a_plan_without_gpu_code() -> None:
    assert (
        summary(Plan(requirements=("filelock",), packages=(FILELOCK,)), today=DAY)
        == """\
Request   filelock

Package   Version  Variant
filelock  3.20.0   -

Next      save this plan with -o pylock.toml, then:
          envsolve install pylock.toml --prefix DIR
Or        pip install filelock==3.20.0 --index-url https://mirror.example/simple/
"""
    )


def test_two_machines_an_unknown_level_and_a_toolchain() -> None:
    h100 = Machine(driver=Driver(version="580.95"), gpus=(Gpu("NVIDIA H100", "9.0"),))
    plan = replace(
        GOOD,
        status="unknown",
        machines=(RTX_4090, h100),
        support=(*GOOD.support, Support("torch", "NVIDIA H100", "9.0", "unknown", None, None)),
        toolchain=Toolchain("12.6", "gcc 13", "8.9;9.0", compiles=("own",)),
    )
    lines = summary(plan, today=DAY).splitlines()
    assert lines[1] == "For       NVIDIA H100 (cc 9.0), driver 580.95"
    assert "Status    unknown: some facts are missing, see the warnings" in lines
    assert "Variant   cu126: unknown, not enough is known about the GPU or the build" in lines
    assert "Build     nvcc 12.6, not available, host compiler gcc 13, TORCH_CUDA_ARCH_LIST 8.9;9.0" in lines
    assert "Package  Version      Variant  NVIDIA GeForce RTX 4090 (cc 8.9)  NVIDIA H100 (cc 9.0)" in lines
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
    ("need", "variant", "sentence"),
    [
        (DriverNeed(None, None, None), "cu130", "the plan needs no NVIDIA driver"),
        (DriverNeed("580.65.06", None, None), "cu130", "needs 580.65.06 or newer; the machine's driver is not known"),
        (
            DriverNeed("580.65.06", None, "580"),
            "cu130",
            "needs 580.65.06 or newer; it is not known whether 580 is new enough",
        ),
        (
            DriverNeed("580.65.06", "full", "580.95"),
            "cu130",
            "580.95 runs CUDA 13.0 builds in full; needs 580.65.06 or newer",
        ),
        (
            DriverNeed("580.65.06", "full", None),  # known by its CUDA version alone
            None,
            "the machine's runs its CUDA builds in full; needs 580.65.06 or newer",
        ),
        (
            DriverNeed("396.26", "minor-version", "550.54"),
            "cu92",
            "550.54 runs CUDA 9.2 builds through minor-version compatibility (machine code, no PTX); "
            "needs 396.26 or newer",
        ),
        (
            DriverNeed("580.65.06", "forward-compat", "535.104"),
            "cu130",
            "535.104 runs CUDA 13.0 builds through the cuda-compat libraries (forward compatibility); "
            "without them it needs 580.65.06 or newer",
        ),
    ],
)
def test_driver_sentences(need: DriverNeed, variant: str | None, sentence: str) -> None:
    assert driver_sentence(need, variant) == sentence


def test_machines_that_look_alike_share_a_line() -> None:
    other = Machine(gpus=(Gpu("A", "8.0"),))
    lines = summary(replace(GOOD, machines=(other, *GOOD.machines, other))).splitlines()
    assert lines[0] == "For       A (cc 8.0) (2 machines)"
    assert sum(line.startswith("For ") for line in lines) == 2


def test_facts_of_the_users_own_are_told_with_their_date() -> None:
    plan = replace(GOOD, catalogue_date="2026-11-28", own_catalogue_date="2026-11-28")
    assert "Facts     of 2026-11-28, today; your own catalogue: of 2026-11-28\n" in summary(
        plan, today=datetime.date(2026, 11, 28)
    )


def test_hundreds_of_requirements_are_folded() -> None:
    many = replace(GOOD, requirements=tuple(f"package-{number}" for number in range(120)))
    line = next(line for line in summary(many, today=DAY).splitlines() if line.startswith("Request"))
    assert line.startswith("Request   package-0, package-1, ")
    assert line.endswith("package-19 and 100 more")

from __future__ import annotations

import pytest
from msgspec.structs import replace

from envsolve.machine.model import (
    Accelerator,
    Driver,
    Gpu,
    HostCompiler,
    Interpreter,
    Machine,
    Platform,
    Toolkit,
    describe,
    one_line,
    told_apart,
)

FULL = Machine(
    platform=Platform("linux", "x86_64", "glibc 2.35", "ubuntu 22.04", True, "docker"),
    driver=Driver("550.54.15", "12.4", "13.0"),
    gpus=(
        Gpu("NVIDIA L4", "8.9", 23034, False, "GPU-1"),
        Gpu("NVIDIA L4", "8.9", 23034, False, "GPU-2"),
        Gpu("NVIDIA Z1"),
    ),
    toolkits=(Toolkit("12.4", "/usr/local/cuda-12.4", False),),
    host_compilers=(HostCompiler("gcc", "11.4.0", "/usr/bin/g++"),),
    python="3.12",
    pythons=(Interpreter("3.12.1", "/usr/bin/python3"),),
    environment={"CUDA_VISIBLE_DEVICES": "0"},
    sources={"driver.version": "nvml"},
)


def test_facts_in_words() -> None:
    assert describe(FULL).splitlines() == [
        "platform    linux-x86_64, ubuntu 22.04, glibc 2.35, WSL, in docker",
        "driver      550.54.15, supports CUDA up to 12.4; a compat libcuda of CUDA 13.0 comes first on the loader path",
        "GPU         2x NVIDIA L4, compute capability 8.9, 23034 MiB",
        "            NVIDIA Z1, compute capability unknown",
        "toolkit     CUDA 12.4, no nvcc (/usr/local/cuda-12.4)",
        "compiler    g++ 11.4.0 (/usr/bin/g++)",
        "python      3.12",
        "pythons     3.12.1",
        "environment CUDA_VISIBLE_DEVICES=0",
    ]


def test_unknown_and_none_are_different() -> None:
    assert "GPU         unknown" in describe(Machine())
    assert "GPU         none: no driver" in describe(Machine(gpus=(), sources={"gpus": "no driver"}))
    assert "toolkit     none" in describe(Machine(toolkits=()))
    assert "driver      unknown" in describe(Machine())


def test_long_values_of_the_environment_are_cut_unless_all_is_asked_for() -> None:
    path = ":".join(f"/opt/lib{number}" for number in range(30))
    machine = Machine(environment={"LD_LIBRARY_PATH": path, "CUDA_HOME": "/usr/local/cuda"})
    shown = describe(machine)
    assert f"LD_LIBRARY_PATH={path[:100]}... ({len(path)} characters; --verbose shows all)" in shown
    assert "CUDA_HOME=/usr/local/cuda" in shown.splitlines()[-2]
    assert f"LD_LIBRARY_PATH={path}" in describe(machine, verbose=True)


def test_verbose_adds_paths_and_sources() -> None:
    text = describe(FULL, verbose=True)
    assert "3.12.1 (/usr/bin/python3)" in text
    assert "source      driver.version: nvml" in text


@pytest.mark.parametrize(
    ("machine", "words"),
    [
        (Machine(), "GPUs unknown"),
        (Machine(gpus=(), python="3.12"), "no GPU"),  # a plan's Python may be another
        (Machine(gpus=(Gpu("A", "8.0"), Gpu("B", "9.0"), Gpu("A", "8.0"))), "2x A (cc 8.0) + B (cc 9.0)"),
        (Machine(platform=Platform("linux"), gpus=()), "no GPU, linux"),
        (Machine(driver=Driver("550.54"), gpus=(Gpu("A", "8.0"),)), "A (cc 8.0), driver 550.54"),
    ],
)
def test_a_machine_in_one_line(machine: Machine, words: str) -> None:
    assert one_line(machine) == words


def test_machines_are_told_apart_by_what_differs() -> None:
    a100, h100 = (
        Machine(platform=Platform("linux", "x86_64"), driver=Driver("550.54"), gpus=(Gpu(n, "8.0"),))
        for n in ("A", "H")
    )
    assert told_apart([a100, h100]) == ("A (cc 8.0)", "H (cc 8.0)")
    arm = replace(h100, platform=Platform("linux", "aarch64"))
    assert told_apart([h100, arm]) == ("H (cc 8.0), linux x86_64", "H (cc 8.0), linux aarch64")
    assert told_apart([h100, replace(h100, driver=None)]) == ("H (cc 8.0), driver 550.54", "H (cc 8.0)")


def test_pythons_are_sorted_by_version() -> None:
    found = tuple(Interpreter(version, f"/opt/{version}/bin/python") for version in ("3.9.1", "3.14.0", "3.10.2"))
    assert "pythons     3.9.1, 3.10.2, 3.14.0" in describe(Machine(pythons=found)).splitlines()


def test_a_c_compiler_keeps_its_name() -> None:
    found = tuple(
        HostCompiler(kind, "12", f"/usr/bin/{name}") for kind, name in (("gcc", "gcc-12"), ("clang", "clang++"))
    )
    lines = describe(Machine(host_compilers=found)).splitlines()
    assert "compiler    gcc 12 (/usr/bin/gcc-12)" in lines and "            clang++ 12 (/usr/bin/clang++)" in lines


def test_gpus_of_other_vendors_are_named() -> None:
    machine = Machine(gpus=(), accelerators=(Accelerator("amd", "Radeon RX 7900 XTX", "gfx1100", 24560),))
    assert "GPU         Radeon RX 7900 XTX, amd, architecture gfx1100, 24560 MiB" in describe(machine)
    assert one_line(machine) == "Radeon RX 7900 XTX (gfx1100)"

from __future__ import annotations

import pytest
from msgspec.structs import replace

from envsolve.errors import UsageError
from envsolve.machine.model import Driver, Gpu, Interpreter, Machine, Platform
from envsolve.planning.lock import Assumptions, assumptions_of, mismatches, oldest_libc, unknowns
from envsolve.planning.plan import DriverNeed, Plan, Support
from envsolve.solve.outcome import PlannedPackage

LOCK = Assumptions(
    python="3.12",
    os="linux",
    arch="x86_64",
    libc="glibc 2.28",
    driver_required="525.60.13",
    cuda="cu126",
    gpus=("8.9", "9.0"),
    environment={"TRITON_PTXAS_PATH": "{site_packages}/nvidia/cu13/bin/ptxas"},
    catalogue_date="2026-01-01",
)
FITS = Machine(
    platform=Platform(os="linux", arch="x86_64", libc="glibc 2.35"),
    driver=Driver(version="550.54.15"),
    gpus=(Gpu("H100", "9.0"),),
    python="3.12",
)


@pytest.mark.parametrize(
    ("names", "libc"),
    [
        ((), None),
        (("a-1-py3-none-any.whl", "a-1.tar.gz"), None),
        (("a-1-cp312-cp312-linux_x86_64.whl",), None),
        (("a-1-cp312-cp312-manylinux_2_28_x86_64.whl",), "glibc 2.28"),
        (("a-1-cp312-cp312-manylinux2014_x86_64.manylinux_2_17_x86_64.whl",), "glibc 2.17"),
        (("a-1-cp312-cp312-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl",), "glibc 2.27"),
        (("a-1-py3-none-manylinux1_x86_64.whl", "b-1-py3-none-manylinux2010_x86_64.whl"), "glibc 2.12"),
        (("a-1-py3-none-manylinux_2_5_x86_64.whl", "b-1-py3-none-manylinux_2_34_x86_64.whl"), "glibc 2.34"),
        (("a-1-cp312-cp312-musllinux_1_2_x86_64.whl",), "musl 1.2"),
    ],
)
def test_oldest_libc(names: tuple[str, ...], libc: str | None) -> None:
    assert oldest_libc(names) == libc


def test_a_libc_that_no_file_name_tells() -> None:
    names = ("a-1-cp312-cp312-linux_x86_64.whl", "b-1-py3-none-manylinux_2_28_x86_64.whl")
    assert oldest_libc(names, ["glibc 2.32"]) == "glibc 2.32"
    assert oldest_libc(names, ["glibc 2.17"]) == "glibc 2.28"


@pytest.mark.parametrize(
    ("driver", "fits"),
    [
        (Driver("580.95.05"), True),
        (Driver("535.104.05", "12.2", "13.0"), True),
        (Driver("535.104.05", "12.2", "12.8"), False),
        (Driver("535.104.05", "12.2"), False),
    ],
)
def test_a_lock_that_counts_on_a_compat_libcuda(driver: Driver, fits: bool) -> None:
    machine = replace(FITS, driver=Driver("535.104.05", "12.2", "13.0"))
    plan = Plan(machines=(machine,), driver=DriverNeed("580.65.06", "forward-compat", "535.104.05"))
    lock = Assumptions.from_table(assumptions_of(plan).to_table())
    assert lock is not None and lock.compat_libcuda == "13.0"
    told = mismatches(lock, replace(FITS, driver=driver))
    assert fits is (told == ())
    assert fits or "or a cuda-compat libcuda of CUDA 13.0" in told[0]


def test_what_a_plan_assumes() -> None:
    wheel = PlannedPackage("a", "1", None, None, "a-1-cp312-cp312-manylinux_2_28_x86_64.whl", None, {}, "wheel")
    plan = Plan(
        machines=(FITS, Machine(platform=Platform(os="linux", arch="aarch64"))),
        python="3.12",
        cuda="cu126",
        packages=(wheel,),
        support=(
            Support("a", "H100", "9.0", "native", "sm_90", None),
            Support("a", "4090", "8.9", "family", "sm_86", None),
            Support("a", "B", "12.0", "ptx", "compute_90", None),
        ),
        driver=DriverNeed("525.60.13", "minor-version", "550"),
        environment={"TRITON_PTXAS_PATH": "{site_packages}/nvidia/cu13/bin/ptxas"},
        catalogue_date="2026-01-01",
    )
    assert assumptions_of(plan) == Assumptions(
        python="3.12",
        os="linux",
        arch=None,  # the two machines differ
        libc="glibc 2.28",
        driver_required="525.60.13",
        cuda="cu126",
        gpus=("8.9", "9.0", "12.0"),
        environment={"TRITON_PTXAS_PATH": "{site_packages}/nvidia/cu13/bin/ptxas"},
        catalogue_date="2026-01-01",
    )


def test_a_plan_without_gpu_code_assumes_no_gpu() -> None:
    assert assumptions_of(Plan(machines=(FITS,), cuda="cpu")).gpus == ()


def test_table_round_trip() -> None:
    assert Assumptions.from_table(LOCK.to_table()) == LOCK
    assert Assumptions.from_table(Assumptions().to_table()) == Assumptions()
    assert Assumptions.from_table(None) is None
    assert None not in LOCK.to_table().values()


INSIDE = "{site_packages}/nvidia/cu13"


@pytest.mark.parametrize(
    ("table", "refused"),
    [
        ({"environment": {"CUDA_HOME": INSIDE, "PATH": f"{INSIDE}/bin:$PATH"}}, None),
        ({"environment": {"TRITON_PTXAS_BLACKWELL-PATH": "{site_packages}/../../../bin/ptxas"}}, None),
        ({"building": {"nvcc": "13.0", "nvcc_from": "pip", "cuda_home": INSIDE}}, None),
        ({"building": {"environment": {"FLASH_ATTENTION_FORCE_BUILD": "TRUE"}}}, None),
        ({"environment": {"LD_PRELOAD": f"{INSIDE}/x.so"}}, "LD_PRELOAD"),
        ({"environment": {"PYTHONPATH": INSIDE}}, "PYTHONPATH"),
        ({"environment": {"PATH": "/tmp/bin:$PATH"}}, "PATH"),
        ({"environment": {"PATH": f"/tmp/bin:{INSIDE}/bin:$PATH"}}, "PATH"),
        ({"environment": {"CUDA_HOME": "/tmp"}}, "outside the environment"),
        ({"environment": {"TRITON_PTXAS_PATH": "{site_packages}/../../../../bin/ptxas"}}, "outside the environment"),
        ({"building": {"nvcc": "13.0", "nvcc_from": "pip", "cuda_home": "/tmp/victim"}}, "cuda_home"),
        ({"building": {"environment": {"PYTHONPATH": "/tmp"}}}, "PYTHONPATH"),
    ],
)
def test_a_lock_sets_only_known_variables_to_places_inside(table: dict[str, object], refused: str | None) -> None:
    read = {"schema": "envsolve.lock/1", **table}
    if refused is None:
        assert Assumptions.from_table(read)
    else:
        with pytest.raises(UsageError, match=refused):
            Assumptions.from_table(read)


def test_a_machine_that_fits() -> None:
    assert mismatches(LOCK, FITS) == ()
    assert unknowns(LOCK, FITS) == ()


@pytest.mark.parametrize(
    ("machine", "sentence"),
    [
        (Machine(python="3.11"), "the lock requires Python 3.12; this machine has 3.11"),
        (Machine(pythons=(Interpreter("3.10.1", "p"),)), "the lock requires Python 3.12; this machine has 3.10"),
        (Machine(platform=Platform(os="windows")), "the lock requires linux; this machine has windows"),
        (Machine(platform=Platform(arch="aarch64")), "the lock requires architecture x86_64; this machine has aarch64"),
        (
            Machine(platform=Platform(libc="glibc 2.17")),
            "the lock requires glibc 2.28 or newer; this machine has glibc 2.17",
        ),
        (
            Machine(platform=Platform(libc="musl 1.2")),
            "the lock requires glibc 2.28 or newer; this machine has musl 1.2",
        ),
        (Machine(driver=Driver("525.60")), None),
        (Machine(driver=Driver("525.53")), "the lock requires driver 525.60.13 or newer; this machine has 525.53"),
        (Machine(driver=Driver("470")), "the lock requires driver 525.60.13 or newer; this machine has 470"),
        (
            Machine(gpus=(Gpu("H100", "9.0"), Gpu("A100", "8.0"))),
            "the lock was made for compute capability 8.9, 9.0; this machine has A100 (cc 8.0)",
        ),
        (Machine(gpus=()), None),
    ],
)
def test_each_assumption_fails_with_both_sides(machine: Machine, sentence: str | None) -> None:
    assert mismatches(LOCK, machine) == ((sentence,) if sentence else ())


def test_another_python_is_enough() -> None:
    assert mismatches(LOCK, Machine(python="3.11", pythons=(Interpreter("3.12.9", "p"),))) == ()


def test_what_is_not_known_fails_nothing_and_is_said() -> None:
    assert mismatches(LOCK, Machine()) == ()
    assert unknowns(LOCK, Machine()) == (
        "the lock requires Python 3.12; the Python of this machine is not known",
        "the lock requires linux; the operating system of this machine is not known",
        "the lock requires architecture x86_64; the architecture of this machine is not known",
        "the lock requires glibc 2.28 or newer; the libc of this machine is not known",
        "the lock requires driver 525.60.13 or newer; the driver of this machine is not known",
        "the lock was made for compute capability 8.9, 9.0; it is not known which GPUs this machine has",
    )


def test_a_bare_branch_that_could_be_older_is_not_known() -> None:
    assert unknowns(Assumptions(driver_required="525.60.13"), Machine(driver=Driver("525"))) != ()
    assert unknowns(Assumptions(driver_required="525.60.13"), Machine(driver=Driver("535"))) == ()

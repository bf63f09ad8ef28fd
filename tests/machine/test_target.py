from __future__ import annotations

import contextlib
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envsolve.errors import UsageError
from envsolve.machine.known import describe_target, target_of
from envsolve.machine.target import GRAMMAR, Target, parse_target


@pytest.mark.parametrize(
    ("text", "target"),
    [
        (
            "2x RTX 4090, driver 550.54, python 3.12, linux-x86_64",
            Target(((2, "RTX 4090"),), "550.54", None, "3.12", "linux", "x86_64"),
        ),
        (
            " LINUX-AARCH64 ,gb10,  Python=3.13,DRIVER=580.95.05 ",
            Target(((1, "gb10"),), "580.95.05", None, "3.13", "linux", "aarch64"),
        ),
        ("4090", Target(((1, "4090"),))),
        ("1080 Ti", Target(((1, "1080 Ti"),))),
        ("980 Ti", Target(((1, "980 Ti"),))),
        ("8.6", Target(((1, "8.6"),))),
        ("sm_90", Target(((1, "sm_90"),))),
        ("TITAN X (Pascal)", Target(((1, "TITAN X (Pascal)"),))),
        ("Jetson TX2", Target(((1, "Jetson TX2"),))),
        ("A100-SXM4-40GB", Target(((1, "A100-SXM4-40GB"),))),
        ("4x4090", Target(((4, "4090"),))),
        ("8 H100", Target(((8, "H100"),))),
        ("8xH100", Target(((8, "H100"),))),
        ("2 X 8.6", Target(((2, "8.6"),))),
        ("2*A100", Target(((2, "A100"),))),
        ("2\u00d7 A100", Target(((2, "A100"),))),
        ("H100 x8", Target(((8, "H100"),))),
        ("4090x2", Target(((2, "4090"),))),
        ("A100 + 2x T4, V100", Target(((1, "A100"), (2, "T4"), (1, "V100")))),
        ("no gpu", Target(())),
        ("CPU", Target(())),
        ("cpu-only, linux", Target((), os="linux")),
        ("driver 550", Target(driver="550")),
        ("driver=550", Target(driver="550")),
        ("driver550.54.15", Target(driver="550.54.15")),
        ("NVIDIA driver: R535", Target(driver="535")),
        ("py312", Target(python="3.12")),
        ("cp310", Target(python="3.10")),
        ("python3.9", Target(python="3.9")),
        ("python 3.12.4", Target(python="3.12")),
        ("cuda 12.4", Target(cuda="12.4")),
        ("CUDA=13.0", Target(cuda="13.0")),
        ("aarch64", Target(arch="aarch64")),
        ("arm64", Target(arch="aarch64")),
        ("linux; x86-64", Target(os="linux", arch="x86_64")),
        ("win-amd64", Target(os="windows", arch="x86_64")),
        ("linux_x86_64", Target(os="linux", arch="x86_64")),
        ("glibc 2.35", Target(libc="glibc 2.35")),
        ("Musl 1.2.4", Target(libc="musl 1.2")),
        ("Driver Version: 550.54.15", Target(driver="550.54.15")),
        ("NVIDIA-SMI 550.54.15", Target(driver="550.54.15")),
        ("CUDA Version: 12.4", Target(cuda="12.4")),
        ("ubuntu 22.04", Target(distro="ubuntu 22.04")),
        ("Ubuntu-22.04", Target(distro="ubuntu 22.04")),
        ("arch", Target(distro="arch")),
        ("T4, linux, linux-x86_64,", Target(((1, "T4"),), os="linux", arch="x86_64")),
    ],
)
def test_targets(text: str, target: Target) -> None:
    assert parse_target(text) == target


DRIVER, PYTHON, CUDA = "write it as: driver 550", "write it as: python 3.12", "write it as: cuda 12.4"


@pytest.mark.parametrize(
    ("text", "part", "hint"),
    [
        ("T4, driver", "driver", DRIVER),
        ("T4, driver latest", "driver latest", DRIVER),
        ("T4, driver 55", "driver 55", DRIVER),
        ("T4, driver >=550", "driver >=550", DRIVER),
        ("python 2.7, T4", "python 2.7", PYTHON),
        ("T4, python 3.13t", "python 3.13t", PYTHON),
        ("T4, cuda twelve", "cuda twelve", CUDA),
        ("T4, cuda 12", "cuda 12", CUDA),
        ("T4, cu124", "cu124", CUDA),
        ("T4, linux-sparc", "linux-sparc", "write it as: linux-x86_64"),
        ("T4, glibc", "glibc", "write it as: glibc 2.35"),
        ("T4, no python", "no python", "write it as: no gpu"),
        # a slip of the pen
        ("T4, drivr 550", "drivr 550", "did you mean: driver 550"),
        ("T4, pyton 3.12", "pyton 3.12", "did you mean: python 3.12"),
        ("T4, drivr latest", "drivr latest", DRIVER),
        # no comma
        ("RTX 4090 driver 550", "RTX 4090 driver 550", "separate the parts with commas: RTX 4090, driver 550"),
        ("T4 driver 550 py312", "T4 driver 550 py312", "separate the parts with commas: T4, driver 550, py312"),
        ("A100 linux", "A100 linux", "separate the parts with commas: A100, linux"),
        ("T4 Driver Version: 550.54", "T4 Driver Version: 550.54", "with commas: T4, Driver Version: 550.54"),
        # what no part says
        ("T4, docker", "docker", "the GPUs of its host"),
        ("T4, MIG 1g.5gb", "MIG 1g.5gb", "after its GPU"),
        # no word
        ("T4, 550.54", "550.54", "for the driver write: driver 550.54"),
        ("T4, 550.54.15", "550.54.15", "for the driver write: driver 550.54.15"),
        ("T4, 3.12", "3.12", "for the Python write: python 3.12"),
        # contradictions
        ("T4, python 3.11, python 3.12", "python 3.12", "remove one of them"),
        ("T4, no gpu", "no gpu", "remove one of them"),
        ("no gpu, T4", "T4", "remove one of them"),
        ("linux-x86_64, aarch64", "aarch64", "remove one of them"),
        # nothing more precise can be said
        ("0x T4", "0x T4", GRAMMAR),
        ("T4 +", "T4 +", GRAMMAR),
        ("T4, @#!", "@#!", GRAMMAR),
    ],
)
def test_unreadable_parts_are_named_with_what_to_write(text: str, part: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_target(text)
    assert f'"{part}"' in caught.value.message
    assert hint in (caught.value.hint or "")
    assert (hint == GRAMMAR) == (caught.value.hint == GRAMMAR)


@pytest.mark.parametrize("text", ["", " ", ",", " ; , "])
def test_an_empty_target(text: str) -> None:
    with pytest.raises(UsageError, match="empty"):
        parse_target(text)


def maybe(strategy: st.SearchStrategy[str]) -> st.SearchStrategy[str | None]:
    return st.none() | strategy


gpu_names = st.sampled_from(["RTX 4090", "1080 Ti", "980 Ti", "8.6", "sm_90", "H100 80GB HBM3", "Jetson TX2", "K20X"])
targets = st.builds(
    Target,
    gpus=st.none() | st.lists(st.tuples(st.integers(1, 999), gpu_names), max_size=4).map(tuple),
    driver=maybe(st.from_regex(r"[1-9][0-9]{2}(\.[0-9]{1,3}){0,2}", fullmatch=True)),
    cuda=maybe(st.from_regex(r"1[0-9]\.[0-9]", fullmatch=True)),
    python=maybe(st.integers(6, 20).map("3.{}".format)),
    os=maybe(st.sampled_from(["linux", "windows"])),
    arch=maybe(st.sampled_from(["x86_64", "aarch64"])),
    libc=maybe(st.sampled_from(["glibc 2.17", "musl 1.2"])),
    distro=maybe(st.sampled_from(["ubuntu 22.04", "debian 12", "arch"])),
).filter(lambda target: target != Target())


@given(targets, st.randoms(use_true_random=False))
def test_a_target_reads_back_in_any_order_and_case(target: Target, random: object) -> None:
    parts = str(target).split(", ")
    random.shuffle(parts)  # type: ignore[attr-defined]
    assert parse_target(str(target)) == target
    assert parse_target(" ,".join(parts)) == target
    lowered = parse_target(str(target).upper())
    assert (lowered.driver, lowered.python, lowered.arch) == (target.driver, target.python, target.arch)


@given(st.text(max_size=40))
def test_no_text_escapes_as_another_error(text: str) -> None:
    try:
        parse_target(text)
    except UsageError as error:
        assert error.hint


@pytest.mark.parametrize(
    "text", ["2x Tesla T4, driver 535, linux-x86_64", "no gpu, python 3.12, glibc 2.35", "9.0, cuda 12.4, windows"]
)
def test_a_machine_is_written_as_the_target_that_it_was(text: str) -> None:
    machine = describe_target(text)
    assert describe_target(target_of(machine)) == machine


@pytest.mark.parametrize("text", ["s d[" * 2000, "s d[" * 249, "8.6 " * 249, "driver 550 linux " * 58])
def test_a_long_text_is_read_or_refused_in_little_time(text: str) -> None:
    start = time.process_time()
    with contextlib.suppress(UsageError):
        parse_target(text)
    assert time.process_time() - start < 2


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("RTX 5070 Ti WSL", "RTX 5070 Ti, WSL"),
        ("RTX 5070 Ti on WSL2", "RTX 5070 Ti, WSL2"),
        ("T4 g5.xlarge", "T4, g5.xlarge"),
    ],
)
def test_a_name_of_the_catalogue_behind_a_gpu_is_a_part(text: str, parts: str) -> None:
    with pytest.raises(UsageError) as caught:
        describe_target(text)
    assert caught.value.hint == f"put commas between the parts: {parts}"

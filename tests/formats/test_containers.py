"""Container files: which images they start from, and that real parsers and a real linter take them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest
from msgspec.structs import replace

import envsolve
from envsolve.errors import UsageError
from envsolve.facts.catalogue import Catalogue
from envsolve.formats import render
from envsolve.formats._recipe import Copied, recipe
from envsolve.machine.model import Driver, Gpu, HostCompiler, Machine, Platform
from envsolve.planning.plan import DriverNeed, Plan, Support
from envsolve.solve.outcome import PlannedPackage
from envsolve.toolchain.model import SITE_PACKAGES, Toolchain
from tests.formats.plans import FILELOCK, GOOD, TORCH, TRITON, package

HADOLINT = shutil.which("hadolint", path=sysconfig.get_path("scripts")) or shutil.which("hadolint")
TREE = PlannedPackage(
    "apex", "0+unread", None, None, None, "git+https://github.com/NVIDIA/apex", {}, "sdist", evidence=None
)
SDIST = replace(package("flash-attn", "2.8.3"), filename="flash_attn-2.8.3.tar.gz", kind="sdist")


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return Catalogue()


def compiled(torch: str = "2.9.0", cuda: str = "12.6", python: str = "3.12", *sources: PlannedPackage) -> Plan:
    """A plan that compiles against a torch of a CUDA version."""
    variant = "cu" + cuda.replace(".", "")
    built = replace(TORCH, version=f"{torch}+{variant}", variant=variant)
    toolchain = Toolchain(
        cuda,
        "gcc 13",
        "8.9",
        "gcc 9 to 13",
        ("flash-attn", "apex"),
        ("torch", "ninja", "setuptools<81"),
        gcc_min=9,
        gcc_max=11 if cuda == "11.8" else 13,
        environment={"TORCH_CUDA_ARCH_LIST": "8.9", "FORCE_CUDA": "1"},
    )
    packages = (FILELOCK, built, TRITON, *(sources or (SDIST,)))
    return replace(GOOD, python=python, cuda=variant, packages=packages, toolchain=toolchain)


@pytest.mark.parametrize(
    ("python", "libc", "base"),
    [
        ("3.12", None, "python:3.12-slim-bookworm"),
        ("3.12", "glibc 2.36", "python:3.12-slim-bookworm"),
        ("3.12", "glibc 2.38", "python:3.12-slim-trixie"),
        ("3.8", None, "python:3.8-slim-bookworm"),
    ],
)
def test_the_base_has_the_python_and_the_libc(catalogue: Catalogue, python: str, libc: str | None, base: str) -> None:
    made = recipe(replace(GOOD, python=python, packages=(replace(TORCH, libc=libc), FILELOCK)), catalogue)
    assert (made.base, made.compiling, made.compat) == (base, None, None)


@pytest.mark.parametrize(
    ("torch", "cuda", "base", "toolkit"),
    [
        ("2.9.0", "12.6", "python:3.12-slim-bookworm", "nvidia/cuda:12.6.3-devel-ubuntu22.04"),
        ("2.9.0", "13.0", "python:3.12-slim-bookworm", "nvidia/cuda:13.0.2-devel-ubuntu22.04"),
        # The only images of 13.2 with nvcc stand on a libc that is newer than bookworm's, or are for RHEL 8.
        ("2.13.0", "13.2", "python:3.12-slim-bookworm", "nvidia/cuda:13.2.1-cudnn-devel-rockylinux8"),
    ],
)
def test_nvcc_comes_from_an_image_that_has_torchs_cuda_and_runs_on_the_base(
    catalogue: Catalogue, torch: str, cuda: str, base: str, toolkit: str
) -> None:
    made = recipe(compiled(torch, cuda), catalogue)
    assert made.base == base
    assert made.compiling is not None
    assert made.compiling.toolkit == Copied(toolkit, f"/usr/local/cuda-{cuda}")
    assert made.build_apt == ("g++",)
    assert made.compiling.build_requires == ("ninja", "setuptools<81")


def test_a_base_whose_gcc_nvcc_refuses_is_not_taken(catalogue: Catalogue) -> None:
    with pytest.raises(UsageError, match=r"nvcc 11\.8") as caught:  # gcc 11 at most, and bookworm has 12
        recipe(compiled("2.7.0", "11.8"), catalogue)
    assert "--cuda" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("platform", "says"),
    [(Platform(os="windows", arch="x86_64"), "Linux"), (Platform(os="linux", arch="aarch64", jetson="36.3"), "L4T")],
)
def test_where_no_such_container_runs(catalogue: Catalogue, platform: Platform, says: str) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        recipe(replace(GOOD, machines=(Machine(platform=platform),)), catalogue)
    assert caught.value.hint


def test_one_container_is_for_one_system(catalogue: Catalogue) -> None:
    machines = tuple(Machine(platform=Platform(os="linux", arch=arch)) for arch in ("x86_64", "aarch64"))
    with pytest.raises(UsageError, match="linux-aarch64 and linux-x86_64") as caught:
        recipe(replace(GOOD, machines=machines), catalogue)
    assert "separate plan" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("libc", "seen"),
    [(None, "glibc 2.36"), ("musl 1.2", "glibc 2.36"), ("glibc 2.17", "glibc 2.36"), ("glibc 2.39", "glibc 2.39")],
)
def test_the_hosts_libc_and_compilers_decide_nothing(libc: str | None, seen: str) -> None:
    host = Machine(
        platform=Platform(os="linux", arch="x86_64", libc=libc),
        driver=Driver("580.65.06"),
        host_compilers=(HostCompiler("gcc", "99.1", "/usr/bin/gcc"),),
        toolkits=(),
    )
    [machine] = envsolve.in_containers([host])
    assert machine.platform == Platform(os="linux", arch="x86_64", libc=seen)
    assert (machine.driver, machine.host_compilers, machine.toolkits) == (host.driver, None, None)


def test_a_machine_that_takes_no_such_container_stays_as_it_is() -> None:
    machines = (Machine(platform=Platform(os="windows")), Machine(platform=Platform(os="linux", jetson="36.3")))
    assert envsolve.in_containers(machines) == machines


def test_a_python_without_an_image_is_refused(catalogue: Catalogue) -> None:
    with pytest.raises(UsageError, match=r"Python 3\.6") as caught:
        recipe(replace(GOOD, python="3.6"), catalogue)
    assert "--python" in (caught.value.hint or "")


def test_an_older_driver_gets_the_compat_libcuda(catalogue: Catalogue) -> None:
    machine = Machine(
        platform=Platform(os="linux", arch="x86_64"),
        driver=Driver("535.183.01", "12.2", compat_libcuda="12.9"),
        gpus=(Gpu("NVIDIA H100", "9.0"),),
    )
    plan = replace(GOOD, machines=(machine,), driver=DriverNeed("575.51.03", "forward-compat", "535.183.01"))
    made = recipe(plan, catalogue)
    assert made.compat == Copied("nvidia/cuda:12.9.2-base-ubuntu22.04", "/usr/local/cuda-12.9/compat")
    text = render(plan, "dockerfile")
    assert text.count('LD_LIBRARY_PATH="/usr/local/cuda/compat"') == 2, "where it is proved, and where it runs"
    assert "NVIDIA_REQUIRE_CUDA" not in text, "the runtime would refuse the very driver that this is for"
    assert "may be older than 575.51.03" in text and "575.51.03 or newer" not in text


def test_what_the_image_holds_and_asks_for() -> None:
    plan = replace(
        GOOD,
        packages=(FILELOCK, replace(TORCH, evidence="measured"), replace(TRITON, evidence="measured")),
        environment={"TRITON_PTXAS_PATH": f"{SITE_PACKAGES}/nvidia/cu13/bin/ptxas"},
    )
    text = render(plan, "dockerfile")
    assert 'NVIDIA_REQUIRE_CUDA="driver>=525.60.13 cuda>=12.1"' in text
    assert 'TRITON_PTXAS_PATH="/opt/env/lib/python3.12/site-packages/nvidia/cu13/bin/ptxas"' in text
    assert text.index('TRITON_PTXAS_PATH="') < text.index("--compile-only"), "it compiles them"
    assert "torch===2.9.0+cu126\ntriton===3.5.0\nEOF" in text
    assert "--compile-only --gpu 8.9" in text
    assert "nvidia/cuda" not in text, "the wheels bring CUDA"
    assert f"--hash=sha256:{TORCH.hashes['sha256']}" in text


@pytest.mark.parametrize(
    ("driver", "condition"),
    [
        ("580.65.06", "driver>=580.65.6 cuda>=13.0"),  # the first of its branch; no leading zero
        ("450.80.02", "driver>=450.80.2 cuda>=11.1"),
        ("570.86", "driver>=570.86 cuda>=12.9"),  # 570 itself has older ones
        ("9999.1", "driver>=9999.1"),
    ],
)
def test_the_condition_on_the_driver_is_one_that_every_container_runtime_reads(driver: str, condition: str) -> None:
    plan = replace(GOOD, driver=DriverNeed(driver, "full", None))
    assert f'NVIDIA_REQUIRE_CUDA="{condition}"' in render(plan, "dockerfile")


@pytest.mark.parametrize("form", ["dockerfile", "apptainer"])
def test_triton_has_the_compiler_that_it_needs_where_it_runs(form: str) -> None:
    """Without one torch.compile fails at its first kernel: "Failed to find C compiler"."""
    assert "--no-install-recommends gcc libc6-dev" in render(GOOD, form)
    assert "apt-get" not in render(replace(GOOD, packages=(FILELOCK, TORCH)), form)
    alone = replace(GOOD, packages=(replace(TRITON, evidence="measured"),), driver=None, cuda=None)
    assert "gcc libc6-dev" in render(alone, form)


@pytest.mark.parametrize("name", ["wheels", "compiled", "tree"])
def test_a_snippet_has_the_steps_of_the_whole_file_and_no_stage(name: str) -> None:
    text = render(PLANS[name], "dockerfile-snippet")
    whole = render(PLANS[name], "dockerfile")
    assert not re.search(r"^FROM", text, re.MULTILINE)
    assert "RUN python3.12 -m venv /opt/env\n" in text and "python3.12 with its venv, on glibc 2.28 or newer" in text
    for line in text.splitlines():
        if "pip install" in line or line.startswith(("    NVIDIA_", "ARG", "ENV PATH")):
            assert line in whole
    if name != "wheels":
        assert "from=nvidia/cuda:12.6.3-devel-ubuntu22.04,source=/usr/local/cuda-12.6,target=/opt/toolkit" in text
        assert "(gcc 9 to 13)" in text


@pytest.mark.parametrize("form", ["dockerfile", "dockerfile-snippet", "apptainer"])
def test_whoever_builds_may_log_in_to_an_index_that_is_nobodys_known_one(form: str) -> None:
    text = render(GOOD, form)  # from mirror.example, among others
    assert "Log in to mirror.example: " in text and "download.pytorch.org:" not in text
    mounted = "--mount=type=secret,id=netrc,target=/root/.netrc"
    assert (mounted in text) is (form != "apptainer")
    public = render(replace(GOOD, packages=(TORCH,)), form)
    assert "netrc" not in public


def test_triton_is_asked_for_no_kernel_where_it_serves_no_card() -> None:
    """The plan warned of that; the check would let no image come to be."""
    support = (
        Support("torch", "A100", "8.0", "native", "sm_80", "documented"),
        Support("torch", "T4", "7.5", "native", "sm_75", "documented"),
        Support("triton", "T4", "7.5", "none", None, "measured"),
    )
    for form in ("dockerfile", "apptainer"):
        text = render(replace(GOOD, support=support), form)
        assert "--compile-only --gpu 8.0\n" in text or "--compile-only --gpu 8.0 \\\n" in text
        assert "--compile-only --gpu 7.5 --only arch-coverage --only nvrtc" in text
        alone = render(replace(GOOD, support=support[1:]), form)
        assert alone.count("--compile-only") == 1 and "--gpu 7.5 --only" in alone


def test_a_plan_without_cuda_asks_for_no_driver() -> None:
    cpu = replace(GOOD, cuda="cpu", packages=(FILELOCK,), support=(), driver=None, environment={})
    text = render(cpu, "dockerfile")
    assert "NVIDIA" not in text.replace("NVIDIA GeForce", "")
    assert "--gpus" not in text


PLANS = {"wheels": GOOD, "compiled": compiled(), "tree": compiled("2.9.0", "12.6", "3.12", SDIST, TREE)}
LINKED = replace(
    compiled(), toolchain=replace(compiled().toolchain or Toolchain(None, None, None), environment={"A": "$B"})
)


@pytest.mark.skipif(HADOLINT is None, reason="hadolint has no wheel for this platform")
@pytest.mark.parametrize("name", PLANS)
def test_a_real_parser_and_a_real_linter_take_the_dockerfile(name: str, tmp_path: Path) -> None:
    plan = LINKED if name == "compiled" else PLANS[name]
    (tmp_path / "Snippet").write_text("FROM debian:12\n" + render(plan, "dockerfile-snippet"))
    linted = subprocess.run([HADOLINT or "", str(tmp_path / "Snippet")], capture_output=True, text=True, check=False)
    assert linted.stdout == "", linted.stdout
    parser = pytest.importorskip("dockerfile")
    path = tmp_path / "Dockerfile"
    path.write_text(render(plan, "dockerfile"))
    words = [command.cmd for command in parser.parse_file(str(path))]
    assert words.count("FROM") == (4 if name == "wheels" else 5)
    assert words[-1] == "ENV"
    linted = subprocess.run([HADOLINT or "", str(path)], capture_output=True, text=True, check=False)
    assert linted.stdout == "", linted.stdout


@pytest.mark.parametrize("name", PLANS)
def test_the_commands_of_both_kinds_are_the_same(name: str) -> None:
    docker, apptainer = render(PLANS[name], "dockerfile"), render(PLANS[name], "apptainer")
    for line in apptainer.splitlines():
        if line.startswith("    ") and ("pip install" in line or "apt-get" in line):
            assert line.strip() in docker
    assert ("--no-install-recommends g++ git\n" in apptainer) is (name == "tree")


def test_a_tree_without_cuda_code_is_built_in_isolation_with_git_alone() -> None:
    tree = replace(TREE, name="pure", url="git+https://example.org/pure@v1")
    made = recipe(replace(GOOD, packages=(FILELOCK, tree), toolchain=None), Catalogue())
    assert (made.build_apt, made.compiling) == (("git",), None)
    dockerfile = render(compiled("2.9.0", "12.6", "3.12", SDIST, TREE, tree), "dockerfile")
    assert "pip install --no-deps 'pure @ git+https" in dockerfile
    assert "pip install --no-deps --no-build-isolation --no-cache-dir 'apex @ git+https" in dockerfile


@pytest.mark.parametrize("url", ["file:///src/x", "git+file:///src/x@v1", "file:///src/x-1.0-py3-none-any.whl"])
@pytest.mark.parametrize("form", ["dockerfile", "dockerfile-snippet", "apptainer"])
def test_what_is_on_this_computer_is_in_no_container(url: str, form: str) -> None:
    with pytest.raises(UsageError, match=r"x comes from .*/src/x.*, which does not exist in the container"):
        render(replace(GOOD, packages=(replace(TREE, name="x", url=url),)), form)


def test_the_shell_of_a_definition_file_parses(tmp_path: Path) -> None:
    script = render(PLANS["tree"], "apptainer").split("%post\n")[1].split("\nBootstrap:")[0]
    (tmp_path / "post.sh").write_text(script)
    parsed = subprocess.run(["sh", "-n", str(tmp_path / "post.sh")], capture_output=True, text=True, check=False)
    assert (parsed.returncode, parsed.stderr) == (0, "")

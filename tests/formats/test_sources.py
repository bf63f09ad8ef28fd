"""How the formats of commands and of containers compile CUDA sources: as an install does."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace

from envsolve.formats import render
from envsolve.planning.plan import Plan
from envsolve.toolchain.model import SITE_PACKAGES, Toolchain
from tests.formats.plans import FILELOCK, GOOD, TORCH, package

HOME = f"{SITE_PACKAGES}/nvidia/cu13"
SDIST = replace(package("flash-attn", "2.8.3"), filename="flash_attn-2.8.3.tar.gz", kind="sdist")
OTHER = replace(package("docopt", "0.6.2"), filename="docopt-0.6.2.tar.gz", kind="sdist")
TREE = replace(package("apex", "0+unread"), index=None, filename=None, url="git+https://example.org/apex", kind="sdist")
ARCHS = {"TORCH_CUDA_ARCH_LIST": "8.6;9.0", "FORCE_CUDA": "1"}
IN_PLAN = Toolchain(
    "13.0", "gcc 13", "8.6;9.0", compiles=("flash-attn", "apex"), nvcc_from="pip", CUDA_HOME=HOME, environment=ARCHS
)
ON_MACHINE = replace(IN_PLAN, nvcc_from="machine", CUDA_HOME="/opt/cuda 13")
NOWHERE = replace(IN_PLAN, nvcc_from=None, CUDA_HOME=None, get_nvcc="conda create -p ~/c x && export CUDA_HOME=~/c")


def compiling(toolchain: Toolchain, *packages: str) -> Plan:
    chosen = [p for p in (SDIST, OTHER, TREE) if p.name in packages]
    return replace(GOOD, packages=(FILELOCK, TORCH, *chosen), toolchain=toolchain)


@pytest.mark.parametrize(
    ("form", "install"),
    [
        ("pip", "python -m pip install --no-build-isolation --no-cache-dir"),
        ("uv", "uv pip install --no-build-isolation --no-cache"),
    ],
)
def test_sources_are_compiled_after_all_else_without_isolation(form: str, install: str) -> None:
    lines = render(compiling(IN_PLAN, "flash-attn", "apex", "docopt"), form).splitlines()
    assert lines[-2].startswith(install) and lines[-2].endswith("flash-attn==2.8.3")
    assert "--no-deps" in lines[-2] and "--no-deps" not in lines[-1]
    assert lines[-1] == f"{install} 'apex @ git+https://example.org/apex'"
    before = "\n".join(lines[:-2])
    assert "flash-attn" not in before and "docopt==0.6.2" in before
    assert "TORCH_CUDA_ARCH_LIST='8.6;9.0' FORCE_CUDA=1" in before and "MAX_JOBS" in before


@pytest.mark.parametrize(
    ("toolchain", "says"),
    [
        (IN_PLAN, '/nvidia/cu13"\nfor file in'),
        (ON_MACHINE, "export CUDA_HOME='/opt/cuda 13'\n"),
        (NOWHERE, "conda create -p ~/c x && export CUDA_HOME=~/c\n"),
    ],
)
def test_where_the_nvcc_is(toolchain: Toolchain, says: str) -> None:
    text = render(compiling(toolchain, "flash-attn"), "pip")
    assert says in text
    assert ("LDFLAGS=" in text) is (toolchain is IN_PLAN)
    assert ("CPATH=" in text) is (toolchain is not IN_PLAN)


@pytest.mark.skipif(not shutil.which("sh"), reason="needs a POSIX shell")
@pytest.mark.parametrize("form", ["pip", "uv"])
@pytest.mark.parametrize("toolchain", [IN_PLAN, ON_MACHINE, NOWHERE], ids=["plan", "machine", "nowhere"])
def test_a_shell_takes_the_commands(form: str, toolchain: Toolchain) -> None:
    text = render(compiling(toolchain, "flash-attn", "apex"), form)
    read = subprocess.run(["sh", "-n"], input=text, text=True, capture_output=True)
    assert (read.returncode, read.stderr) == (0, "")
    assert "flash-attn" in text and "apex" in text


@pytest.mark.skipif(not shutil.which("gcc"), reason="needs gcc")
def test_the_commands_make_the_stub_that_is_linked_where_no_driver_is(tmp_path: Path) -> None:
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "cuda.h").write_text("CUresult CUDAAPI cuInit(unsigned int Flags);\n#define cu_no 1\n")
    line = next(line for line in render(compiling(IN_PLAN, "flash-attn"), "uv").splitlines() if "stubs" in line)
    subprocess.run(["sh", "-ec", line], env={"PATH": os.environ["PATH"], "CUDA_HOME": str(tmp_path)}, check=True)
    assert ctypes.CDLL(str(tmp_path / "lib" / "stubs" / "libcuda.so")).cuInit


@pytest.mark.parametrize("form", ["dockerfile", "apptainer"])
def test_a_container_compiles_as_an_install_does(form: str) -> None:
    toolchain = replace(IN_PLAN, nvcc="12.6", compiles_at_use=("flash-attn",), gcc_min=9, gcc_max=13)
    plan = replace(compiling(toolchain, "flash-attn", "docopt"), environment={"PATH": f"{HOME}/bin:$PATH"})
    text = render(plan, form)
    compiled = "--require-hashes --no-build-isolation --no-cache-dir -r /opt/env/compiled.txt"
    ordinary = "--require-hashes -r /opt/env/sources.txt"
    assert text.index(ordinary) < text.index("export FORCE_CUDA=1") < text.index(compiled)
    assert 'PATH="${CUDA_HOME}/bin:${PATH}"' in text
    final = text[text.index(compiled) :]
    assert "/opt/env/bin:/opt/env/lib/python3.12/site-packages/nvidia/cu13/bin:${PATH}" in final
    assert text.count("apt-get install -y --no-install-recommends g++") == 2, "where it runs, too"

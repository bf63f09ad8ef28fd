"""Programs on PATH: toolkits, compilers, interpreters, installers. The programs are small scripts that really run."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from envsolve.machine.model import HostCompiler, Installer, Interpreter, Toolkit
from envsolve.machine.nvidia import own_library
from envsolve.machine.tools import (
    find_compilers,
    find_installers,
    find_interpreters,
    find_toolkits,
    read_compiler,
    read_installer,
    read_interpreter,
    read_toolkit,
    tool_version,
)
from envsolve.machine.tools import written_version as toolkit_version

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the programs are shell scripts")

NVCC = "echo 'Cuda compilation tools, release 12.4, V12.4.131'"
SYSTEM = os.environ["PATH"]


def script(path: Path, body: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def file(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def toolkit(root: Path, release: str = NVCC) -> Path:
    script(root / "bin/nvcc", release)
    file(root / "bin/nvcc.profile")
    return root


# -- toolkits -------------------------------------------------------------------------------------------------------


def test_each_toolkit_counts_once_with_the_first_way_to_it(tmp_path: Path) -> None:
    real = toolkit(tmp_path / "usr/local/cuda-12.4")
    (tmp_path / "usr/local/cuda").symlink_to(real)
    environ = {"CUDA_HOME": "/usr/local/cuda", "PATH": "/usr/local/cuda/bin"}
    assert find_toolkits(environ, tmp_path) == {real.resolve(): "CUDA_HOME"}
    assert find_toolkits({"PATH": environ["PATH"]}, tmp_path) == {real.resolve(): "nvcc on PATH"}
    assert find_toolkits({}, tmp_path) == {real.resolve(): "/usr/local/cuda"}
    assert read_toolkit(real, {"PATH": SYSTEM}) == Toolkit("12.4", str(real), True)


@pytest.mark.parametrize("variable", ["CUDA_HOME", "CONDA_PREFIX", "PATH"])
@pytest.mark.parametrize("name", ["/loop", f"/{'a' * 300}"], ids=["loop", "too long"])
def test_a_folder_that_cannot_be_holds_nothing(tmp_path: Path, variable: str, name: str) -> None:
    (tmp_path / "loop").symlink_to("loop")
    assert find_toolkits({variable: name}, tmp_path) == {}
    assert find_compilers({variable: name}, tmp_path) == []
    assert own_library("580.95.05", {"LD_LIBRARY_PATH": name}, root=tmp_path) is None


def test_several_toolkits(tmp_path: Path) -> None:
    toolkit(tmp_path / "usr/local/cuda-12.4")
    file(tmp_path / "usr/local/cuda-11.8/version.json", '{"cuda": {"name": "CUDA SDK", "version": "11.8.0"}}')
    file(tmp_path / "usr/local/cuda-empty/README")
    file(tmp_path / "env/lib/libcudart.so.12.6.77")
    found = find_toolkits({"CONDA_PREFIX": "/env"}, tmp_path)
    values = [read_toolkit(folder, {"PATH": SYSTEM}) for folder in found]
    assert [(value.version, value.nvcc) for value in values] == [("12.6", False), ("12.4", True), ("11.8", False)]


@pytest.mark.parametrize(
    ("name", "text", "version"),
    [
        ("version.json", '{"cuda": {"version": "12.4.1"}}', "12.4"),
        ("version.json", '{"cuda": []}', None),
        ("version.json", "not json", None),
        ("version.txt", "CUDA Version 10.2.89\n", "10.2"),
        ("lib64/libcudart.so.11.8.89", "", "11.8"),
        ("targets/sbsa-linux/lib/libcudart.so.13.0.48", "", "13.0"),
        ("lib64/libcudart.so.12", "", None),
        ("README", "", None),
    ],
)
def test_written_versions(tmp_path: Path, name: str, text: str, version: str | None) -> None:
    file(tmp_path / name, text)
    assert toolkit_version(tmp_path) == version


def test_an_nvcc_that_stands_in_for_another_leads_to_the_real_one(tmp_path: Path) -> None:
    real = toolkit(tmp_path / "opt/toolkit", f'[ "$1" = --dryrun ] && echo "#$ _HERE_=$(dirname $0)" || {NVCC}')
    script(tmp_path / "bin/nvcc", f'exec {real}/bin/nvcc "$@"')
    assert find_toolkits({"PATH": f"{tmp_path}/bin:{SYSTEM}"}, Path("/")).get(real) == "nvcc on PATH"


def test_a_toolkit_whose_nvcc_fails_is_read_by_its_files(tmp_path: Path) -> None:
    root = toolkit(tmp_path / "cuda", "exit 1")
    file(root / "version.txt", "CUDA Version 10.2.89")
    assert read_toolkit(root, {"PATH": SYSTEM}) == Toolkit("10.2", str(root), True)


# -- compilers ------------------------------------------------------------------------------------------------------

GCC = 'case "$1" in --version) echo "gcc (Debian 12.2.0-14) 12.2.0";; -dumpfullversion) echo 12.2.0;; esac'


def test_compilers_count_once_under_their_first_name(tmp_path: Path) -> None:
    script(tmp_path / "bin/x86_64-linux-gnu-gcc-12", GCC)
    for name in ("gcc-12", "gcc"):
        (tmp_path / "bin" / name).symlink_to("x86_64-linux-gnu-gcc-12")
    script(tmp_path / "bin/gcc-ar", "exit 1")
    script(tmp_path / "bin/clang-17", "echo 'Ubuntu clang version 17.0.6 (++2023)'")
    script(tmp_path / "bin/g++", "exit 1")
    paths = find_compilers({"PATH": f"{tmp_path}/bin"})
    assert [path.name for path in paths] == ["g++", "gcc", "clang-17"]
    assert [read_compiler(path, {"PATH": SYSTEM}) for path in paths] == [
        None,
        HostCompiler("gcc", "12.2.0", f"{tmp_path}/bin/gcc"),
        HostCompiler("clang", "17.0.6", f"{tmp_path}/bin/clang-17"),
    ]


def test_a_compiler_cache_does_not_swallow_its_compilers(tmp_path: Path) -> None:
    script(tmp_path / "ccache", GCC)
    for name in ("gcc", "g++"):
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.symlink_to(tmp_path / "ccache")
    assert [path.name for path in find_compilers({"PATH": f"{tmp_path}/bin"})] == ["g++", "gcc"]


def test_clang_by_the_name_of_gcc_is_clang(tmp_path: Path) -> None:
    path = script(tmp_path / "gcc", "echo 'Apple clang version 15.0.0 (clang-1500)'")
    assert read_compiler(path, {"PATH": SYSTEM}) == HostCompiler("clang", "15.0.0", str(path))


# -- interpreters ---------------------------------------------------------------------------------------------------


def test_shims_stand_for_the_installed_interpreters(tmp_path: Path) -> None:
    script(tmp_path / "pyenv/shims/python", "echo a shim must not be run; exit 1")
    script(tmp_path / "pyenv/versions/3.11.7/bin/python", "printf 3.11.7")
    script(tmp_path / "pyenv/versions/broken/bin/python", "exit 1")
    script(tmp_path / "bin/python3.13t", "printf 3.13.0")
    script(tmp_path / "bin/python3-config", "printf 3.13.0")
    environ = {"PATH": f"{tmp_path}/pyenv/shims:{tmp_path}/bin:{tmp_path}/none"}
    paths = find_interpreters(environ)
    assert [read_interpreter(path, {"PATH": SYSTEM}) for path in paths] == [
        Interpreter("3.11.7", f"{tmp_path}/pyenv/versions/3.11.7/bin/python"),
        None,
        Interpreter("3.13.0", f"{tmp_path}/bin/python3.13t"),
    ]


def test_the_running_interpreter_says_its_version() -> None:
    found = read_interpreter(Path(sys.executable), os.environ)
    assert found == Interpreter("{}.{}.{}".format(*sys.version_info[:3]), sys.executable)


# -- installers -----------------------------------------------------------------------------------------------------


def test_the_first_installer_of_a_name_counts(tmp_path: Path) -> None:
    script(tmp_path / "a/uv", "echo 'uv 0.9.5 (abc 2025-10-21)'")
    script(tmp_path / "b/uv", "echo 'uv 0.1.0'")
    script(tmp_path / "b/conda", "exit 1")
    found = find_installers([tmp_path / "a", tmp_path / "b"])
    assert [read_installer(name, path, {"PATH": SYSTEM}) for name, path in found.items()] == [
        Installer("uv", "0.9.5", f"{tmp_path}/a/uv"),
        Installer("conda", None, f"{tmp_path}/b/conda"),
    ]


@pytest.mark.parametrize(
    ("entries", "version"),
    [
        (["lib/python3.12/site-packages/pip-26.0.dist-info/METADATA"], "26.0"),
        (["lib/python3/dist-packages/pip-23.0.1.dist-info/METADATA"], "23.0.1"),
        (["conda-meta/pip-25.1-pyh8b19718_0.json"], "25.1"),
        # Two Pythons share /usr/bin: which of them the script belongs to is for it to say.
        ([f"lib/python3.{minor}/site-packages/pip-{minor}.0.dist-info/METADATA" for minor in (11, 12)], None),
        (["lib/python3.12/site-packages/pip_tools-7.4.dist-info/METADATA"], None),
    ],
)
def test_versions_by_metadata(tmp_path: Path, entries: list[str], version: str | None) -> None:
    path = script(tmp_path / "bin/pip", "exit 1")
    for entry in entries:
        file(tmp_path / entry)
    assert tool_version("pip", path) == version

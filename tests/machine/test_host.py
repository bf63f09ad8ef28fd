from __future__ import annotations

import platform
from pathlib import Path

import pytest

from envsolve.machine import detect
from envsolve.values import processor

Files = dict[str, str]


def tree(root: Path, files: Files) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize(
    ("files", "text"),
    [
        ({"etc/os-release": 'NAME="Ubuntu"\nID=ubuntu\nVERSION_ID="22.04"\n'}, "ubuntu 22.04"),
        ({"usr/lib/os-release": "# comment\nID='arch'\nBUILD_ID=rolling\n"}, "arch"),
        ({"etc/os-release": 'ID="unbalanced', "usr/lib/os-release": "ID=fedora\nVERSION_ID=41"}, "fedora 41"),
        ({}, None),
    ],
)
def test_distro(tmp_path: Path, files: Files, text: str | None) -> None:
    assert detect.distro(tree(tmp_path, files))[0] == text


@pytest.mark.parametrize(
    ("files", "environ", "runtime"),
    [
        ({}, {}, None),
        ({".dockerenv": ""}, {}, "docker"),
        ({"run/.containerenv": ""}, {"container": "podman"}, "podman"),
        ({}, {"container": "lxc"}, "lxc"),
        ({"run/systemd/container": "systemd-nspawn\n"}, {}, "systemd-nspawn"),
        ({".singularity.d/runscript": ""}, {}, "apptainer"),
        ({}, {"APPTAINER_CONTAINER": "/x.sif"}, "apptainer"),
        ({".dockerenv": ""}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "kubernetes"),
        ({"proc/1/cgroup": "0::/kubepods.slice/docker-abc"}, {}, "kubernetes"),
        ({"proc/1/cgroup": "12:cpu:/docker/abc"}, {}, "docker"),
        ({"proc/1/cgroup": "0::/init.scope"}, {}, None),
    ],
)
def test_container(tmp_path: Path, files: Files, environ: dict[str, str], runtime: str | None) -> None:
    assert detect.container(tree(tmp_path, files), environ)[0] == runtime


@pytest.mark.parametrize(
    ("release", "wsl"),
    [
        ("5.15.153.1-microsoft-standard-WSL2\n", True),
        ("4.4.0-19041-Microsoft\n", True),
        ("6.8.0-45-generic\n", False),
    ],
)
def test_wsl(tmp_path: Path, release: str, wsl: bool) -> None:
    assert detect.is_wsl(tree(tmp_path, {"proc/sys/kernel/osrelease": release})) is wsl


@pytest.mark.parametrize(
    ("text", "release"),
    [
        ("# R36 (release), REVISION: 3.0, GCID: 36923193, BOARD: generic, EABI: aarch64\n", "36.3"),
        ("# R36 (release), REVISION: 4.3, GCID: 38968081, BOARD: generic\n", "36.4.3"),
        ("# R32 (release), REVISION: 7.1, GCID: 29818004, BOARD: t210ref\n", "32.7.1"),
        ("nothing like it", None),
    ],
)
def test_jetson(tmp_path: Path, text: str, release: str | None) -> None:
    assert detect.jetson(tree(tmp_path, {"etc/nv_tegra_release": text}))[0] == release


def test_no_jetson(tmp_path: Path) -> None:
    assert detect.jetson(tmp_path)[0] is None


def test_musl_is_asked_where_glibc_does_not_answer(tmp_path: Path) -> None:
    loader = tree(
        tmp_path, {"lib/ld-musl-x86_64.so.1": "#!/bin/sh\necho 'musl libc (x86_64)\nVersion 1.2.4' >&2; exit 1"}
    )
    (loader / "lib/ld-musl-x86_64.so.1").chmod(0o755)

    def no_glibc(name: str) -> str:
        raise ValueError(name)

    assert detect.libc(tmp_path, {"PATH": "/usr/bin:/bin"}, no_glibc) == ("musl 1.2", "/lib/ld-musl-x86_64.so.1")
    assert detect.libc(tmp_path / "none", {}, no_glibc)[0] is None
    assert detect.libc(tmp_path, {}, lambda name: "glibc 2.35") == ("glibc 2.35", "confstr(CS_GNU_LIBC_VERSION)")


@pytest.mark.parametrize(
    ("name", "arch"), [("AMD64", "x86_64"), ("x86_64", "x86_64"), ("arm64", "aarch64"), ("aarch64", "aarch64")]
)
def test_architecture(name: str, arch: str) -> None:
    assert processor(name) == arch


def test_this_host_agrees_with_python() -> None:
    value, sources = detect.read_platform()
    assert value.os == platform.system().lower()
    assert value.arch == processor(platform.machine())
    name, version = platform.libc_ver()
    if name == "glibc":
        assert value.libc == f"glibc {version}"
    assert {f"platform.{field}" for field in ("os", "arch")} <= set(sources)

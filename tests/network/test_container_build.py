"""A Dockerfile of a plan, built for real: Buildah in a root file system of Debian, from nothing but packages.

No registry is asked: the base image is made of Debian 12, whose own Python is 3.11.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.network,
    pytest.mark.skipif(
        not shutil.which("debootstrap") or os.geteuid() != 0, reason="needs debootstrap, and root to mount and chroot"
    ),
]

MIRROR = "http://deb.debian.org/debian"
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
PREPARE = """\
set -e
c=$(buildah from scratch)
buildah add -q $c /work/base.tar /
buildah commit -q $c localhost/python
buildah rm -a >/dev/null
"""
BUILD = """\
cd /work && buildah bud --network host --ulimit nofile=$(ulimit -n) --ulimit nproc=$(ulimit -u) --layers=false \\
    --build-arg BASE=localhost/python --build-arg ENVSOLVE="$(ls ./envsolve-*.whl)" -f Dockerfile -t made .
"""


def ran(*words: str | Path, cwd: Path | None = None) -> str:
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, check=False, cwd=cwd)
    assert done.returncode == 0, f"{words}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout + done.stderr


def debian(release: str, packages: str, folder: Path) -> Path:
    ran("debootstrap", "--variant=minbase", f"--include=ca-certificates,{packages}", release, folder, MIRROR)
    shutil.copy(CERTIFICATES, folder / "etc/ssl/certs/ca-certificates.crt")
    return folder


@pytest.fixture
def builder(tmp_path: Path) -> Iterator[Path]:
    """A root file system with Buildah; it unpacks layers where its root is a mount alone."""
    root = debian("trixie", "buildah,netavark,crun", tmp_path / "root")
    for name in ("resolv.conf", "hosts"):
        shutil.copy(Path("/etc") / name, root / "etc" / name)
    mounts: list[tuple[str, str | Path, Path]] = [
        ("--bind", root, root),
        ("-tproc", "proc", root / "proc"),
        ("--rbind", "/dev", root / "dev"),
    ]
    done = []
    try:
        for option, what, where in mounts:
            ran("mount", option, what, where)
            done.append(where)
        yield root
    finally:
        for where in reversed(done):
            subprocess.run(["umount", "--recursive", "--lazy", str(where)], check=False)


def in_root(root: Path, script: str) -> str:
    settings = ["STORAGE_DRIVER=vfs", "BUILDAH_ISOLATION=chroot", "HOME=/root", "PATH=/usr/sbin:/usr/bin:/sbin:/bin"]
    return ran("chroot", root, "/usr/bin/env", "-i", *settings, "bash", "-c", script)


def test_the_dockerfile_of_a_plan_builds_and_proves_itself(builder: Path, tmp_path: Path) -> None:
    base = debian("bookworm", "python3,python3-venv", tmp_path / "base")
    (base / "usr/bin/python").symlink_to("python3")
    work = builder / "work"
    work.mkdir()
    ran("tar", "-C", base, "-cf", work / "base.tar", ".")
    in_root(builder, PREPARE)
    (work / "base.tar").unlink()
    ran(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", work, Path(__file__).parents[2])
    target = "H100, driver 580.65.06, linux-x86_64, glibc 2.36"
    plan = [
        sys.executable,
        "-c",
        "from envsolve.cli.main import run; run()",
        "plan",
        "triton",
        "numpy",
        "--target",
        target,
        "--python",
        "3.11",
    ]
    ran(*plan, "--for", "docker", "-o", work / "Dockerfile")
    said = in_root(builder, BUILD)
    assert "cubins for sm_90" in said
    assert "Successfully tagged localhost/made" in said

"""A Dockerfile of a plan, built for real by Buildah."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.network.roots import ENVSOLVE, NEEDS_ROOT, TARGET, python, ran, with_builder

pytestmark = [pytest.mark.network, NEEDS_ROOT]

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


@pytest.fixture
def builder(tmp_path: Path) -> Iterator[Path]:
    """A root file system with Buildah; it unpacks layers where its root is a mount alone."""
    root = with_builder("trixie", "buildah,netavark,crun", tmp_path / "root")
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
    settings = [
        "STORAGE_DRIVER=overlay",
        "BUILDAH_ISOLATION=chroot",
        "HOME=/root",
        "PATH=/usr/sbin:/usr/bin:/sbin:/bin",
    ]
    return ran("chroot", root, "/usr/bin/env", "-i", *settings, "bash", "-c", script)


def test_the_dockerfile_of_a_plan_builds_and_proves_itself(builder: Path, tmp_path: Path) -> None:
    base, work = python(tmp_path / "base"), builder / "work"
    ran("tar", "-C", base, "-cf", work / "base.tar", ".")
    in_root(builder, PREPARE)
    (work / "base.tar").unlink()
    ran(*ENVSOLVE, "plan", "triton", "numpy", *TARGET, "--for", "docker", "-o", work / "Dockerfile")
    said = in_root(builder, BUILD)
    assert "cubins for sm_90" in said
    assert "Successfully tagged localhost/made" in said

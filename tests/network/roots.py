"""Root file systems of Debian, made of nothing but packages, in which builders of containers run.

No registry is asked: what stands in for the official image of Python 3.11 is Debian 12, whose own Python that is.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

NEEDS_ROOT = pytest.mark.skipif(
    not shutil.which("debootstrap") or os.geteuid() != 0, reason="needs debootstrap, and root to mount and map ids"
)
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
ENVSOLVE = (sys.executable, "-c", "from envsolve.cli.main import run; run()")
TARGET = ("--target", "H100, driver 580.65.06, linux-x86_64", "--python", "3.11")
# Makes a folder the root of a mount namespace, and runs a script there. Programs that unpack layers want a root that is
# a mount.
PIVOT = """\
set -e
mount --make-rprivate /
mount --bind $0 $0
for folder in proc dev sys; do mount --rbind /$folder $0/$folder; done
mkdir -p $0/old && cd $0 && pivot_root . old && umount -l /old
exec env -i HOME=/root TMPDIR=/work PATH=/usr/sbin:/usr/bin:/sbin:/bin bash -c "cd /work && $1"
"""


def ran(*words: str | Path, cwd: Path | None = None) -> str:
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, check=False, cwd=cwd)
    assert done.returncode == 0, f"{words}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout + done.stderr


def debian(release: str, packages: str, folder: Path) -> Path:
    """From the mirror that debootstrap takes by itself."""
    ran("debootstrap", "--variant=minbase", f"--include=ca-certificates,{packages}", release, folder)
    shutil.copy(CERTIFICATES, folder / "etc/ssl/certs/ca-certificates.crt")
    return folder


def with_builder(release: str, packages: str, folder: Path) -> Path:
    """A root file system with a builder, this machine's names, and a folder ``work`` with a wheel of envsolve."""
    root = debian(release, packages, folder)
    for name in ("resolv.conf", "hosts"):
        shutil.copy(Path("/etc") / name, root / "etc" / name)
    work = root / "work"
    work.mkdir()
    ran(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", work, Path(__file__).parents[2])
    return root


def python(folder: Path, packages: str = "") -> Path:
    """What stands in for the official image of Python."""
    base = debian("bookworm", f"python3,python3-venv{packages}", folder)
    (base / "usr/bin/python").symlink_to("python3")
    return base

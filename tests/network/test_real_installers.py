"""Locks of real packages, put before real pip and real uv: both would install the plan and nothing else."""

from __future__ import annotations

import platform
import re
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.network.tools import Tools, pins

_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
_LIBC, _LIBC_VERSION = platform.libc_ver()
_ASKED = ("torch", "torchvision", "transformers")
_WOULD_INSTALL = re.compile(r"^Would install (.+)$", re.MULTILINE)

pytestmark = [
    pytest.mark.network,
    pytest.mark.skipif(
        _LIBC != "glibc" or Version(_LIBC_VERSION) < Version("2.28"),
        reason="the installers judge wheels for this machine, and torch's are for glibc 2.28 and later",
    ),
]


@pytest.fixture(scope="module")
def interpreter(tools: Tools) -> str:
    """An empty environment, so that nothing counts as installed already."""
    folder = tools.folder / "environment"
    tools.run(sys.executable, "-m", "venv", "--without-pip", str(folder))
    return str(folder / "bin" / "python")


def planned(tools: Tools, form: str, *asked: str) -> tuple[str, dict[str, str]]:
    """A lock for an H100 on this machine's platform, as a file, and the versions it must stand for."""
    # The day keeps both runs to one answer, whatever is published between them.
    target = f"H100, driver 580.95.05, python {_PYTHON}, linux-{platform.machine()}, glibc {_LIBC_VERSION}"
    options = (*asked, "--target", target, "--exclude-newer", "2026-11-25")
    # pip takes a lock by its name, pylock.toml; one folder a lock keeps them apart.
    folder = Path(tools.folder, f"{form}-{len(asked)}")
    folder.mkdir(exist_ok=True)
    lock = folder / {"pylock": "pylock.toml", "requirements": "requirements.txt"}[form]
    tools.envsolve(*options, "--format", form, "-o", str(lock))
    return str(lock), {p["name"]: p["version"] for p in tools.plan(*options)["packages"]}


def pip_would_install(tools: Tools, interpreter: str, *arguments: str) -> dict[str, str]:
    pip = (sys.executable, "-m", "pip", "--python", interpreter, "install", "--dry-run")
    found = _WOULD_INSTALL.search(tools.run(*pip, *arguments).stdout)
    assert found
    pairs = (entry.rpartition("-") for entry in found[1].split())
    return {canonicalize_name(name): number for name, _, number in pairs}


@pytest.mark.parametrize("form", ["pylock", "requirements"])
def test_uv_would_install_the_plan(tools: Tools, interpreter: str, form: str) -> None:
    lock, expected = planned(tools, form, *_ASKED)
    said = tools.uv("sync", "--dry-run", "--require-hashes", "--python", interpreter, lock).stderr
    assert pins([line for line in said.splitlines() if line.startswith(" + ")]) == expected


@pytest.mark.skipif(Version(version("pip")) < Version("26.1"), reason="pip reads lock files from 26.1 on")
def test_pip_would_install_the_lock(tools: Tools, interpreter: str) -> None:
    """Pip fetches every file of a lock even for a dry run, some 2 GB, and checks each against its hash."""
    lock, expected = planned(tools, "pylock", *_ASKED)
    assert pip_would_install(tools, interpreter, "-r", lock) == expected


def test_pip_would_install_the_requirements(tools: Tools, interpreter: str) -> None:
    """Without torch, since a second fetch of its files would prove nothing more."""
    lock, expected = planned(tools, "requirements", "transformers", "pandas")
    assert pip_would_install(tools, interpreter, "--require-hashes", "-r", lock) == expected

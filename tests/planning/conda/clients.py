"""Real conda programs, on channels of the loopback interface alone, with a configuration of their own.

On the package index there is one conda, that which conda-lock carries: 24.7.1, with the classic solver. Others (a newer
one, with the rattler solver, conda-workspaces) are not to be had there; ``ENVSOLVE_CONDA`` names one that is installed.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.condachannel import CondaChannel

CONDA_LOCK = "4.0.3"
# What the conda in it imports, which conda-lock does not need itself.
_BESIDE = ("pycosat", "conda-package-handling", "pluggy", "boltons", "ruamel.yaml", "frozendict", "distro", "archspec")
_AND = ("truststore", "tqdm", "platformdirs", "zstandard")


@dataclass(frozen=True)
class Client:
    """A conda program, and the folder that all it writes goes to."""

    program: Path
    folder: Path
    beside: Path | None = None
    """conda-lock, where that came with it."""

    @property
    def version(self) -> tuple[int, ...]:
        said = self.run("--version").stdout
        return tuple(map(int, re.findall(r"\d+", said)[:3]))

    def environ(self, cuda: str | None) -> Mapping[str, str]:
        """The variables that it runs with; nothing of the user's conda is among them."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("CONDA", "MAMBA"))}
        solver = {"CONDA_SOLVER": os.environ.get("CONDA_SOLVER", "classic" if self.beside else "rattler")}
        own = {
            "HOME": str(self.folder),
            "CONDARC": str(self.folder / "condarc"),
            "CONDA_PKGS_DIRS": str(self.folder / "pkgs"),
            "CONDA_ENVS_PATH": str(self.folder / "envs"),
            "CONDA_REPORT_ERRORS": "false",
            "CONDA_REMOTE_MAX_RETRIES": "0",
            "CONDA_OVERRIDE_CUDA": cuda or "",  # empty: the machine has none
        }
        return {**kept, **solver, **own}

    def configure(self, channel: CondaChannel, *, others: str) -> None:
        """Name the user's own channel, and an empty ``nodefaults``: some versions of conda ask for one of that name."""
        for subdir in ("noarch", "linux-64"):
            folder = channel.root / "nodefaults" / subdir
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "repodata.json").write_text(json.dumps({"info": {"subdir": subdir}, "packages": {}}))
        base = channel.url.rpartition("/")[0]
        settings = {
            "channels": [others],
            "default_channels": [others],
            "custom_channels": {"nodefaults": base},
            "add_pip_as_python_dependency": False,
            "notify_outdated_conda": False,
        }
        (self.folder / "condarc").write_text(json.dumps(settings))

    def run(self, *words: str, cuda: str | None = None, program: Path | None = None, cwd: Path | None = None) -> Ended:
        """Run conda, or what came with it, on a machine whose driver is for a CUDA, or that has none."""
        line = [str(program or self.program), *words]
        done = subprocess.run(
            line, env=self.environ(cuda), cwd=cwd or self.folder, capture_output=True, text=True, timeout=300
        )
        return Ended(done.returncode, done.stdout, done.stderr)


@dataclass(frozen=True)
class Ended:
    """What a program said."""

    code: int
    stdout: str
    stderr: str

    @property
    def said(self) -> str:
        return " ".join((self.stdout + self.stderr).split())


def published(folder: Path) -> Client:
    """The conda that conda-lock carries, from the package index."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    python = folder / "venv" / "bin" / "python"
    wanted = [f"conda-lock=={CONDA_LOCK}", *_BESIDE, *_AND]
    subprocess.run([sys.executable, "-m", "uv", "pip", "install", "-q", "--python", python, *wanted], check=True)
    [package] = (folder / "venv").glob("lib/python*/site-packages/conda_lock/_vendor/conda")
    (package.parents[2] / "conda").symlink_to(package)  # under its own name it is a whole conda
    return Client(_program(folder, f'exec "{python}" -m conda "$@"'), folder, folder / "venv" / "bin" / "conda-lock")


def installed(folder: Path, program: str) -> Client:
    """A conda of this machine."""
    return Client(_program(folder, f'exec "{program}" "$@"'), folder)


def _program(folder: Path, line: str) -> Path:
    path = folder / "conda"
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)
    return path

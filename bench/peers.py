"""The tools that are timed, each at its newest in an environment of its own, and their words for the same question."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

from bench.processes import Tool

ROOT = Path(__file__).parent.parent
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
H100 = f"H100, driver 580.95.05, python {PYTHON}, linux-x86_64, glibc 2.36"
_PEERS = ("uv", "pip", "rigsolve")


@dataclass(frozen=True)
class Bench:
    """Where the tools are, and where they keep what they keep.

    Attributes:
        own: Environment with this envsolve, installed as users have it: a wheel, compiled to byte code.
        peers: Environment with the others.
        scratch: For caches and outputs.
    """

    own: Path
    peers: Path
    scratch: Path

    def envsolve(self, *words: str, cache: str = "envsolve") -> Tool:
        """``envsolve WORDS``."""
        folder = self.scratch / cache
        environment = {"ENVSOLVE_CACHE_DIR": str(folder), "ENVSOLVE_CATALOGUE": str(self.scratch / "no-catalogue")}
        return Tool((str(self.own / "bin" / "envsolve"), *words), environment, (folder,))

    def planned(self, asked: Path, *words: str, target: str = H100) -> Tool:
        """A plan as JSON."""
        return self.envsolve("plan", "-r", str(asked), "--target", target, "--format", "json", *words)

    def uv(self, asked: Path, *words: str) -> Tool:
        """``uv pip compile`` for the Python that envsolve plans for."""
        folder = self.scratch / "uv"
        python = str(self.own / "bin" / "python")
        command = (str(self.peers / "bin" / "uv"), "pip", "compile", "-q", "--no-annotate", "--no-header", "--python")
        return Tool((*command, python, *words, str(asked)), {"UV_CACHE_DIR": str(folder)}, (folder,))

    def pip(self, asked: Path, most: int) -> Tool:
        """``pip lock``, which downloads what it locks."""
        folder = self.scratch / "pip"
        lock = str(self.scratch / "pylock.pip.toml")
        command = (str(self.peers / "bin" / "python"), "-m", "pip", "lock", "-q", "-r", str(asked), "-o", lock)
        environment = {"PIP_CACHE_DIR": str(folder), "PIP_CONSTRAINT": os.devnull}
        return Tool(command, environment, (folder,), most)

    def rigsolve(self, *wanted: str) -> Tool:
        """``rigsolve solve``, which chooses from a table and does not resolve dependencies."""
        target = f"H100,driver=580.95,python={PYTHON},linux"
        command = (str(self.peers / "bin" / "rigsolve"), "solve", "--want", *wanted)
        return Tool((*command, "--python", PYTHON, "--target", target, "--output", "pip"))


def set_up(folder: Path, scratch: Path) -> Bench:
    """Make both environments, with the newest peers and this envsolve.

    Raises:
        subprocess.CalledProcessError: An installation failed.
    """
    own, peers = folder / "own", folder / "peers"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    # The last line replaces what has the same version number and other contents.
    wanted = ((peers, _PEERS), (own, (str(ROOT),)), (own, ("--force-reinstall", "--no-deps", str(ROOT))))
    for place, words in wanted:
        if not (place / "bin" / "python").exists():
            venv.create(place, with_pip=True)
        install = (str(place / "bin" / "python"), "-m", "pip", "install", "-q", "--upgrade", "--compile", *words)
        subprocess.run(install, check=True, env=environment | {"PIP_CONSTRAINT": os.devnull})
    return Bench(own, peers, scratch)


def versions(bench: Bench) -> dict[str, str]:
    """What is timed: each tool's version."""
    found = {"python": sys.version.split()[0]}
    for place, names in ((bench.own, ("envsolve",)), (bench.peers, _PEERS)):
        listed = subprocess.run(
            (str(place / "bin" / "python"), "-m", "pip", "list", "--format", "freeze"), capture_output=True, text=True
        ).stdout
        for name in names:
            match = re.search(rf"^{name}==(\S+)", listed, re.MULTILINE)
            found[name] = match[1] if match else "?"
    return found

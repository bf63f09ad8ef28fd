"""The tools that are timed, each at its newest in an environment of its own, and their words for the same question."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.processes import Tool
from tests.condachannel import CondaChannel, world

ROOT = Path(__file__).parent.parent
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
H100 = f"H100, driver 580.95.05, python {PYTHON}, linux-x86_64, glibc 2.36"
_PEERS = ("uv", "pip", "rigsolve", "py-rattler")


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

    def envsolve(self, *words: str) -> Tool:
        """``envsolve WORDS``."""
        folder = self.scratch / "envsolve"
        environment = {
            "ENVSOLVE_CACHE_DIR": str(folder),
            "ENVSOLVE_CATALOGUE": str(self.scratch / "no-catalogue"),
            "RATTLER_CACHE_DIR": str(folder / "rattler"),
        }
        return Tool((str(self.own / "bin" / "envsolve"), *words), environment, folder)

    def planned(self, asked: Path, *words: str, target: str = H100) -> Tool:
        """A plan as JSON."""
        return self.envsolve("plan", "-r", str(asked), "--target", target, "--format", "json", *words)

    def uv(self, asked: Path, *words: str) -> Tool:
        """``uv pip compile`` for the Python that envsolve plans for."""
        folder = self.scratch / "uv"
        python = str(self.own / "bin" / "python")
        command = (str(self.peers / "bin" / "uv"), "pip", "compile", "-q", "--no-annotate", "--no-header", "--python")
        return Tool((*command, python, *words, str(asked)), {"UV_CACHE_DIR": str(folder)}, folder)

    def pip(self, asked: Path) -> Tool:
        """``pip lock``, which downloads what it locks."""
        folder = self.scratch / "pip"
        lock = str(self.scratch / "pylock.pip.toml")
        command = (str(self.peers / "bin" / "python"), "-m", "pip", "lock", "-q", "-r", str(asked), "-o", lock)
        return Tool(command, {"PIP_CACHE_DIR": str(folder), "PIP_CONSTRAINT": os.devnull}, folder)

    def rigsolve(self, *wanted: str) -> Tool:
        """``rigsolve solve``, which chooses from a table and does not resolve dependencies."""
        target = f"H100,driver=580.95,python={PYTHON},linux"
        command = (str(self.peers / "bin" / "rigsolve"), "solve", "--want", *wanted)
        return Tool((*command, "--python", PYTHON, "--target", target, "--output", "pip"))

    def conda(self, channel: str, *specs: str) -> Tool:
        """A plan of conda packages as JSON."""
        words = ("plan", *specs, "--manager", "conda", "--channel", channel)
        return self.envsolve(*words, "--target", H100, "--format", "json")

    def rattler(self, channel: str, *specs: str) -> Tool:
        """py-rattler's solve of the same specs, and of the Python that envsolve plans for."""
        folder = self.scratch / "rattler"
        program = str(Path(__file__).with_name("rattler_solve.py"))
        command = (str(self.peers / "bin" / "python"), program, channel, *specs, f"python {PYTHON}.*")
        return Tool(command, {"RATTLER_CACHE_DIR": str(folder)}, folder)

    def verdicts(self, machines: int, builds: int) -> Tool:
        """Verdicts in one process."""
        program = str(Path(__file__).with_name("verdicts.py"))
        return Tool((str(self.own / "bin" / "python"), program, str(machines), str(builds)))


@contextmanager
def conda_channel(folder: Path) -> Iterator[str]:
    """The address of a channel with the records of conda-forge that the tests have, and what these depend on."""
    with CondaChannel(folder) as channel:
        channel.add(*world()).fill()
        yield channel.url


def set_up(folder: Path, scratch: Path) -> Bench:
    """Make both environments, with the newest peers and this envsolve; a peer that cannot be had is left out.

    Raises:
        subprocess.CalledProcessError: This envsolve cannot be installed.
    """
    own, peers = folder / "own", folder / "peers"
    for peer in _PEERS:
        _install(peers, peer, check=False)
    _install(own, f"{ROOT}[conda]")
    # Replaces what has the same version number and other contents.
    _install(own, "--force-reinstall", "--no-deps", str(ROOT))
    return Bench(own, peers, scratch)


def _install(place: Path, *words: str, check: bool = True) -> None:
    if not (place / "bin" / "python").exists():
        venv.create(place, with_pip=True)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    install = (str(place / "bin" / "python"), "-m", "pip", "install", "-q", "--upgrade", "--compile", *words)
    subprocess.run(install, check=check, env=environment | {"PIP_CONSTRAINT": os.devnull})


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

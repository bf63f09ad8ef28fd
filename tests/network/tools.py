"""Runs envsolve, uv and pip as processes that no configuration of this machine reaches."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from envsolve._default_index import DEFAULT_INDEX

_CONFIGURATION = ("PIP_", "UV_", "ENVSOLVE_", "XDG_", "PYTHON", "VIRTUAL_ENV", "CONDA_")
_LIMIT = 150


@dataclass(frozen=True)
class Tools:
    """The three tools, with one home and one cache of their own in a scratch folder."""

    folder: Path
    environment: Mapping[str, str] = field(init=False)

    def __post_init__(self) -> None:
        own = {
            "HOME": str(self.folder),
            "XDG_CONFIG_DIRS": str(self.folder / "none"),
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_NO_CACHE_DIR": "1",
            "UV_NO_CONFIG": "1",
            "UV_CACHE_DIR": str(self.folder / "uv"),
            "UV_PYTHON_DOWNLOADS": "never",
            "ENVSOLVE_CACHE_DIR": str(self.folder / "envsolve"),
        }
        kept = {name: value for name, value in os.environ.items() if not name.startswith(_CONFIGURATION)}
        object.__setattr__(self, "environment", {**kept, **own})

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """A command's result; its own words are the failure's message where it fails."""
        done = subprocess.run(
            command, env=self.environment, cwd=self.folder, capture_output=True, text=True, timeout=_LIMIT
        )
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr[-4000:]}"
        return done

    def envsolve(self, *arguments: str) -> str:
        """Standard output of ``envsolve plan`` on the default index."""
        return self.run(program("envsolve"), "plan", "--index-url", DEFAULT_INDEX, *arguments).stdout

    def plan(self, *arguments: str) -> dict[str, Any]:
        """The JSON plan."""
        plan: dict[str, Any] = json.loads(self.envsolve(*arguments, "--format", "json"))
        return plan

    def uv(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """``uv pip ...`` on the default index."""
        return self.run(program("uv"), "pip", *arguments, "--default-index", DEFAULT_INDEX)

    def file(self, name: str, lines: Sequence[str]) -> str:
        """A text file in the scratch folder."""
        path = self.folder / name
        path.write_text("".join(f"{line}\n" for line in lines))
        return str(path)


def program(name: str) -> str:
    """The command of the environment that runs the tests, else the one on the PATH."""
    found = shutil.which(name, path=os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", "")]))
    assert found, f"{name} is not installed: envsolve[test] brings it"
    return found


def pins(lines: Sequence[str]) -> dict[str, str]:
    """``name==version`` lines (a ``+`` before them is uv's, markers and hashes after them are cut) as a mapping."""
    found: dict[str, str] = {}
    for line in lines:
        name, equals, version = line.strip().removeprefix("+ ").partition("==")
        if equals and not name.startswith("#"):
            found[canonicalize_name(name)] = version.split()[0]
    return found

"""pip: the one installed with envsolve, otherwise the one bundled with the environment's Python.

Either is run by the environment's interpreter itself. ``pip --python`` would start that interpreter as a child of pip,
which outlives an install that is killed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from urllib.parse import unquote, urlsplit

from packaging.specifiers import SpecifierSet

from envsolve.install import managers
from envsolve.install.files import File
from envsolve.install.interpreters import Target

# What `pip --python` has the other interpreter run (pip 22.3 and later).
_RUNNER = "pip/__pip-runner__.py"


class Pip:
    """Fills an environment with ``pip install``."""

    name = "pip"
    preference = 1
    uncached = ("--no-cache-dir", "--force-reinstall")
    hashed = ("--require-hashes",)
    unisolated = ("--no-build-isolation", "--no-cache-dir")

    def program(self, python: Path, target: Target, pip: File | None) -> Sequence[str] | None:
        """The pip of envsolve's own Python if it supports ``target``, otherwise the bundled wheel."""
        runner = _own_pip(target)
        if runner is not None:
            return [str(python), str(runner)]
        if pip is None:
            return None
        wheel = unquote(urlsplit(pip.url).path)
        return [str(python), f"{wheel}/pip"]

    def title(self, program: Sequence[str]) -> str:
        """From its files: to start pip for its version takes a third of a second."""
        wheel = Path(program[-1]).parent.name
        return f"pip {wheel.split('-')[1] if wheel.endswith('.whl') else distribution('pip').version}"

    def arguments(self, python: Path, requirements: Path) -> Sequence[str]:
        """``pip install`` of exact files, without dependencies and without prompts."""
        options = ["--no-deps", "--no-compile"]
        general = ["--no-input", "--disable-pip-version-check"]
        return [*general, "install", *options, "--requirement", str(requirements)]

    def settings(self, folder: Path) -> Mapping[str, str]:
        """The indexes and the cache that the user's pip configuration sets."""
        return managers.pip_variables(os.environ)

    def fixed(self, folder: Path) -> Mapping[str, str]:
        """Variables that disable pip's configuration files and keep it in the interpreter that runs it."""
        return {"PIP_CONFIG_FILE": os.devnull, "_PIP_RUNNING_IN_SUBPROCESS": "1"}


def _own_pip(target: Target) -> Path | None:
    """The file of envsolve's own pip that another interpreter can run; None if that one is too old for it."""
    try:
        own = distribution("pip")
    except PackageNotFoundError:
        return None
    runner = Path(str(own.locate_file(_RUNNER)))
    serves = SpecifierSet(own.metadata["Requires-Python"] or "").contains(target.version, prereleases=True)
    return runner if serves and runner.is_file() else None


MANAGER = Pip()

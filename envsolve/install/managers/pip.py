"""pip: the one beside envsolve, else the one that the environment's own Python carries."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from urllib.parse import unquote, urlsplit

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from envsolve.install.files import File
from envsolve.install.interpreters import Target

_FIRST_WITH_PYTHON_OPTION = Version("22.3")


class Pip:
    """Fills an environment with ``pip install``."""

    name = "pip"
    preference = 1

    def program(self, python: Path, target: Target, pip: File | None) -> Sequence[str] | None:
        """``python -m pip`` of envsolve's own Python where it can serve ``target``, else the wheel itself."""
        if _own_pip_serves(target):
            return [sys.executable, "-m", "pip", "--python", str(python)]
        if pip is None:
            return None
        wheel = unquote(urlsplit(pip.url).path)
        return [str(python), f"{wheel}/pip"]

    def arguments(self, python: Path, requirements: Path) -> Sequence[str]:
        """``pip install`` of exact files: no dependencies, no file without its hash, nothing asked of the user."""
        options = ["--no-deps", "--require-hashes", "--no-compile", "--progress-bar=off"]
        general = ["--no-input", "--disable-pip-version-check"]
        return [*general, "install", *options, "--requirement", str(requirements)]

    def settings(self) -> Mapping[str, str]:
        """What overrules a pip.conf: no constraints file (it would veto planned versions), no user install."""
        return {"PIP_CONSTRAINT": os.devnull, "PIP_USER": "0"}


def _own_pip_serves(target: Target) -> bool:
    try:
        own = metadata("pip")
    except PackageNotFoundError:
        return False
    if Version(own["Version"]) < _FIRST_WITH_PYTHON_OPTION:
        return False
    return SpecifierSet(own["Requires-Python"] or "").contains(target.version, prereleases=True)


MANAGER = Pip()

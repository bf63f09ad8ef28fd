"""Installers on this host: uv, pip, conda and their like, with versions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from envsolve.files import real_path
from envsolve.machine.interpreters import is_shim
from envsolve.machine.model import Installer
from envsolve.machine.search_path import programs
from envsolve.processes import ask

NAMES = ("uv", "pip", "conda", "mamba", "micromamba", "pixi", "poetry")

_VERSION = re.compile(r"\b(\d+\.\d+(?:\.\d+)*(?:(?:a|b|rc)\d+|\.dev\d+|\.post\d+)?)")


def find_installers(search: Sequence[Path]) -> dict[str, Path]:
    """The first program of each name in the folders ``search``."""
    found = ((name, next(programs(search, re.compile(re.escape(name))), None)) for name in NAMES)
    return {name: path for name, path in found if path is not None}


def read_installer(name: str, path: Path, environ: Mapping[str, str], *, limit: float = 1.0) -> Installer:
    """The installer at ``path`` with its version: from the metadata beside it, else by asking it.

    The ones written in Python take half a second and more to say their version; what was installed beside them says
    the same at once.
    """
    version = written_version(name, path)
    if version is None:
        match = _VERSION.search(ask([str(path), "--version"], environ, limit=limit) or "")
        version = match[1] if match else None
    return Installer(name, version, str(path))


def written_version(name: str, path: Path) -> str | None:
    """Version by the installed metadata of the prefix that holds the program; None where that is not certain."""
    if is_shim(path):
        return None
    prefix = real_path(path).parent.parent
    metadata = [
        *prefix.glob(f"lib/python3*/site-packages/{name}-*.dist-info"),
        *prefix.glob(f"lib/python3*/dist-packages/{name}-*.dist-info"),
        *prefix.glob(f"lib/python3/dist-packages/{name}-*.dist-info"),
        *prefix.glob(f"conda-meta/{name}-[0-9]*.json"),
    ]
    versions = {entry.name.removeprefix(f"{name}-").removesuffix(".dist-info").split("-")[0] for entry in metadata}
    return versions.pop() if len(versions) == 1 else None

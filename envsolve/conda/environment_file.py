"""Reading an ``environment.yml`` as conda, mamba and micromamba do."""

from __future__ import annotations

import importlib
import reprlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from envsolve.conda.model import CondaAsked, Spec
from envsolve.conda.spec import read_spec
from envsolve.errors import UsageError
from envsolve.files import read_regular
from envsolve.resolve.inputs.model import wrong

SUFFIXES = (".yml", ".yaml")
_HINT = "it has a list `channels` and a list `dependencies`, of match specs and one `pip:` list"


def read_environment_file(path: Path, names: Mapping[str, str]) -> CondaAsked:
    """Read one.

    Args:
        path: The file.
        names: Names on conda-forge by names on the package index; only for what is written as PEP 508.

    Raises:
        UsageError: It cannot be read, is no environment.yml, or ruamel.yaml is not installed.
    """
    table = _table(path)
    channels = table.get("channels") or []
    dependencies = table.get("dependencies") or []
    if not isinstance(channels, list) or not isinstance(dependencies, list) or not dependencies:
        raise wrong(str(path), "this is no environment.yml", _HINT)
    for channel in channels:
        if not isinstance(channel, str) or not channel.strip():
            raise wrong(str(path), f"{reprlib.repr(channel)} is no channel", "name it: conda-forge")
    specs = tuple(_specs(dependencies, path, names))
    return CondaAsked(
        specs=specs,
        pip=tuple(line for entry in dependencies if isinstance(entry, dict) for line in _pip(entry, path)),
        channels=tuple(channel for channel in channels if channel != "nodefaults"),
        notes=tuple(_notes(table, path)),
    )


def _table(path: Path) -> dict[str, Any]:
    try:
        yaml = importlib.import_module("ruamel.yaml")
    except ImportError as error:
        hint = "install it beside envsolve: pip install 'envsolve[conda]'"
        raise UsageError(f"{path} is read with ruamel.yaml, which is not there ({error})", hint=hint) from error
    try:
        table = yaml.YAML(typ="safe", pure=True).load(read_regular(path).decode("utf-8-sig"))
    except OSError as error:
        raise wrong(str(path), f"the file cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, yaml.error.YAMLError) as error:
        raise wrong(str(path), f"it is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(table, dict):
        raise wrong(str(path), "this is no environment.yml", _HINT)
    return table


def _specs(dependencies: list[Any], path: Path, names: Mapping[str, str]) -> Iterator[Spec]:
    for entry in dependencies:
        if isinstance(entry, str):
            spec = read_spec(entry, str(path), names)
            # Of pip it is the environment that asks; what a plan for it holds is settled without it.
            if spec.name != "pip" or spec.version:
                yield spec
        elif not isinstance(entry, dict) or set(entry) != {"pip"}:
            raise wrong(str(path), f"{reprlib.repr(entry)} is no dependency", _HINT)


def _pip(entry: dict[str, Any], path: Path) -> Iterator[str]:
    lines = entry.get("pip")
    for line in lines if isinstance(lines, list) else [lines]:
        if isinstance(line, str) and line.startswith("-"):
            hint = "take it out: write each package in PEP 508, and torch among the dependencies, as pytorch"
            raise wrong(str(path), f"pip: options are not taken here: {line[:100]!r}", hint)
        if not isinstance(line, str):
            hint = "write each package in PEP 508: demo>=1.0"
            raise wrong(str(path), f"pip: {reprlib.repr(line)} is no requirement", hint)
        yield line


def _notes(table: Mapping[str, Any], path: Path) -> Iterator[str]:
    if table.get("variables"):
        yield f"{path}: variables are set aside: a plan has those alone that its packages need"

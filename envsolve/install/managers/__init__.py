"""Package managers that can install into an environment, each a module of this directory.

A new one is a new file with a class that satisfies :class:`Manager`, bound to the name ``MANAGER``.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import pkgutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from envsolve.errors import UsageError
from envsolve.install import staging as strays
from envsolve.install.files import File
from envsolve.install.interpreters import Target
from envsolve.packages.config_files import pip_layers
from envsolve.system.files import parse_toml, read_regular

# What of a user's pip and uv configuration a run of theirs may see: how to reach an index, and where the cache is.
#
# Everything else could redirect the install, or change what is installed, and the plan has settled that. So the
# managers read no configuration file and no variable of their own except what is let through here.


# Settings by their names in configuration files. Those of pip and uv that reach an index, or find the cache.
_PIP = frozenset(
    {"index-url", "extra-index-url", "find-links", "no-index", "trusted-host", "cert", "client-cert", "proxy"}
    | {"timeout", "default-timeout", "retries", "resume-retries", "cache-dir", "no-cache-dir", "keyring-provider"}
    | {"use-feature", "use-deprecated"}
)
_UV = frozenset(
    {"index", "index-url", "extra-index-url", "find-links", "no-index", "index-strategy", "keyring-provider"}
    | {"allow-insecure-host", "native-tls", "system-certs", "cache-dir", "no-cache", "offline"}
    | {"http-proxy", "https-proxy", "no-proxy"}
    | {"concurrent-downloads", "concurrent-builds", "concurrent-installs"}
)
# uv has more such settings as variables than in files.
_UV_VARIABLES = frozenset(
    {"default-index", "insecure-host", "http-timeout", "http-connect-timeout", "http-retries", "request-timeout"}
    | {"credentials-dir", "preview-features"}
)
_MANAGERS_OWN = ("PIP_", "UV_")
_DROPPED = frozenset({"PYTHONHOME", "PYTHONPATH", "PYTHONSTARTUP", "VIRTUAL_ENV", "CONDA_PREFIX"})


def kept_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that a package manager may see."""
    return {
        name: value
        for name, value in environ.items()
        if name not in _DROPPED and (not name.startswith(_MANAGERS_OWN) or _is_let_through(name))
    }


def _is_let_through(variable: str) -> bool:
    manager, _, rest = variable.partition("_")
    name = rest.lower().replace("_", "-")
    if manager == "PIP":
        return name in _PIP
    login = name.startswith("index-") and name.endswith(("-username", "-password"))
    return login or name in _UV or name in _UV_VARIABLES


def pip_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """The user's pip configuration files as variables, with only the allowed settings."""
    home = Path(environ.get("HOME") or Path.home())
    found: dict[str, str] = {}
    for layer in pip_layers(environ, home, Path(sys.prefix), Path("/etc")):
        addresses = {"index-url": layer.default or "", "extra-index-url": " ".join(layer.extras)}
        for name, value in {**layer.values, **addresses}.items():
            if name in _PIP and value.strip():
                found.setdefault(f"PIP_{name.upper().replace('-', '_')}", " ".join(value.split()))
    return found


def uv_table(environ: Mapping[str, str], cwd: Path) -> dict[str, Any]:
    """The user's uv configuration, as uv merges its files, with only the allowed settings.

    Raises:
        UsageError: A file is there and is not TOML.
    """
    merged: dict[str, Any] = {}
    for table in _uv_tables(environ, cwd):
        pip = table.get("pip")
        for source in (table, pip if isinstance(pip, dict) else {}):
            for name, value in source.items():
                if name in _UV and isinstance(value, list):
                    merged[name] = [*merged.get(name, []), *value]
                elif name in _UV:
                    merged.setdefault(name, value)
    return merged


def _uv_tables(environ: Mapping[str, str], cwd: Path) -> Iterator[Mapping[str, Any]]:
    """uv's files, the one that wins first: the nearest project's, the user's, the system's."""
    if environ.get("UV_CONFIG_FILE"):
        yield _read(Path(environ["UV_CONFIG_FILE"]))
        return
    if environ.get("UV_NO_CONFIG", "").lower() in ("1", "true", "yes"):
        return
    for folder in (cwd, *cwd.parents):
        table = _read(folder / "uv.toml") or _read(folder / "pyproject.toml").get("tool", {}).get("uv")
        if table:
            yield table
            break
    user = Path(environ.get("XDG_CONFIG_HOME") or Path(environ.get("HOME") or Path.home()) / ".config")
    for folder in (user, Path("/etc")):
        yield _read(folder / "uv" / "uv.toml")


def _read(path: Path) -> dict[str, Any]:
    hint = "correct or remove it; uv would also read this file"
    try:
        text = read_regular(path).decode("utf-8-sig")
    except OSError:
        return {}
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not TOML: {error}", hint=hint) from error
    return parse_toml(text, path, hint)


class Manager(Protocol):
    """A program that installs a requirements file into an environment.

    Attributes:
        name: What ``--manager`` calls it.
        preference: The lowest that is present is taken where the user names none.
        uncached: Options with which it installs everything once more, and takes nothing from its cache.
        hashed: Options with which it takes nothing but what a line gives the hash of.
        unisolated: Options with which it builds in the environment itself, and takes no built wheel from its cache.
    """

    name: str
    preference: int
    uncached: Sequence[str]
    hashed: Sequence[str]
    unisolated: Sequence[str]

    def program(self, python: Path, target: Target, pip: File | None) -> Sequence[str] | None:
        """The start of the command line that runs it; None if it is not present.

        Args:
            python: The environment's own interpreter.
            target: What that interpreter is.
            pip: The pip wheel that it carries.
        """

    def title(self, program: Sequence[str]) -> str:
        """Name and version of the program: ``uv 0.13.9``."""

    def arguments(self, python: Path, requirements: Path) -> Sequence[str]:
        """The rest of the command line: install exactly ``requirements`` into the environment of ``python``."""

    def settings(self, folder: Path) -> Mapping[str, str]:
        """Environment variables of the run that replace the user's configuration files; ``folder`` may be used."""

    def fixed(self, folder: Path) -> Mapping[str, str]:
        """Environment variables that overrule the user's own."""


def available() -> list[Manager]:
    """Every manager of this directory, the preferred first, whether it is installed or not."""
    modules = [importlib.import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__)]
    managers: list[Manager] = [module.MANAGER for module in modules]
    return sorted(managers, key=lambda manager: manager.preference)


def choose(name: str | None, python: Path, target: Target, pip: File | None) -> tuple[Manager, Sequence[str]]:
    """The manager called ``name``, or the preferred one that is present, and the program that runs it.

    Raises:
        UsageError: No manager has that name, or it is not installed.
    """
    known = available()
    names = ", ".join(manager.name for manager in known)
    asked = [manager for manager in known if name in (None, manager.name)]
    if not asked:
        raise UsageError(f"the package manager {name!r} is not supported here", hint=f"use one of {names}")
    for manager in asked:
        program = manager.program(python, target, pip)
        if program is not None:
            return manager, program
    raise UsageError(
        f"{name or names} was not found on this machine", hint="install uv, for example with: pip install uv"
    )


def bundled_pip(target: Target) -> File | None:
    """The pip wheel bundled with the interpreter, as a file to install; None if it has none.

    An environment gets this pip, so that ``python -m pip`` works in it, unless the plan has one.
    """
    if target.pip is None:
        return None
    digest = hashlib.sha256(target.pip.read_bytes()).hexdigest()
    return File("pip", target.pip.name.split("-")[1], "wheel", target.pip.name, target.pip.as_uri(), {"sha256": digest})


def child_environment(manager: Manager, staging: Path, temporary: Path) -> dict[str, str]:
    """The variables of a manager's process: the user's, without those that change what is installed or where."""
    kept = {**manager.settings(staging), **kept_variables(os.environ), **manager.fixed(staging)}
    own = {strays.MARK: str(staging), "LC_ALL": "C.UTF-8", "NO_COLOR": "1"}
    return {"TMPDIR": str(temporary), **kept, **own}

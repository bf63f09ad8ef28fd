"""``envsolve config``: the current settings of ``plan`` and ``install``, and where each comes from.

In this order, the first that says something wins: the command line, ``ENVSOLVE_*`` variables, ``[tool.envsolve]`` of
the nearest ``pyproject.toml``, the user's ``config.toml``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from envsolve.cli.options import Form, OutputFile
from envsolve.cli.output import check_output, deliver_as
from envsolve.errors import UsageError
from envsolve.system.files import is_file, own_table, parse_toml, read_regular, user_folder

#: The names of settings, which are those of options, and their types.
SETTINGS_OF_PLANS: Mapping[str, type] = {
    "allow-unknown-names": bool,
    "build-metadata": bool,
    "cuda": str,
    "exclude-newer": str,
    "extra-index-url": list,
    "find-links": list,
    "index-strategy": str,
    "index-url": str,
    "manager": str,
    "no-index": bool,
    "offline": bool,
    "pre": bool,
    "python": str,
}
# It runs code of packages, which whoever wrote a project must not decide.
_NOT_OF_PROJECTS = ("build-metadata",)
# A lock says everything else itself.
_BESIDE_A_LOCK = ("manager", "python")
_PROJECT = "pyproject.toml"
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


class Setting(NamedTuple):
    """The value of a setting and its origin: a file or a variable."""

    value: Any
    origin: str


def command(form: Form = None, output: OutputFile = None) -> None:
    """Show the settings and where each comes from."""
    check_output(form, output)
    found = settings()
    value = {name: {"value": _shown(one.value), "origin": one.origin} for name, one in found.items()}
    deliver_as(form, {"schema": "envsolve.config/1", "settings": value}, lambda: _words(found), output)


def _words(found: Mapping[str, Setting]) -> str:
    lines = [f"{name} = {_shown(one.value)!r}  ({one.origin})" for name, one in sorted(found.items())]
    lines += [f"{name} is not set" for name in SETTINGS_OF_PLANS if name not in found]
    files = ", ".join(str(path) for path, _ in _files()) or "none"
    user = user_folder("config") / "config.toml"
    places = f"put your own settings in {user}, and a project's settings in [tool.envsolve] of its pyproject.toml"
    return "\n".join([*lines, f"files read: {files}", places])


def _shown(value: Any) -> Any:
    """Return a value without the passwords of URLs."""
    from envsolve.packages.urls import without_logins

    if isinstance(value, list):
        return [without_logins(one) for one in value]
    return without_logins(value) if isinstance(value, str) else value


def defaults(words: list[str]) -> dict[str, dict[str, Any]]:
    """Return the settings as defaults of the options of ``plan`` and ``install``, for the words of a command line.

    Raises:
        UsageError: A setting is unknown or of the wrong type, or a file cannot be read.
    """
    if words[:1] not in (["plan"], ["install"]):
        return {}
    lock = words[0] == "install" and any(word.endswith((".toml", ".lock")) for word in words)
    named = {name: one.value for name, one in settings().items() if not lock or name in _BESIDE_A_LOCK}
    return {words[0]: {name.replace("-", "_"): value for name, value in named.items()}}


def settings() -> dict[str, Setting]:
    """Return every setting that was made, the strongest origin first.

    Raises:
        UsageError: As :func:`defaults`.
    """
    found: dict[str, Setting] = {}
    for name, kind in SETTINGS_OF_PLANS.items():
        variable = f"ENVSOLVE_{name.upper().replace('-', '_')}"
        if text := os.environ.get(variable, "").strip():
            if not all(map(str.isprintable, text.split() if kind is list else [text])):
                raise UsageError(
                    f"{variable} has a line break or another control character",
                    hint="set it again without such characters",
                )
            found[name] = Setting(_from_text(variable, text, kind), variable)
    for path, table in _files():
        for name, value in table.items():
            if name not in SETTINGS_OF_PLANS:
                hint = f"settings: {', '.join(SETTINGS_OF_PLANS)}"
                raise UsageError(f"{path}: unknown setting {name}", hint=hint)
            if name in _NOT_OF_PROJECTS and path.name == _PROJECT:
                hint = f"remove it there; use --{name}, or set it in your own {user_folder('config') / 'config.toml'}"
                raise UsageError(
                    f"{path}: the setting {name} makes packages run their code, so a project file may not set it",
                    hint=hint,
                )
            kind = SETTINGS_OF_PLANS[name]
            parts = value if isinstance(value, list) else ()
            if not isinstance(value, kind) or not all(isinstance(one, str) for one in parts):
                words = {bool: "true or false", str: "text, in quotes", list: "a list of strings"}[kind]
                raise UsageError(f"{path}: {name} = {value!r} has the wrong type", hint=f"write {words}")
            found.setdefault(name, Setting(value, str(path)))
    return found


def _from_text(variable: str, text: str, kind: type) -> object:
    if kind is list:
        return text.split()
    if kind is str:
        return text
    if text.lower() not in (*_TRUE, *_FALSE):
        hint = f"use one of {', '.join((*_TRUE, *_FALSE))}"
        raise UsageError(f"{variable}={text}: neither true nor false", hint=hint)
    return text.lower() in _TRUE


def _files() -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """The files with settings, the project's before the user's."""
    here = Path.cwd()
    project = next((one for folder in (here, *here.parents) if is_file(one := folder / _PROJECT)), None)
    if project and (table := own_table(_read(project), project)):
        yield project, table
    user = user_folder("config") / "config.toml"
    if is_file(user):
        yield user, _read(user)


def _read(path: Path) -> Mapping[str, Any]:
    try:
        text = read_regular(path).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path}: {error}", hint="correct the file or its permissions") from error
    return parse_toml(text, path)

"""The configuration files of pip and uv, as flat settings with the place that each came from."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from envsolve.errors import UsageError
from envsolve.system.files import parse_toml, read_regular


class Layer(msgspec.Struct, frozen=True):
    """Index settings of one place (a file, or the environment); unset is None or empty.

    Attributes:
        place: For messages: a path, or ``environment``.
        default: URL of the default index.
        extras: URLs of further indexes, in order.
        links: URLs and paths of ``--find-links``, in order.
        values: Other settings by pip's option name (``cert``, ``timeout``, ``proxy``, ...).
    """

    place: str
    default: str | None = None
    extras: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    values: Mapping[str, str] = {}


def pip_layers(environ: Mapping[str, str], home: Path, prefix: Path, system: Path) -> Iterator[Layer]:
    """pip's files, the one that wins first: ``PIP_CONFIG_FILE``, the Python environment's, the user's, the global.

    Raises:
        UsageError: A file exists but is not a pip configuration.
    """
    named = environ.get("PIP_CONFIG_FILE")
    if named == os.devnull:  # pip's own way to say: no files at all
        return
    name = "pip.ini" if os.name == "nt" else "pip.conf"
    config = Path(environ.get("APPDATA" if os.name == "nt" else "XDG_CONFIG_HOME") or home / ".config")
    paths = [Path(named)] if named else []
    paths += [prefix / name, config / "pip" / name, home / ".pip" / name]
    paths += [system / name, *(folder / "pip" / name for folder in _shared_folders(environ, system))]
    for path in paths:
        text = _read(path)
        if text is not None:
            yield _pip_layer(text, str(path))


def _pip_layer(text: str, place: str) -> Layer:
    import configparser  # here, and a TOML reader below: most computers have one kind of file, or none

    parser = configparser.RawConfigParser()
    try:
        parser.read_string(text, place)
    except configparser.Error as error:
        raise UsageError(f"{place} is not a pip configuration file", hint=str(error).splitlines()[0]) from None
    values: dict[str, str] = {}
    # pip reads the section of the running command after [global]; envsolve stands where `pip install` would.
    for section in ("global", "install"):
        if parser.has_section(section):
            values.update({key.replace("_", "-"): value for key, value in parser.items(section)})
    return Layer(
        place,
        default=values.pop("index-url", "").strip() or None,
        extras=tuple(values.pop("extra-index-url", "").split()),
        links=tuple(values.get("find-links", "").split()),
        values=values,
    )


def uv_layers(environ: Mapping[str, str], cwd: Path | None, home: Path, system: Path) -> Iterator[Layer]:
    """uv's configuration files, the one that wins first: the project's, the user's, the system's.

    ``UV_CONFIG_FILE`` replaces them all, as it does for uv; so does ``UV_NO_CONFIG``, with nothing.

    Raises:
        UsageError: A file exists but is not TOML, or holds something else in place of a URL.
    """
    if environ.get("UV_CONFIG_FILE"):
        paths = [Path(environ["UV_CONFIG_FILE"])]
    elif environ.get("UV_NO_CONFIG", "").lower() in ("1", "true", "yes"):
        return
    else:
        user = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
        folders = [user, *_shared_folders(environ, system), system]
        paths = [folder / "uv" / "uv.toml" for folder in folders]
        if cwd is not None:
            yield from _project_layer(cwd, environ)
    for path in paths:
        text = _read(path)
        if text is not None:
            yield _uv_layer(parse_toml(text, path), str(path), environ)


def _project_layer(cwd: Path, environ: Mapping[str, str]) -> Iterator[Layer]:
    """The nearest directory upward that configures uv; ``uv.toml`` hides the ``pyproject.toml`` beside it."""
    for folder in (cwd, *cwd.parents):
        text = _read(folder / "uv.toml")
        if text is not None:
            yield _uv_layer(parse_toml(text, folder / "uv.toml"), str(folder / "uv.toml"), environ)
            return
        text = _read(folder / "pyproject.toml")
        if text is not None:
            tool = parse_toml(text, folder / "pyproject.toml").get("tool")
            if isinstance(tool, dict) and isinstance(tool.get("uv"), dict):
                yield _uv_layer(tool["uv"], str(folder / "pyproject.toml"), environ)
                return


def _uv_layer(table: Mapping[str, Any], place: str, environ: Mapping[str, str]) -> Layer:
    pip = table.get("pip", {})
    try:
        entries = [e for e in table.get("index", []) if not e.get("explicit", False)]
        default = next((with_login(e["url"], e.get("name"), environ) for e in entries if e.get("default")), None)
        extras = [with_login(e["url"], e.get("name"), environ) for e in entries if not e.get("default")]
        extras += table.get("extra-index-url") or pip.get("extra-index-url") or []
        default = default or table.get("index-url") or pip.get("index-url")
        links = {**pip, **table}.get("find-links", [])
        if not all(isinstance(url, str) for url in (default or "", *extras, *links)):
            raise TypeError
    except (AttributeError, KeyError, TypeError):
        raise UsageError(f"the index settings of uv in {place} cannot be read", hint="see uv's index setting") from None
    return Layer(place, default, tuple(extras), tuple(links), _uv_values({**pip, **table}))


def _uv_values(table: Mapping[str, Any]) -> dict[str, str]:
    """uv's other settings by pip's option names."""
    values = {"no-index": "true"} if table.get("no-index") is True else {}
    if isinstance(keyring := table.get("keyring-provider"), str):
        values["keyring-provider"] = keyring
    if isinstance(strategy := table.get("index-strategy"), str):
        values["index-strategy"] = strategy
    if isinstance(hosts := table.get("allow-insecure-host"), list):
        values["trusted-host"] = " ".join(map(str, hosts))
    return values


def with_login(url: str, name: str | None, environ: Mapping[str, str]) -> str:
    """The URL of a named uv index with the credentials that ``UV_INDEX_<NAME>_USERNAME/_PASSWORD`` give it."""
    key = "".join(c if c.isalnum() else "_" for c in name or "").upper()
    user = environ.get(f"UV_INDEX_{key}_USERNAME", "")
    password = environ.get(f"UV_INDEX_{key}_PASSWORD", "")
    if not key or not (user or password) or "@" in url:
        return url
    return url.replace("://", f"://{quote(user, safe='')}:{quote(password, safe='')}@", 1)


def _shared_folders(environ: Mapping[str, str], system: Path) -> list[Path]:
    named = environ.get("XDG_CONFIG_DIRS")
    return [Path(folder) for folder in named.split(":") if folder] if named else [system / "xdg"]


def _read(path: Path) -> str | None:
    try:
        return read_regular(path).decode("utf-8-sig")
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError):
        return None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} cannot be read: {error}") from None

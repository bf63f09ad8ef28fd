"""Index settings from options, the configuration of uv and pip, and the built-in default."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import structs

from envsolve.errors import UsageError
from envsolve.packages.urls import local_path, split_login
from envsolve.system.files import parse_toml, read_regular

_MAY_HOLD_CREDENTIALS = ("default", "extras", "pinned", "proxy")


class IndexSettings(msgspec.Struct, frozen=True):
    """How to reach the indexes.

    Attributes:
        default: The index that is asked first, and for most names alone; may hold credentials.
        extras: Indexes that are asked, in order, for a name that the default index does not have; may hold credentials.
        pinned: The only index of each name that a project takes from one; may hold credentials.
        sources: Setting name to where it came from, for messages.
        ca_bundle: File or folder of certificate authorities that replaces the usual ones.
        client_cert: PEM file with a client certificate and its key.
        proxy: Proxy for every request; None leaves it to the environment (``HTTPS_PROXY``, ``NO_PROXY``, ...).
        trusted_hosts: ``host`` or ``host:port`` whose certificate is not checked.
        connect_timeout: Seconds to wait for a connection.
        read_timeout: Seconds to wait for the next bytes of an answer.
        answer_timeout: Seconds within which a page or a metadata file must be complete.
        retries: How often an interrupted or refused (429, 5xx) request is repeated.
        keyring: ``auto`` (the keyring package, else the keyring command), ``import``, ``subprocess`` or ``disabled``.
    """

    default: str
    extras: tuple[str, ...] = ()
    pinned: Mapping[str, str] = {}
    sources: Mapping[str, str] = {}
    ca_bundle: str | None = None
    client_cert: str | None = None
    proxy: str | None = None
    trusted_hosts: tuple[str, ...] = ()
    connect_timeout: float = 5.0
    read_timeout: float = 20.0
    answer_timeout: float = 60.0
    retries: int = 3
    keyring: str = "auto"

    def __repr__(self) -> str:
        """Without what may hold credentials, which a repr must not carry into a log."""
        shown = {name: value for name, value in structs.asdict(self).items() if name not in _MAY_HOLD_CREDENTIALS}
        return f"IndexSettings({', '.join(f'{name}={value!r}' for name, value in shown.items())})"


def read_settings(
    environ: Mapping[str, str] = os.environ,
    *,
    index_url: str | None = None,
    extra_index_urls: Sequence[str] = (),
    cwd: Path | None = None,
    home: Path | None = None,
    prefix: Path | None = None,
    system: Path = Path("/etc"),
) -> IndexSettings:
    """The settings in force.

    Order of precedence: the arguments; uv's environment variables; uv's files (project, user, system); pip's
    environment variables; pip's files (``PIP_CONFIG_FILE``, the Python environment's, the user's, the global); the
    built-in default. The default index is the first one named. Extra indexes add up in that order, without
    repetition, since they only serve names that the default index lacks.

    Args:
        environ: Environment variables.
        index_url: ``--index-url``.
        extra_index_urls: ``--extra-index-url``.
        cwd: Where the search for ``uv.toml`` and ``pyproject.toml`` starts; the current folder when None.
        home: The user's home; read from ``environ`` when None.
        prefix: The Python environment whose ``pip.conf`` counts; the running one when None.
        system: Where system-wide configuration lies.

    Raises:
        UsageError: A file or value cannot be read, or an address has no scheme.
    """
    home = home or Path(environ.get("HOME") or environ.get("USERPROFILE") or Path.home())
    layers = [
        Layer("command line", default=index_url, extras=tuple(extra_index_urls)),
        *_uv_environment(environ),
        *uv_layers(environ, cwd or _current_folder(), home, system),
        *_pip_environment(environ),
        *pip_layers(environ, home, prefix or Path(sys.prefix), system),
    ]
    sources: dict[str, str] = {}
    default = _default(layers, sources)
    extras = _extras(layers, default, sources)

    def value(setting: str, *names: str) -> str | None:
        found = first_value(layers, names)
        if found is None:
            return None
        sources[setting] = found[1]
        return found[0]

    def number(setting: str, *names: str, default: float) -> float:
        text = value(setting, *names)
        try:
            result = default if text is None else float(text)
        except ValueError:
            result = -1
        if result < 0:
            raise UsageError(f"{setting} is no number of seconds or times: {text}", hint=f"set in {sources[setting]}")
        return result

    standard = IndexSettings(default)
    read_timeout = number("read_timeout", "timeout", "default-timeout", default=standard.read_timeout)
    return IndexSettings(
        default=default,
        extras=extras,
        sources=sources,
        ca_bundle=value("ca_bundle", "cert") or _ca_environment(environ, sources),
        client_cert=value("client_cert", "client-cert"),
        proxy=value("proxy", "proxy"),
        trusted_hosts=tuple((value("trusted_hosts", "trusted-host") or "").split()),
        connect_timeout=number("connect_timeout", "connect-timeout", default=standard.connect_timeout),
        read_timeout=read_timeout,
        answer_timeout=max(standard.answer_timeout, read_timeout),
        retries=int(number("retries", "retries", default=standard.retries)),
        keyring=value("keyring", "keyring-provider") or standard.keyring,
    )


def _current_folder() -> Path | None:
    try:
        return Path.cwd()
    except OSError:
        return None  # It was deleted: there is no project around it.


def _default(layers: Sequence[Layer], sources: dict[str, str]) -> str:
    for layer in layers:
        if layer.default:
            sources["default"] = layer.place
            return _checked(layer.default, layer.place)
    from envsolve._default_index import DEFAULT_INDEX

    sources["default"] = "built-in"
    return DEFAULT_INDEX


def _extras(layers: Sequence[Layer], default: str, sources: dict[str, str]) -> tuple[str, ...]:
    seen = {_key(default)}
    extras = []
    for layer in layers:
        for url in layer.extras:
            if _key(_checked(url, layer.place)) not in seen:
                seen.add(_key(url))
                extras.append(url)
                sources.setdefault("extras", layer.place)
    return tuple(extras)


def _key(url: str) -> str:
    return split_login(url)[0].rstrip("/")


def _checked(url: str, place: str) -> str:
    try:
        address = split_login(url)[0]
    except UsageError as error:
        raise UsageError(f"{error.message} (from: {place})", hint=error.hint) from None
    if not address.startswith(("https://", "http://", "file://")):
        raise UsageError(
            f"an index address has no https://, http:// or file:// in front (from: {place})",
            hint=f"correct it where it is set ({place}), or leave it out",
        )
    if address.startswith("file:") and not local_path(address).is_dir():
        raise UsageError(f"the local index {address} is not there", hint=f"correct it where it is set ({place})")
    return url


def _uv_environment(environ: Mapping[str, str]) -> Iterator[Layer]:
    def addresses(variable: str) -> Iterator[str]:
        for entry in environ.get(variable, "").split():
            name, equals, url = entry.partition("=")
            named = bool(equals) and "/" not in name and ":" not in name
            yield with_login(url, name, environ) if named else entry

    values = {
        "timeout": environ.get("UV_HTTP_TIMEOUT", ""),
        "connect-timeout": environ.get("UV_HTTP_CONNECT_TIMEOUT", ""),
        "retries": environ.get("UV_HTTP_RETRIES", ""),
        "keyring-provider": environ.get("UV_KEYRING_PROVIDER", ""),
        "trusted-host": environ.get("UV_INSECURE_HOST", ""),
    }
    for variable in ("UV_DEFAULT_INDEX", "UV_INDEX_URL"):
        for address in addresses(variable):
            yield Layer(variable, default=address)
            break
    for variable in ("UV_INDEX", "UV_EXTRA_INDEX_URL"):
        yield Layer(variable, extras=tuple(addresses(variable)))
    yield Layer("uv's environment variables", values=values)


def _pip_environment(environ: Mapping[str, str]) -> Iterator[Layer]:
    names = (
        "cert",
        "client-cert",
        "proxy",
        "trusted-host",
        "timeout",
        "default-timeout",
        "retries",
        "keyring-provider",
    )
    values = {name: environ.get("PIP_" + name.upper().replace("-", "_"), "") for name in names}
    yield Layer("PIP_INDEX_URL", default=environ.get("PIP_INDEX_URL", "").strip() or None)
    yield Layer("PIP_EXTRA_INDEX_URL", extras=tuple(environ.get("PIP_EXTRA_INDEX_URL", "").split()))
    yield Layer("pip's environment variables", values=values)


def _ca_environment(environ: Mapping[str, str], sources: dict[str, str]) -> str | None:
    for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        if environ.get(name):
            sources["ca_bundle"] = name
            return environ[name]
    return None


# The configuration files of pip and uv, as flat settings with the place that each came from.


class Layer(msgspec.Struct, frozen=True):
    """What one place (a file, or the environment) says of indexes; unset is None or empty.

    Attributes:
        place: For messages: a path, or ``environment``.
        default: Address of the default index.
        extras: Addresses of further indexes, in order.
        values: Other settings by pip's option name (``cert``, ``timeout``, ``proxy``, ...).
    """

    place: str
    default: str | None = None
    extras: tuple[str, ...] = ()
    values: Mapping[str, str] = {}


def pip_layers(environ: Mapping[str, str], home: Path, prefix: Path, system: Path) -> Iterator[Layer]:
    """pip's files, the one that wins first: ``PIP_CONFIG_FILE``, the Python environment's, the user's, the global.

    Raises:
        UsageError: A file is there and is no pip configuration.
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
        values=values,
    )


def uv_layers(environ: Mapping[str, str], cwd: Path | None, home: Path, system: Path) -> Iterator[Layer]:
    """uv's configuration files, the one that wins first: the project's, the user's, the system's.

    ``UV_CONFIG_FILE`` replaces them all, as it does for uv; so does ``UV_NO_CONFIG``, with nothing.

    Raises:
        UsageError: A file is there and is no TOML, or holds something else where uv has an address.
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
    """The nearest folder upward that configures uv; ``uv.toml`` hides the ``pyproject.toml`` beside it."""
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
        if not all(isinstance(url, str) for url in (default or "", *extras)):
            raise TypeError
    except (AttributeError, KeyError, TypeError):
        raise UsageError(f"the index settings of uv in {place} cannot be read", hint="see uv's index setting") from None
    keyring = table.get("keyring-provider") or pip.get("keyring-provider")
    values = {"keyring-provider": keyring} if isinstance(keyring, str) else {}
    hosts = table.get("allow-insecure-host")
    if isinstance(hosts, list):
        values["trusted-host"] = " ".join(map(str, hosts))
    return Layer(place, default=default, extras=tuple(extras), values=values)


def with_login(url: str, name: str | None, environ: Mapping[str, str]) -> str:
    """The address of a named uv index with the credentials that ``UV_INDEX_<NAME>_USERNAME/_PASSWORD`` give it."""
    key = "".join(c if c.isalnum() else "_" for c in name or "").upper()
    user = environ.get(f"UV_INDEX_{key}_USERNAME", "")
    password = environ.get(f"UV_INDEX_{key}_PASSWORD", "")
    if not key or not (user or password) or "@" in url:
        return url
    return url.replace("://", f"://{quote(user, safe='')}:{quote(password, safe='')}@", 1)


def _shared_folders(environ: Mapping[str, str], system: Path) -> list[Path]:
    named = environ.get("XDG_CONFIG_DIRS")
    return [Path(folder) for folder in named.split(":") if folder] if named else [system / "xdg"]


def first_value(layers: Iterable[Layer], names: Sequence[str]) -> tuple[str, str] | None:
    """The first non-empty value under any of the option names, with the place that gave it."""
    for layer in layers:
        for name in names:
            if value := layer.values.get(name, "").strip():
                return value, layer.place
    return None


def _read(path: Path) -> str | None:
    try:
        return read_regular(path).decode("utf-8-sig")
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError):
        return None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} cannot be read: {error}") from None

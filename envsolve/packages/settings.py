"""Index settings from options, the configuration of uv and pip, and the built-in default."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import structs

from envsolve.errors import UsageError
from envsolve.packages.config_files import Layer, pip_layers, uv_layers, with_login
from envsolve.packages.links import place_of
from envsolve.packages.urls import VARIANT_INDEX, local_path, redact, split_login
from envsolve.system.files import is_folder

_TRUE = ("1", "true", "yes", "on", "y", "t")  # of pip's flags in files and variables
_MAY_HOLD_CREDENTIALS = ("default", "extras", "pinned", "links", "proxy")


#: Strategies for a project that several indexes have.
FIRST, MERGED = STRATEGIES = ("first-index", "unsafe-best-match")


class IndexSettings(msgspec.Struct, frozen=True):
    """How to reach the indexes.

    Attributes:
        default: The index that is asked first, and for most names the only one; may hold credentials.
        extras: Indexes that are asked, in order, for a name that the default index does not have; may hold credentials.
        pinned: The only index of each name that a project takes from one; may hold credentials.
        links: URLs of directories, pages and archives whose files count besides those of the indexes.
        no_index: Whether no index is asked at all.
        strategy: ``first-index`` takes a project from the first index that has it; ``unsafe-best-match`` merges what
            all indexes have of it, as pip does. The names are uv's.
        sources: Setting name to where it came from, for messages.
        ca_bundle: File or directory of certificate authorities that replaces the usual ones.
        client_cert: PEM file with a client certificate and its key.
        proxy: Proxy for every request; None leaves it to the environment (``HTTPS_PROXY``, ``NO_PROXY``, ...).
        trusted_hosts: ``host`` or ``host:port`` whose certificate is not checked.
        connect_timeout: Seconds to wait for a connection.
        read_timeout: Seconds to wait for the next bytes of an answer.
        answer_timeout: Seconds within which a page or a metadata file must be complete.
        retries: How often an interrupted or refused (429, 5xx) request is repeated.
        keyring: ``auto`` (the keyring package, otherwise the keyring command), ``import``, ``subprocess`` or
        ``disabled``.
    """

    default: str
    extras: tuple[str, ...] = ()
    pinned: Mapping[str, str] = {}
    links: tuple[str, ...] = ()
    no_index: bool = False
    strategy: str = FIRST
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

    def ways(self, places: Sequence[str]) -> Sequence[Sequence[str]]:
        """Groups of indexes: of each group the first that has a project answers, and the answers are merged."""
        if self.strategy != MERGED:
            return (places,)
        # The indexes of variants repeat old versions of common packages, and torch is taken from them by the catalogue.
        variants = [place for place in places[1:] if VARIANT_INDEX.search(place)]
        return ((places[0], *variants), *((place,) for place in places[1:] if place not in variants))

    def __repr__(self) -> str:
        """Without what may hold credentials, which a repr must not carry into a log."""
        shown = {name: value for name, value in structs.asdict(self).items() if name not in _MAY_HOLD_CREDENTIALS}
        return f"IndexSettings({', '.join(f'{name}={value!r}' for name, value in shown.items())})"


def read_settings(
    environ: Mapping[str, str] = os.environ,
    *,
    index_url: str | None = None,
    extra_index_urls: Sequence[str] = (),
    find_links: Sequence[str] = (),
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
        find_links: ``--find-links``; those of all places add up.
        cwd: Where the search for ``uv.toml`` and ``pyproject.toml`` starts; the current directory when None.
        home: The user's home; read from ``environ`` when None.
        prefix: The Python environment whose ``pip.conf`` counts; the running one when None.
        system: Where system-wide configuration lies.

    Raises:
        UsageError: A file or value cannot be read, or a URL has no scheme.
    """
    home = home or Path(environ.get("HOME") or environ.get("USERPROFILE") or Path.home())
    layers = [
        Layer("command line", default=index_url, extras=tuple(extra_index_urls), links=tuple(find_links)),
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
            raise UsageError(
                f"{setting} must be zero or a positive number, not {text}", hint=f"set in {sources[setting]}"
            )
        return result

    standard = IndexSettings(default)
    read_timeout = number("read_timeout", "timeout", "default-timeout", default=standard.read_timeout)
    return IndexSettings(
        default=default,
        extras=extras,
        links=_links(layers),
        strategy=MERGED if value("strategy", "index-strategy") == MERGED else FIRST,
        no_index=(value("no_index", "no-index") or "").lower() in _TRUE,
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


def _links(layers: Sequence[Layer]) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for layer in layers:
        for text in layer.links:
            place = place_of(text, Path(layer.place).parent)
            if place is None:
                what = f"--find-links {text} is not a directory, page or archive (from: {layer.place})"
                raise UsageError(what, hint=f"correct the value in {layer.place}, or remove it")
            found[place] = None
    return tuple(found)


def _key(url: str) -> str:
    return split_login(url)[0].rstrip("/")


def _checked(url: str, place: str) -> str:
    try:
        address = split_login(url)[0]
    except UsageError as error:
        raise UsageError(f"{error.message} (from: {place})", hint=error.hint) from None
    if not address.startswith(("https://", "http://", "file://")):
        raise UsageError(
            f"an index URL does not begin with https://, http:// or file:// (from: {place})",
            hint=f"correct the value in {place}, or remove it",
        )
    if address.startswith("file:") and not is_folder(local_path(address)):
        raise UsageError(f"the local index {address} does not exist", hint=f"correct the value in {place}")
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
        "index-strategy": environ.get("UV_INDEX_STRATEGY", ""),
    }
    for variable in ("UV_DEFAULT_INDEX", "UV_INDEX_URL"):
        for address in addresses(variable):
            yield Layer(variable, default=address)
            break
    for variable in ("UV_INDEX", "UV_EXTRA_INDEX_URL"):
        yield Layer(variable, extras=tuple(addresses(variable)))
    yield Layer("UV_FIND_LINKS", links=tuple(filter(None, environ.get("UV_FIND_LINKS", "").split(","))))
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
        "no-index",
    )
    values = {name: environ.get("PIP_" + name.upper().replace("-", "_"), "") for name in names}
    yield Layer("PIP_INDEX_URL", default=environ.get("PIP_INDEX_URL", "").strip() or None)
    yield Layer("PIP_EXTRA_INDEX_URL", extras=tuple(environ.get("PIP_EXTRA_INDEX_URL", "").split()))
    yield Layer("PIP_FIND_LINKS", links=tuple(environ.get("PIP_FIND_LINKS", "").split()))
    yield Layer("pip's environment variables", values=values)


def _ca_environment(environ: Mapping[str, str], sources: dict[str, str]) -> str | None:
    for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        if environ.get(name):
            sources["ca_bundle"] = name
            return environ[name]
    return None


def first_value(layers: Iterable[Layer], names: Sequence[str]) -> tuple[str, str] | None:
    """The first non-empty value under any of the option names, with the place that gave it."""
    for layer in layers:
        for name in names:
            if value := layer.values.get(name, "").strip():
                return value, layer.place
    return None


def about_indexes_of(defaults: Sequence[str], extras: Sequence[str], strategy: str) -> Iterator[str]:
    """Which index of files is the default one, and for which packages the extra ones are used.

    Of several ``--index-url`` lines pip takes the last, and uv refuses them. pip merges all indexes, uv asks the extra
    ones first.
    """
    *others, default = dict.fromkeys(defaults) or ("",)
    for url in others:
        yield f"--index-url {redact(url)} is ignored: as in pip, the last one counts, {redact(default)}"
    for url in extras:
        # What torch is taken from is settled by the machines.
        if VARIANT_INDEX.search(url):
            continue
        if strategy == MERGED:
            yield (
                f"the extra index {redact(url)} is merged with the default index: the best version from all indexes "
                "is used"
            )
        else:
            text = (
                "is used only for packages that the default index does not have, so that it cannot replace packages "
                "of the default index"
            )
            yield f"the extra index {redact(url)} {text}; --index-strategy {MERGED} merges all indexes, as pip does"

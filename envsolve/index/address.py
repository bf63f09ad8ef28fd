"""Index and file addresses: splitting credentials off, and printing an address without them."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

from envsolve.errors import UsageError

# A password may hold an `@` that nobody encoded; the last one before the path ends it. What redact() left stays.
_LOGIN = re.compile(r"(?P<scheme>[a-z0-9+.-]*)://(?!\*{4}@)(?P<user>[^/\s:@]*)[^/\s]*@", re.IGNORECASE)


class Login(NamedTuple):
    """What an address carries before its ``@``; the password may be absent (keyring knows it)."""

    user: str
    password: str | None


def split_login(url: str) -> tuple[str, Login | None]:
    """The address without credentials, and the credentials.

    Raises:
        UsageError: The text is no address.
    """
    parts = _split(url)
    if "@" not in parts.netloc:
        return url, None
    userinfo, _, host = parts.netloc.rpartition("@")
    user, colon, password = userinfo.partition(":")
    return urlunsplit(parts._replace(netloc=host)), Login(unquote(user), unquote(password) if colon else None)


def redact(url: str) -> str:
    """An address that may be printed: user and password become ``****``."""
    try:
        clean, login = split_login(url)
    except UsageError:
        return "(an address that cannot be read)"
    return clean if login is None else clean.replace("://", "://****@", 1)


def without_logins(text: str) -> str:
    """Text whose addresses hold no user and no password; the user of an SSH address, which is no secret, stays."""
    return _LOGIN.sub(_without_login, text) if "@" in text else text  # as most texts are


def _without_login(match: re.Match[str]) -> str:
    user = f"{match['user']}@" if match["scheme"].lower().endswith("ssh") and match["user"] else ""
    return f"{match['scheme']}://{user}"


def origin(url: str) -> str:
    """``scheme://host:port`` in lower case: the reach of credentials, and of a host's death."""
    parts = _split(url)
    port = parts.port or {"https": 443, "http": 80}.get(parts.scheme)
    return f"{parts.scheme}://{(parts.hostname or '').lower()}:{port}"


def join_project(index: str, name: str) -> str:
    """The project page of a normalised name: index, name, slash (PEP 503); a page of links (``.html``) is its own."""
    if index.endswith(".html"):
        return index
    return f"{index.rstrip('/')}/{name}/"


def local_path(url: str) -> Path:
    """The path of a ``file:`` address."""
    path = _split(url).path
    if os.name == "nt":
        from urllib.request import url2pathname  # imports an HTTP client, for the sake of drive letters

        return Path(url2pathname(path))
    return Path(unquote(path))


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port  # urlsplit checks it on access
    except ValueError:
        # Neither the address nor Python's words for what is wrong with it: both may hold a part of a password.
        raise UsageError(
            "an index address cannot be read",
            hint="correct it in your index settings; a password in it must be percent-encoded",
        ) from None
    return parts

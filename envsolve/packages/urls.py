"""URLs of indexes, files and source trees: their credentials, and how to print them without."""

from __future__ import annotations

import os
import re
from pathlib import Path
from threading import Lock
from typing import NamedTuple
from urllib.parse import SplitResult, parse_qs, unquote, urljoin, urlsplit, urlunsplit

import msgspec
from packaging.version import Version

from envsolve.errors import UsageError

# A password may hold an `@` that nobody encoded; the last one before the path ends it. What redact() left stays.
# It begins at the slashes: a scheme and a user before them would take cubic time on a long word.
_LOGIN = re.compile(r"://(?!\*{4}@)(?P<login>[^/\s]*)@")
_NO_USER = re.compile(r"[:@]")


class Login(NamedTuple):
    """The user and password of a URL; the password may be absent (keyring knows it)."""

    user: str
    password: str | None


#: The index of a variant, as PyTorch and its mirrors lay them out.
VARIANT_INDEX = re.compile(r"/(?:cu\d{2,3}|cpu|xpu|rocm[\d.]+)/?$")


def split_login(url: str) -> tuple[str, Login | None]:
    """The URL without credentials, and the credentials.

    Raises:
        UsageError: The text is not a URL.
    """
    parts = _split(url)
    if "@" not in parts.netloc:
        return url, None
    userinfo, _, host = parts.netloc.rpartition("@")
    user, colon, password = userinfo.partition(":")
    return urlunsplit(parts._replace(netloc=host)), Login(unquote(user), unquote(password) if colon else None)


def redact(url: str) -> str:
    """The URL with ``****`` for user and password, so that it can be printed."""
    try:
        clean, login = split_login(url)
    except UsageError:
        return "(a URL that cannot be read)"
    return clean if login is None else clean.replace("://", "://****@", 1)


def without_logins(text: str) -> str:
    """The text without users and passwords in its URLs; the user of an SSH URL, which is not secret, stays."""
    return _LOGIN.sub(_without_login, text) if "@" in text else text  # as most texts are


def _without_login(match: re.Match[str]) -> str:
    start, user = match.start(), _NO_USER.split(match["login"], maxsplit=1)[0]
    is_ssh = match.string[max(start - 3, 0) : start].lower() == "ssh"
    return f"://{user}@" if is_ssh and user else "://"


def origin(url: str) -> str:
    """``scheme://host:port`` in lower case: the reach of credentials, and of a host's death."""
    parts = _split(url)
    port = parts.port or {"https": 443, "http": 80}.get(parts.scheme)
    return f"{parts.scheme}://{(parts.hostname or '').lower()}:{port}"


def join_project(index: str, name: str) -> str:
    """The project page of a normalised name: index, name, slash (PEP 503); without a name the page itself."""
    return f"{index.rstrip('/')}/{name}/" if name else index


def local_path(url: str) -> Path:
    """The path of a ``file:`` URL."""
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
        # Neither the URL nor Python's words for what is wrong with it: both may hold a part of a password.
        raise UsageError(
            "an index URL cannot be read",
            hint="correct it in your index settings; a password in it must be percent-encoded",
        ) from None
    return parts


# Who to be at which host: credentials from index URLs, else (after a 401) from keyring; requests reads netrc between.
#
# Credentials belong to an origin (scheme, host, port) and go nowhere else: not to the file host that a page points at,
# not along a redirect.


class Credentials:
    """Logins by origin; asks keyring at most once for each."""

    def __init__(self, keyring: str) -> None:
        self._keyring = keyring
        self._lock = Lock()
        self._logins: dict[str, Login | None] = {}  # by index URL without credentials
        self._asked: set[str] = set()

    def add(self, address: str) -> str:
        """Remember the login of an index URL; return the URL without it."""
        clean, login = split_login(address)
        with self._lock:
            self._logins[clean] = login or self._logins.get(clean)
        return clean

    def known(self, url: str) -> tuple[str, str] | None:
        """The user and password to send with a request, or None."""
        with self._lock:
            login = self._nearest(url)
        return None if login is None or login.password is None else (login.user, login.password)

    def ask_keyring(self, url: str, sent: tuple[str, str] | None) -> bool:
        """Look into keyring after a 401 to ``sent``; True if there is now another login to try."""
        place = origin(url)
        with self._lock:
            found_meanwhile = self._nearest(url)  # by another thread
            if found_meanwhile is not None and found_meanwhile.password is not None and found_meanwhile != sent:
                return True
            if place in self._asked or self._keyring == "disabled":
                return False
            self._asked.add(place)
            login = self._nearest(url)
            if login is not None and login.password is not None:
                return False  # what the user wrote down is wrong: say so, do not guess another
            user = login.user if login else None
            services = [address for address in self._logins if origin(address) == place]
            services += [place.partition("://")[2].removesuffix(":443").removesuffix(":80")]
            for service in services:
                found = self._look_up(service, user)
                if found is not None:
                    self._logins.update(dict.fromkeys([*services[:-1], f"{place}/"], Login(*found)))
                    return True
        return False

    def _nearest(self, url: str) -> Login | None:
        """The login of the index on the same origin with the most similar URL: a host may serve several indexes."""
        if not any(self._logins.values()):
            return None
        place = origin(url)
        near = [address for address, login in self._logins.items() if login and origin(address) == place]
        # An index whose URL starts the URL's first, the longest of those before others.
        return self._logins[max(near, key=lambda a: (url.startswith(a.rstrip("/") + "/"), len(a)))] if near else None

    def _look_up(self, service: str, user: str | None) -> tuple[str, str] | None:
        if self._keyring in ("auto", "import"):
            found = _from_package(service, user)
            if found is not None or self._keyring == "import":
                return found
        return _from_command(service, user)

    def describe(self, url: str) -> str:
        """Whether something was sent, in words for a message."""
        return "the credentials were refused" if self.known(url) else f"no credentials are known for {redact(url)}"


def _from_package(service: str, user: str | None) -> tuple[str, str] | None:
    try:
        import keyring
        import keyring.errors
    except ImportError:
        return None
    try:
        found = keyring.get_credential(service, user)
    except (keyring.errors.KeyringError, OSError, RuntimeError):
        return None
    return None if found is None or found.password is None else (found.username, found.password)


def _from_command(service: str, user: str | None) -> tuple[str, str] | None:
    """``keyring get`` as pip and uv run it; without a user, ``--mode creds`` (keyring 25) prints both."""
    import shutil
    import subprocess

    command = shutil.which("keyring")
    if command is None:
        return None
    arguments = ["get", service, user] if user else ["--mode", "creds", "get", service]
    try:
        done = subprocess.run(
            [command, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    lines = done.stdout.splitlines()
    if done.returncode != 0 or not lines:
        return None
    if user:
        return user, lines[0]
    return (lines[0], lines[1]) if len(lines) > 1 else None


# `/t/TOKEN/` at the head of the path: conda's documentation, "Channels and repositories requiring authentication".
_TOKEN = re.compile(r"/t/[^/\s]+(?=/)")


def without_secrets(text: str) -> str:
    """Text whose URLs hold none; clients have stores of their own for them."""
    return _TOKEN.sub("", without_logins(text))


def resolved(link: str, base: str) -> str | None:
    """A link's absolute URL without fragment; None for one that a page at ``base`` may not give."""
    link = link.partition("#")[0]
    if link.startswith(("https://", "http://")) and "[" not in link:  # an IPv6 address may be a broken one
        return link
    place = safe_join(base, link)
    if place is None or not place.startswith(("https://", "http://", "file://")):
        return None
    if place.startswith("file:") and not base.startswith("file:"):
        return None
    return place


_BRACKETED = re.compile(r"(^|@)\[([0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(%[^]]+)?|v[0-9A-Fa-f]+\.[^]]+)\](:\d*)?$")
"""An IPv6 address, or the form that a later version of it may get (RFC 3986)."""


def safe_join(base: str, link: str) -> str | None:
    """A link's URL relative to a base; None if it cannot be read."""
    try:
        joined = urljoin(base, link)
        host = urlsplit(joined).netloc
    except ValueError:
        return None
    # Before 3.11.4, Python takes anything in brackets for a host, an empty one as well.
    return joined if "[" not in host or _BRACKETED.search(host) else None


# URLs of source trees: ``git+https://host/repository@revision#subdirectory=folder``, ``file:///folder``.


#: Version of a source tree that only its build knows.
UNREAD = Version("0+unread")


class Tree(msgspec.Struct, frozen=True):
    """The source tree that a package is built from.

    Attributes:
        repository: URL of its git repository, ``https://github.com/Dao-AILab/flash-attention``; None for a directory
            and for another kind of repository.
        revision: What was requested of it, a branch, a tag or a commit; None for its default branch.
        commit: The commit that this was; None if the repository was not read.
        directory: Absolute path of the directory; None for a repository.
        subdirectory: The directory of the project in it; None for its top.
        exact: Whether what it depends on was read; False if only its build knows it.
        needs_torch: Whether its build imports torch; None if it was not read.
        build_requires: The build requirements in its pyproject.toml.
        unread: Why it was not read; None if it was.
    """

    repository: str | None = None
    revision: str | None = None
    commit: str | None = None
    folder: str | None = None
    subdirectory: str | None = None
    exact: bool = False
    needs_torch: bool | None = None
    build_requires: tuple[str, ...] = ()
    unread: str | None = None

    @property
    def address(self) -> str | None:
        """Its URL as pip and uv take it, with the commit that was read; None for other kinds of repositories."""
        if self.folder is not None:
            return Path(self.folder).as_uri() + self._fragment
        if self.repository is None:
            return None
        revision = self.commit or self.revision
        return f"git+{self.repository}{f'@{revision}' if revision else ''}{self._fragment}"

    @property
    def _fragment(self) -> str:
        return f"#subdirectory={self.subdirectory}" if self.subdirectory else ""


_OTHER_KINDS = ("hg+", "svn+", "bzr+")
# What git fetches without running a program that a URL names (`ext::`).
_SCHEMES = ("https", "http", "ssh", "git", "file")
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


def read_address(url: str) -> Tree:
    """The tree that a URL names, not read yet; ``unread`` says why it cannot be."""
    if is_of_another_kind(url):
        return Tree(unread=f"only git repositories are read, not {url.partition('+')[0]}")
    try:
        parts = urlsplit(url.removeprefix("git+"))
    except ValueError as error:
        return Tree(unread=f"it is not a valid URL: {error}")
    subdirectory = next(iter(parse_qs(parts.fragment).get("subdirectory", ())), None)
    if not is_inside(subdirectory):
        return Tree(unread=f"its subdirectory {subdirectory} is not in it")
    if not url.startswith("git+"):
        return Tree(folder=unquote(parts.path), subdirectory=subdirectory)
    path, _, revision = parts.path.rpartition("@") if "@" in parts.path else (parts.path, "", "")
    repository = urlunsplit((parts.scheme, parts.netloc, path, "", ""))
    if parts.scheme not in _SCHEMES or revision.startswith("-"):
        return Tree(unread="git does not support this kind of URL")
    return Tree(repository=repository, revision=revision or None, subdirectory=subdirectory)


def is_of_another_kind(url: str) -> bool:
    """Whether a URL is that of a repository which is not git's."""
    return url.startswith(_OTHER_KINDS)


def is_commit(text: str) -> bool:
    """Whether a text is a whole commit id, SHA-1 or SHA-256."""
    return _COMMIT.fullmatch(text) is not None


def is_inside(subdirectory: str | None) -> bool:
    """Whether a subdirectory, if given, stays within its tree."""
    return subdirectory is None or not (subdirectory.startswith("/") or ".." in subdirectory.split("/"))

"""rattler's client, which gets the logins of channels, and the records of a channel one by one.

An odd record is left out, as an odd file name on a package index is.
"""

from __future__ import annotations

import base64
import hashlib
import importlib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from envsolve.errors import UsageError
from envsolve.packages.cache import default_cache_dir, make_private
from envsolve.packages.urls import split_login, without_secrets
from envsolve.system.files import from_json

_INSTALL = "pip install 'envsolve[conda]'"


def rattler() -> Any:
    """The library.

    Raises:
        UsageError: It is not installed.
    """
    try:
        return importlib.import_module("rattler")
    except ImportError as error:
        raise UsageError(
            f"envsolve needs py-rattler for conda packages, and it is not installed ({error})",
            hint=f"install it into envsolve's environment: {_INSTALL}",
        ) from error


def clean_url(channel: str) -> str:
    """The URL of a channel, or of a file of one, without login and token; a local path stays as it is."""
    return without_secrets(channel) if channel.startswith(("http://", "https://")) else channel


class ChannelSecrets:
    """Logins and tokens of channels, kept from rattler, which writes URLs into its cache and into environments.

    Its client is given them for the requests only.

    Args:
        channels: Names or URLs, with what is secret.
    """

    def __init__(self, channels: Iterable[str]) -> None:
        given = {clean_url(channel).rstrip("/"): channel.rstrip("/") for channel in channels}
        self._secret = {clean: channel for clean, channel in given.items() if clean != channel}

    def restored(self, url: str) -> str:
        """A URL that rattler knows, with what is secret of its channel."""
        for clean, channel in self._secret.items():
            if url == clean or url.startswith(f"{clean}/"):
                return channel + url[len(clean) :]
        return url

    def client(self) -> Any:
        """A client of rattler that sends them, each to its own channel."""
        lib = rattler()
        if not self._secret:
            return lib.Client.default_client()
        net = importlib.import_module("rattler.networking")
        tokens = {clean: [split_login(channel)[0]] for clean, channel in self._secret.items()}
        kinds = (net.AuthenticationMiddleware, net.OciMiddleware, net.GCSMiddleware, net.S3Middleware)
        # The headers before the mirrors: these change the URL that the headers are chosen by.
        first = (net.RetryMiddleware(), net.AddHeadersMiddleware(self._headers), net.MirrorMiddleware(tokens))
        return lib.Client([*first, *(kind() for kind in kinds)])

    def _headers(self, host: str, path: str) -> dict[str, str] | None:
        for clean, channel in self._secret.items():
            parts, login = urlsplit(clean), split_login(channel)[1]
            if login and parts.hostname == host and path.startswith(f"{parts.path}/"):
                words = f"{login.user}:{login.password or ''}".encode()
                return {"Authorization": f"Basic {base64.b64encode(words).decode('ascii')}"}
        return None

    def gateway(self, **config: Any) -> Any:
        """A gateway with a cache of its own for each set of secrets: what one opened is not answered to another."""
        lib = rattler()
        folder = None
        if self._secret:
            name = hashlib.sha256(repr(sorted(self._secret.values())).encode()).hexdigest()[:40]
            folder = default_cache_dir() / "channels" / name
            with suppress(OSError):  # rattler says what is wrong with the directory
                make_private(folder)
        return lib.Gateway(folder, default_config=lib.SourceConfig(**config), client=self.client())


class _Named(msgspec.Struct, frozen=True):
    name: str


class _Fetched(msgspec.Struct, frozen=True):
    url: str


class _Index(msgspec.Struct, frozen=True):
    """A ``repodata.json`` whose records are not read."""

    info: msgspec.Raw = msgspec.Raw(b"{}")
    tarballs: dict[str, msgspec.Raw] = msgspec.field(name="packages", default_factory=dict)
    archives: dict[str, msgspec.Raw] = msgspec.field(name="packages.conda", default_factory=dict)


class SoundRecords:
    """A channel without the records that rattler cannot read, as rattler's protocol ``RepoDataSource`` has it.

    rattler refuses all records of a name for one that is odd, and all names for an odd name of a file.

    Args:
        channel: The channel, as rattler has it.
        directory: The indexes of the channel, as rattler fetched them.
    """

    def __init__(self, channel: Any, folder: Path) -> None:
        self._channel, self._folder = channel, folder
        self._by_name: dict[tuple[str, str], list[tuple[str, str, msgspec.Raw]]] = {}
        self._info: dict[str, msgspec.Raw] = {}
        for fetched in folder.glob("*.info.json"):
            subdir = urlsplit(from_json(fetched.read_bytes(), _Fetched).url).path.split("/")[-2]
            index = from_json(fetched.with_name(fetched.name.replace(".info.", ".")).read_bytes(), _Index)
            self._info[subdir] = index.info
            for kind, records in (("packages", index.tarballs), ("packages.conda", index.archives)):
                for filename, record in records.items():
                    with suppress(msgspec.MsgspecError):
                        named = from_json(bytes(record), _Named).name
                        self._by_name.setdefault((subdir, named), []).append((kind, filename, record))

    async def fetch_package_records(self, platform: Any, name: Any) -> list[Any]:
        """The records of a name."""
        subdir = str(platform)
        return self._readable(subdir, name, self._by_name.get((subdir, name.normalized), []))

    def package_names(self, platform: Any) -> list[str]:
        """All names."""
        return [name for subdir, name in self._by_name if subdir == str(platform)]

    def _readable(self, subdir: str, name: Any, records: Sequence[tuple[str, str, msgspec.Raw]]) -> list[Any]:
        """Those that rattler reads, found by halving: the rules of its reader are not repeated here."""
        if not records:
            return []
        index: dict[str, Any] = {"info": self._info[subdir], "packages": {}, "packages.conda": {}}
        for kind, filename, record in records:
            index[kind][filename] = record
        path = self._folder / "some.json"
        path.write_bytes(msgspec.json.encode(index))
        sparse = importlib.import_module("rattler.repo_data.sparse")
        try:
            return list(sparse.SparseRepoData(self._channel, subdir, path).load_records(name))
        except Exception:
            half = len(records) // 2
            parts = (records[:half], records[half:]) if half else ()
            return [record for part in parts for record in self._readable(subdir, name, part)]

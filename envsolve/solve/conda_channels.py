"""Conda channels and the solver, through rattler.

rattler reads a channel's index (sharded, compressed or plain), keeps it in its own cache, and solves. It is an extra,
imported when the first channel is asked.
"""

from __future__ import annotations

import asyncio
import datetime
import importlib
import re
import weakref
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import msgspec

from envsolve.errors import EnvsolveError, IndexUnavailableError, UsageError
from envsolve.packages.urls import local_path, without_secrets
from envsolve.rules.conda import Candidate, Spec, VirtualPackage
from envsolve.solve.conda_client import ChannelSecrets, SoundRecords, clean_url, rattler
from envsolve.system.files import home_path, is_folder

Answer = TypeVar("Answer")
_Question = Callable[[Sequence[Any]], Coroutine[Any, Any, Answer]]

# The channel of records that have been looked through, for the solver alone.
_APART = "https://allowed.invalid/"
# What rattler, as conda, takes for the path of a directory.
_PLACES = ("/", "./", "../", "~/")
_OWN_DOING = ("strict channel priority", "The following packages are incompatible")
# Of a record that is no record, and of the name of a file that JSON escapes.
_ODD = re.compile(r"failed to (?:extract repodata records|parse repodata)")
_BRANCH = re.compile(r"[\s│├└─╰╭]+")


class UnsolvableError(Exception):
    """No set of packages meets what is asked.

    Attributes:
        lines: The solver's words, a line for each step of its reasoning.
    """

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__("; ".join(lines))
        self.lines = tuple(lines)


class _OddRecordError(IndexUnavailableError):
    """rattler cannot read a record, and therefore not the channel."""


class Channels:
    """Channels in the order of their preference; a package is taken from the first that has it.

    Args:
        names: Names (``conda-forge``) or URLs.
        offline: Answer only from rattler's cache.
        exclude_newer: First instant that is too late, ISO 8601 in UTC.
    """

    def __init__(self, names: Sequence[str], *, offline: bool = False, exclude_newer: str | None = None) -> None:
        self._rattler = rattler()
        self._names = tuple(names)
        self._sources = [self._channel(name) for name in names]
        self._secrets = ChannelSecrets(names)
        action = "force-cache-only" if offline else "cache-or-fetch"
        self._client = self._secrets.client()
        self._gateway = self._secrets.gateway(cache_action=action)
        self._offline = offline
        self._cutoff = datetime.datetime.fromisoformat(exclude_newer) if exclude_newer else None
        self._records: dict[str, Any] = {}

    def candidates(self, specs: Iterable[str], subdir: str) -> dict[str, tuple[Candidate, ...]]:
        """The packages that match specs, by name: of each name those of the first channel that has any.

        Raises:
            IndexUnavailableError: A channel could not be read.
        """
        found: dict[str, tuple[Candidate, ...]] = {}
        # Not strictly: the builds of the channel pytorch have dots in their names.
        wanted = [self._rattler.MatchSpec(spec, strict=False) for spec in specs]
        for number in range(len(self._names)) if wanted else ():

            def query(sources: Sequence[Any]) -> Coroutine[Any, Any, Any]:
                made: Coroutine[Any, Any, Any] = self._gateway.query(
                    sources, [subdir, "noarch"], wanted, recursive=False
                )
                return made

            for record in (record for part in self._ask(query, [number], subdir) for record in part):
                candidate = self._candidate(record)
                if not any(one.channel != candidate.channel for one in found.get(candidate.name, ())):
                    found[candidate.name] = (*found.get(candidate.name, ()), candidate)
        return found

    def solve(
        self,
        specs: Sequence[Spec],
        constraints: Sequence[Spec],
        virtual: Sequence[VirtualPackage],
        subdir: str,
        only: Mapping[str, Sequence[Candidate]],
    ) -> tuple[Candidate, ...]:
        """The packages that meet specs, in the order in which they are installed.

        Args:
            specs: What must be there.
            constraints: Constraints on packages that other packages require.
            virtual: What the machine has; nothing is found out on this one.
            subdir: The machine's, ``linux-64``.
            only: The candidates that may be chosen, for the packages named; an empty list forbids a package.

        Raises:
            UnsolvableError: Nothing meets them.
            IndexUnavailableError: A channel could not be read.
        """
        lib = self._rattler
        allowed = {name: [self._set_apart(one) for one in some] for name, some in only.items() if some}
        forbidden = [Spec(name, "<0.0a0") for name, some in only.items() if not some]
        made = [
            lib.GenericVirtualPackage(lib.PackageName(v.name), lib.Version(v.version), lib.BuildString(v.build))
            for v in virtual
        ]

        def solving(sources: Sequence[Any]) -> Coroutine[Any, Any, Any]:
            # With strict priority a package that the first channel has is taken from no other.
            made_of: Coroutine[Any, Any, Any] = lib.solve(
                sources=[_Allowed(allowed), *sources],
                specs=[self._spec(_without_channel(spec, only)) for spec in specs],
                constraints=[self._spec(spec) for spec in (*constraints, *forbidden)],
                gateway=self._gateway,
                platforms=[subdir, "noarch"],
                virtual_packages=made,
                exclude_newer=self._cutoff,
            )
            return made_of

        records = self._ask(solving, range(len(self._names)), subdir)
        by_name = {record.name.normalized: self._chosen(record) for record in records}
        _check_allowed(by_name, only)
        return tuple(by_name[one.name.normalized] for one in lib.PackageRecord.sort_topologically(records))

    def _set_apart(self, candidate: Candidate) -> Any:
        """A record as if another channel had it: the solver distinguishes channels by their URL."""
        record = self._records[clean_url(candidate.url)]
        return self._rattler.RepoDataRecord(record, record.file_name, record.url, _APART)

    def _chosen(self, record: Any) -> Candidate:
        """The candidate of a record that the solver gives back, from the channel that has it."""
        return self._candidate(self._records.get(clean_url(record.url), record) if record.channel == _APART else record)

    def _channel(self, name: str) -> Any:
        if not name.strip() or not _may_be_there(name):
            raise UsageError(
                f"conda channel {name!r} does not exist",
                hint="give the name of a channel (conda-forge) or its directory",
            )
        try:
            return self._rattler.Channel(clean_url(name))
        except Exception as error:
            told = without_secrets(f"{name!r} is not a conda channel: {error}")
            raise UsageError(told, hint="give the name of a channel, such as conda-forge") from error

    def _spec(self, spec: Spec) -> Any:
        try:
            return self._rattler.MatchSpec(str(spec), strict=False)
        except Exception as error:
            raise UsageError(f"{spec.origin}: {str(spec)!r} is not a match spec: {error}") from error

    def _ask(self, question: _Question[Answer], numbers: Sequence[int], subdir: str) -> Answer:
        """The answer of some channels, without their odd records; rattler's failures are raised as ours."""
        names = [self._names[number] for number in numbers]
        try:
            return self._asked(question([self._sources[number] for number in numbers]), names)
        except _OddRecordError as error:
            try:
                for number in numbers:
                    self._sources[number] = self._sound(number, subdir)
            except msgspec.MsgspecError:  # the index is none
                raise error from None
            return self._asked(question([self._sources[number] for number in numbers]), names)

    def _sound(self, number: int, subdir: str) -> Any:
        """The source of a channel, without its odd records."""
        source, lib = self._sources[number], self._rattler
        if isinstance(source, SoundRecords):
            return source
        folder = TemporaryDirectory(prefix="envsolve-channel-")
        weakref.finalize(self, folder.cleanup)
        for place in (subdir, "noarch"):
            fetch = lib.fetch_repo_data(
                channels=[source],
                platforms=[lib.Subdir(place)],
                cache_path=folder.name,
                callback=None,
                client=self._client,
            )
            with suppress(OSError):  # of an odd name of a file, after the index was fetched
                self._asked(fetch, [self._names[number]])
        return SoundRecords(source, Path(folder.name))

    def _asked(self, question: Coroutine[Any, Any, Answer], names: Sequence[str]) -> Answer:
        errors = importlib.import_module("rattler.exceptions")
        try:
            return _answered(question)
        except errors.SolverError as error:
            raise UnsolvableError(_lines(str(error))) from error
        except (errors.GatewayError, errors.FetchRepoDataError, errors.IoError) as error:
            told = without_secrets(" and ".join(names))
            if self._offline:
                hint = "run the command once without --offline; the cache keeps what it downloads"
                raise IndexUnavailableError(f"the cache has no index of {told}", hint=hint) from error
            text = f"the conda channel {told} could not be read: {_first_cause(error)}"
            hint = "check the network and proxy settings, or use a mirror: --channel https://..."
            kind = _OddRecordError if _ODD.search(str(error)) else IndexUnavailableError
            raise kind(text, hint=hint) from error
        except errors.CacheDirError as error:
            raise EnvsolveError(f"rattler's cache cannot be used: {error}", hint="set RATTLER_CACHE_DIR") from error

    def _candidate(self, record: Any) -> Candidate:
        self._records[clean_url(record.url)] = record
        digests = {"sha256": record.sha256, "md5": record.md5}
        return Candidate(
            name=record.name.normalized,
            version=str(record.version),
            build=str(record.build),
            number=record.build_number,
            subdir=record.subdir,
            channel=self._secrets.restored(str(record.channel).rstrip("/")),
            url=self._secrets.restored(record.url),
            filename=record.file_name,
            depends=tuple(record.depends),
            hashes={name: digest.hex() for name, digest in digests.items() if digest},
            size=record.size,
        )


class _Allowed:
    """A source of records that have been looked through; it implements rattler's ``RepoDataSource``."""

    def __init__(self, records: Mapping[str, Sequence[Any]]) -> None:
        self._by_name = records

    async def fetch_package_records(self, platform: Any, name: Any) -> list[Any]:
        return [record for record in self._by_name.get(name.normalized, ()) if record.subdir == str(platform)]

    def package_names(self, platform: Any) -> list[str]:
        return list(self._by_name)


def _without_channel(spec: Spec, only: Mapping[str, Sequence[Candidate]]) -> Spec:
    """A spec of a package whose candidates are all of the channel that it names, and are listed separately from it."""
    some = only.get(spec.name)
    named = some and spec.channel and all(one.channel.endswith(f"/{spec.channel.strip('/')}") for one in some)
    return replace(spec, channel=None) if named else spec


def _check_allowed(chosen: Mapping[str, Candidate], only: Mapping[str, Sequence[Candidate]]) -> None:
    """Make sure that the solver chose only allowed builds: a build that does not run must never get into a plan.

    Raises:
        UnsolvableError: It did not.
    """
    for name, some in only.items():
        if name in chosen and chosen[name].url not in {one.url for one in some}:
            raise UnsolvableError([f"the solver chose {chosen[name].filename}, which does not run on the machines"])


def _may_be_there(name: str) -> bool:
    """Whether a channel is remote, or a directory that exists."""
    if name.startswith("file:"):
        return is_folder(local_path(name))
    return not name.startswith(_PLACES) or is_folder(home_path(name))


def _answered(question: Coroutine[Any, Any, Answer]) -> Answer:
    """Run a coroutine to its end, also where a loop is running already (a notebook)."""

    async def ask() -> Answer:
        return await question

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(ask())
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, ask()).result()


def _lines(text: str) -> list[str]:
    """The solver's tree, a line for each thought, without its drawing and without what envsolve itself left out."""
    body = text.partition("because of: ")[2] or text
    lines: list[str] = []
    for line in (_BRANCH.sub(" ", line).strip().rstrip(".:") for line in body.splitlines()):
        if lines and lines[-1].endswith("would require"):
            lines[-1] += f" {line}"
        elif line and not any(words in line for words in _OWN_DOING):
            lines.append(line)
    return list(dict.fromkeys(lines))


def _first_cause(error: Exception) -> str:
    words = str(error) or type(error).__name__
    return without_secrets(" ".join(words.split()))[:300]

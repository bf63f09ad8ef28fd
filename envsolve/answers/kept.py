"""The answers on disk, in a folder of their own beside the pages that they were made from."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from envsolve.index.cache import DiskCache, Entry, Origin, default_cache_dir
from envsolve.plan import Plan

_FOLDER, _KIND = "answers", "plans-1"
#: Bytes of answers that are kept; of more, those go that were written first.
LIMIT = 32 * 2**20


class _Answer(msgspec.Struct, frozen=True, array_like=True):
    """A plan, and what it stands on.

    Attributes:
        fresh_until: Seconds since the epoch; from then on, another run would ask an index again.
        entries: Of pages and metadata, all that were read.
    """

    fresh_until: float
    entries: tuple[Entry, ...]
    plan: Plan


class Answers:
    """Kept answers by the key of their question. Only what another run would read again is given."""

    def __init__(self, folder: Path | None = None, *, offline: bool = False, limit: int = LIMIT) -> None:
        """Prepare; reads nothing.

        Args:
            folder: The cache's; the user's where None.
            offline: Pages are good however old they are.
            limit: Bytes to hold at most.
        """
        folder = folder or default_cache_dir()
        self._offline, self._limit = offline, limit
        self._pages = DiskCache(folder / "index")
        self._cache = DiskCache(folder / _FOLDER)

    def read(self, key: str) -> Plan | None:
        """The plan under a question's key, where every page that it was made from is there, the same, and fresh."""
        body = self._cache.read(_KIND, key)
        if body is None:
            return None
        try:
            answer = msgspec.msgpack.decode(body, type=_Answer)
        except msgspec.MsgspecError:
            return None
        same = self._are_fresh(answer.fresh_until) and all(map(self._pages.has, answer.entries))
        return answer.plan if same else None

    def keep(self, key: str, plan: Plan, origins: Sequence[Origin]) -> None:
        """Keep a plan with the entries that it was made from, where they may be read once more."""
        fresh_until = min((origin.fresh_until for origin in origins), default=math.inf)
        if not self._are_fresh(fresh_until):
            return
        answer = _Answer(fresh_until, tuple(origin.entry for origin in origins), plan)
        self._cache.write(_KIND, key, msgspec.msgpack.encode(answer, enc_hook=dict))  # the hook is for mappings
        self._shrink()

    def _are_fresh(self, until: float) -> bool:
        return self._offline or until > time.time()

    def _shrink(self) -> None:
        """Hold the limit. Others may be at it, too."""
        found = []
        for path in self._cache.folder.glob("*/*/*"):
            with suppress(OSError):
                status = path.stat()
                found.append((status.st_mtime_ns, status.st_size, path))
        room = self._limit
        for _, size, path in sorted(found, reverse=True):
            room -= size
            if room < 0:
                with suppress(OSError):
                    path.unlink()

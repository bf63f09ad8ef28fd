"""Asking for pages before anybody knows that they are needed, on the word of releases that the catalogue knows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from packaging.utils import canonicalize_name

from envsolve.index.client import IndexClient
from envsolve.resolve.environment import Environment
from envsolve.resolve.lines import only_for, parsed

_Wanted = tuple[str, str]  # a package, and an extra of it or ""


class Likely:
    """The pages of what is needed, and, where those are not in the cache, of what that is likely to need in turn.

    Without it a cold plan waits once for each layer of dependencies. What is likely is what the newest known releases
    need in this environment; the pages decide.
    """

    def __init__(self, client: IndexClient, environment: Environment, owned: Callable[[str], bool]) -> None:
        """Args: owned: Whether a package is of the family, whose pages are read only for files."""
        self._client = client
        self._environment = environment
        self._owned = owned
        self._seen: set[_Wanted] = set()

    def ask(self, needed: Iterable[_Wanted]) -> None:
        """Start asking for the pages of packages with their extras; what the cache has is read from there."""
        new = [wanted for wanted in needed if not self._owned(wanted[0])]
        if self._client.prefetch(sorted({name for name, _ in new})):
            self._client.prefetch(self._names_behind(new))

    def _names_behind(self, needed: Iterable[_Wanted]) -> list[str]:
        """Names in the order in which they were come upon, the nearest first."""
        found: dict[str, None] = {}
        queue = list(needed)
        for wanted in queue:
            if wanted not in self._seen:
                self._seen.add(wanted)
                following = [one for one in self._needed_by(wanted) if not self._owned(one[0])]
                found.update((name, None) for name, _ in following)
                queue += following
        return list(found)

    def _needed_by(self, wanted: _Wanted) -> Iterator[_Wanted]:
        name, extra = wanted
        for line in self._client.known.requires(name):
            only = only_for(line)
            if only is not None and only != extra:
                continue
            requirement = parsed(line)
            if requirement is not None and self._environment.wants(requirement.marker, extra):
                needed = canonicalize_name(requirement.name)
                yield needed, ""
                yield from ((needed, canonicalize_name(one)) for one in requirement.extras)

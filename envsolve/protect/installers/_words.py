"""Reading the words of a command line: options with their values, and the names of packages asked for."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from envsolve.errors import EnvsolveError


def value_of(words: Sequence[str], *names: str) -> str | None:
    """The value of the last of some options: ``--python X``, ``--python=X``, ``-p X``, ``-pX``."""
    found = None
    for n, word in enumerate(words):
        name, equals, value = word.partition("=")
        if word in names:
            found = words[n + 1] if n + 1 < len(words) else None
        elif equals and name in names:
            found = value
        elif not word.startswith("--") and word[:2] in names and len(word) > 2:
            found = word[2:]
    return found


def verb_at(words: Sequence[str], valued: Collection[str]) -> int:
    """Where the first word stands that is no option, nor the value of one of ``valued``; the end where none is."""
    n = 0
    while n < len(words) and words[n].startswith("-"):
        n += 2 if words[n] in valued else 1
    return n


def names_asked(words: Sequence[str]) -> frozenset[str]:
    """Normalised names of the requirements among the words, and of those in requirement files."""
    names: set[str] = {canonicalize_name(r.name) for r in _requirements(words)}
    names |= {canonicalize_name(Path(word).name.split("-")[0]) for word in words if word.endswith(".whl")}
    for n, word in enumerate(words[:-1]):
        if word in ("-r", "--requirement", "--requirements"):
            names |= _of_file(Path(words[n + 1]))
    return frozenset(names)


def _requirements(words: Iterable[str]) -> Iterator[Requirement]:
    for word in words:
        try:
            yield Requirement(word)
        except InvalidRequirement:
            continue


def _of_file(path: Path) -> set[str]:
    from envsolve.packages.requirement_files import read_requirements

    try:
        asked = read_requirements((), (path,))
    except EnvsolveError:
        return set()  # The installer itself will say what is wrong with it.
    return {canonicalize_name(need.requirement.name) for need in asked.needs}

"""Libraries, symbols and versions of them that the loader would not find.

A wheel also brings libraries that load only elsewhere: for another toolkit (bitsandbytes has one for each), for
networks and launchers (NVSHMEM's transports), for a video library in the version at hand (torchcodec), for a scheduler
that few have (numba's TBB), for a torch that is there or not. Their owners try them and go on without. So a library
that is not found is a fault only if the environment should have it: one of the toolkit or of torch, one that the
same wheel brings, or whatever torch's own libraries, and modules built on torch, need.
"""

from __future__ import annotations

import re
import time
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

from envsolve.binaries.elf import Symbols, Taken
from envsolve.binaries.names import ACCELERATOR_LIBRARY, DRIVER_LIBRARY
from envsolve.environment.loader import OF_TORCH, Loader
from envsolve.environment.model import Library
from envsolve.errors import UsageError

#: The name of what Python imports says so; others are libraries, or plug-ins that their owner loads by name.
_MODULE = re.compile(r".+\.(?:cpython-\d+t?-[\w-]+|abi3t?)\.so")
#: What the vendor publishes beside the toolkit is used where it is there: cupy has a module for each of these.
_BESIDE_THE_TOOLKIT = re.compile(r"lib(?:cudnn|cudss|cusparseLt|cutensor|nccl)")
#: What auditwheel puts into the name of a library that it copies into a wheel.
_COPIED = re.compile(r".*-[0-9a-f]{8}\.so(?:\.\d+)*")
_DIGITS = re.compile(r"\d+")
_NAMED = 3
#: Each open library takes a file descriptor, of which a process may often have a thousand.
_MOST_OPEN = 256


@dataclass(frozen=True, slots=True)
class Problem:
    """A library or symbol that the loader would not find, in words, and its root cause if that is known."""

    text: str
    cause: str | None = None


@dataclass(frozen=True, slots=True)
class Linking:
    """The result of the search.

    Attributes:
        problems: What keeps something from loading.
        elsewhere: By distribution, what its libraries for other machines lack on this one.
        symbols: How many symbols were looked up.
    """

    problems: tuple[Problem, ...]
    elsewhere: tuple[tuple[str, tuple[str, ...]], ...]
    symbols: int


def read_linking(loader: Loader, seconds: float) -> Linking:
    """Look up what every library of an environment needs.

    Raises:
        TimeoutError: It takes longer than ``seconds``.
    """
    elsewhere: dict[str, dict[str, None]] = {}
    problems, whole = _look_for_libraries(loader, elsewhere)
    deadline = time.monotonic() + seconds
    with _Tables() as tables:
        for library in whole:
            if time.monotonic() > deadline:
                raise TimeoutError
            try:
                left = _left(library, loader, tables)
                if left and _loads_elsewhere(library, left, loader, tables):
                    _note(elsewhere, library, map(_in_words, left))
                elif left:
                    problems.append(_unresolved(left, library, loader))
            except (UsageError, OSError) as error:
                problems.append(Problem(f"{library.path} cannot be read: {error}"))
        by_owner = tuple((owner, tuple(names)) for owner, names in elsewhere.items())
        return Linking(tuple(problems), by_owner, tables.asked)


def _look_for_libraries(
    loader: Loader, elsewhere: dict[str, dict[str, None]]
) -> tuple[list[Problem], Sequence[Library]]:
    """Required libraries that are not found, and the libraries of which everything is found."""
    problems: list[Problem] = []
    told: set[str] = set()
    whole: list[Library] = []
    for library in loader.own:
        lacking = loader.closure(library)[1]
        missing = [name for name in lacking if not DRIVER_LIBRARY.fullmatch(name)]
        faults = [name for name in missing if _is_fault(name, library, loader)]
        if faults and not _has_alternative(library, loader):
            problems += [_not_found(name, library) for name in faults if name not in told]
            told.update(faults)
        elif missing:
            _note(elsewhere, library, missing)
        elif not lacking and not library.cut_off:
            whole.append(library)
    return problems, whole


def _note(elsewhere: dict[str, dict[str, None]], library: Library, names: Iterable[str]) -> None:
    elsewhere.setdefault(library.owner or library.path, {}).update(dict.fromkeys(names))


def _is_fault(name: str, library: Library, loader: Loader) -> bool:
    of_toolkit = ACCELERATOR_LIBRARY.fullmatch(name) and not _BESIDE_THE_TOOLKIT.match(name)
    return (
        bool(of_toolkit or OF_TORCH.fullmatch(name) or _COPIED.fullmatch(name))
        or library.owner == "torch"
        or bool(_MODULE.fullmatch(library.name) and loader.of_torch(library))
    )


def _has_alternative(library: Library, loader: Loader) -> bool:
    """Whether a library beside it, whose name differs only in a number, finds everything that it needs."""
    alike = _DIGITS.sub("#", library.name)
    return any(
        other.real != library.real
        and PurePath(other.real).parent == PurePath(library.real).parent
        and _DIGITS.sub("#", other.name) == alike
        and all(map(DRIVER_LIBRARY.fullmatch, loader.closure(other)[1]))
        for other in loader.own
    )


def _not_found(name: str, library: Library) -> Problem:
    text = f"{library.path} needs {name}, which is neither in the environment nor on the loader's path"
    if ACCELERATOR_LIBRARY.fullmatch(name):
        return Problem(text, "library-mismatch")
    return Problem(text, "mixed-flavours" if OF_TORCH.fullmatch(name) else None)


def _left(library: Library, loader: Loader, tables: _Tables) -> list[Taken]:
    """A library's undefined symbols: no library loaded for it, or that it is loaded for, defines them."""
    scope = (*loader.everywhere, *loader.closure(library)[0])
    if library.owner == "torch":
        scope = (*scope, *loader.loaded_by_torch.values())
    left = [taken for taken in tables.of(library).taken() if not tables.given(taken, scope)]
    for user in loader.needed_by.get(library.real, ()) if left else ():
        around = (*loader.everywhere, *loader.closure(user)[0])
        left = [taken for taken in left if not tables.given(taken, around)]
    return left


def _loads_elsewhere(library: Library, left: list[Taken], loader: Loader, tables: _Tables) -> bool:
    """Whether the package loads the library only with the provider of these symbols, and works without it.

    That is torch, which the library does not name; or, for a plug-in, another version of what the system brings.
    """
    if loader.of_torch(library) or library.owner == "torch" or any(taken.version for taken in left):
        return False
    torch = tuple(loader.loaded_by_torch.values())
    if all(tables.given(taken, torch) for taken in left):
        return True
    own = {other.real for other in (*loader.own, *loader.everywhere)}
    on_the_system = any(other.real not in own for other in loader.closure(library)[0])
    is_plugin = not _MODULE.fullmatch(library.name) and library.real not in loader.needed_by
    return is_plugin and on_the_system


def _unresolved(left: list[Taken], library: Library, loader: Loader) -> Problem:
    named = ", ".join(map(_in_words, left[:_NAMED]))
    more = f" and {len(left) - _NAMED} more" if len(left) > _NAMED else ""
    text = f"{library.path} uses symbols that no library provides: {named}{more}"
    sources = {(taken.source or b"").decode(errors="replace") for taken in left}
    if any((taken.version or b"").startswith(b"GLIBC_") for taken in left):
        return Problem(text, "libc-too-old")
    if any(map(ACCELERATOR_LIBRARY.fullmatch, sources)):
        return Problem(text, "library-mismatch")
    return Problem(text, "mixed-flavours" if loader.of_torch(library) else None)


def _in_words(taken: Taken) -> str:
    name = taken.name.decode(errors="replace")
    return f"{name}, version {taken.version.decode(errors='replace')}" if taken.version else name


class _Tables:
    """Tables of symbols, as many as possible open at once: those that were opened first are closed first."""

    def __init__(self) -> None:
        self._open: OrderedDict[str, Symbols] = OrderedDict()
        self.asked = 0

    def __enter__(self) -> _Tables:
        return self

    def __exit__(self, *ended: object) -> None:
        for table in self._open.values():
            table.close()

    def of(self, library: Library) -> Symbols:
        """The table of a library."""
        table = self._open.get(library.real)
        if table is None:
            table = self._open[library.real] = Symbols(Path(library.real))
            if len(self._open) > _MOST_OPEN:
                self._open.popitem(last=False)[1].close()
        return table

    def given(self, taken: Taken, scope: tuple[Library, ...]) -> bool:
        """Whether one of the libraries defines a symbol."""
        self.asked += 1
        source = taken.source.decode(errors="replace") if taken.source else None
        named = next((library for library in scope if library.soname == source), None) if source else None
        if named is not None and self.of(named).gives(taken):
            return True
        return any(self.of(library).gives(taken) for library in scope)

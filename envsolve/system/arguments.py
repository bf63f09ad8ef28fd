"""Checks of the arguments of the public API, for mistakes that Python's types let through."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

from envsolve.errors import UsageError

StrPath = str | os.PathLike[str]
Item = TypeVar("Item")


def path_of(value: StrPath, name: str) -> Path:
    """Return an argument as a path.

    Raises:
        UsageError: It is neither text nor a path.
    """
    try:
        return Path(value)
    except TypeError:
        raise UsageError(f"{name}: {value!r} is not a path", hint="pass a str or a pathlib.Path") from None


def items(values: Iterable[Item] | None, kinds: type | tuple[type, ...], name: str) -> tuple[Item, ...]:
    """Return the members of a list argument; None is an empty list.

    Raises:
        UsageError: It is a single value, or a member has another type. A str is refused although it is a sequence of
            its letters: nobody means those.
    """
    if values is None:
        return ()
    if isinstance(values, (str, bytes, os.PathLike)) or not isinstance(values, Iterable):
        shown = repr(values) if isinstance(values, str) else f"a {type(values).__name__}"
        hint = f"write {name}=[{values!r}]" if isinstance(values, str) else "pass a list, even for one value"
        raise UsageError(f"{name}: {shown} is not a list", hint=hint)
    members = tuple(values)
    for member in members:
        if not isinstance(member, kinds):
            wanted = " or ".join(kind.__name__ for kind in (kinds if isinstance(kinds, tuple) else (kinds,)))
            raise UsageError(f"{name}: {member!r} is not of type {wanted}", hint=f"pass a list of {wanted}")
    return members


def paths(values: Iterable[StrPath] | None, name: str) -> tuple[Path, ...]:
    """Return the paths of a list argument.

    Raises:
        UsageError: As :func:`items`.
    """
    return tuple(Path(value) for value in items(values, (str, os.PathLike), name))

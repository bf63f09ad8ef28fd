"""Checks of what a program passes to :mod:`envsolve.api`, where Python's types alone would let a mistake through."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

from envsolve.errors import UsageError

StrPath = str | os.PathLike[str]
Item = TypeVar("Item")

_PYTHON = r"(?a)3\.\d{1,2}(?:\.\d+)?"


def path_of(value: StrPath, name: str) -> Path:
    """A path that was given as text or as a path.

    Raises:
        UsageError: It is neither.
    """
    try:
        return Path(value)
    except TypeError:
        raise UsageError(f"{name}: {value!r} is not a path", hint="give a str or a pathlib.Path") from None


def program_of(value: StrPath, name: str) -> Path:
    """The path of a program; text that is a bare name may be found along PATH, ``./name`` and a path may not.

    Raises:
        UsageError: It is neither text nor a path, or empty.
    """
    path = path_of(value, name)
    if value == "":
        raise UsageError(f"{name}: the path is empty", hint="name the program")
    # A Path no longer tells ./name from name.
    return path if isinstance(value, str) and not os.path.dirname(value) else path.absolute()  # noqa: PTH120


def items(values: Iterable[Item] | None, kinds: type | tuple[type, ...], name: str) -> tuple[Item, ...]:
    """The members of a list; None is an empty one.

    Raises:
        UsageError: It is a single value (a str is a sequence of letters, and is never meant so), or a member is of
            another kind.
    """
    if values is None:
        return ()
    if isinstance(values, (str, bytes, os.PathLike)) or not isinstance(values, Iterable):
        shown = repr(values) if isinstance(values, str) else f"a {type(values).__name__}"
        raise UsageError(f"{name}: {shown} is not a list", hint="give a list, also of one")
    members = tuple(values)
    for member in members:
        if not isinstance(member, kinds):
            wanted = " or ".join(kind.__name__ for kind in (kinds if isinstance(kinds, tuple) else (kinds,)))
            raise UsageError(f"{name}: {member!r} is not of type {wanted}", hint=f"give a list of {wanted}")
    return members


def paths(values: Iterable[StrPath] | None, name: str) -> tuple[Path, ...]:
    """The paths of a list.

    Raises:
        UsageError: As :func:`items`.
    """
    return tuple(Path(value) for value in items(values, (str, os.PathLike), name))


def python_version(value: Any) -> str | None:
    """A Python version as text, ``3.12``, or None.

    Raises:
        UsageError: It is none; a float is refused, since 3.1 and 3.10 are the same one.
    """
    if value is None or (isinstance(value, str) and re.fullmatch(_PYTHON, value)):
        return value
    raise UsageError(f"python: {value!r} is not a Python version", hint='write it as text, "3.12"')

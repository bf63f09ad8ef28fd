"""Changes to a user's TOML file that keep comments, order and layout."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from envsolve.errors import EnvsolveError, UsageError
from envsolve.system.files import parse_toml

_HINT = "correct the file; or run the command without --write and copy the tables"


def parsed(text: str, name: str) -> Any:
    """The document of a text.

    Raises:
        UsageError: It is not TOML.
    """
    import tomlkit  # it takes 20 ms, and only a change of a file needs it
    from tomlkit.exceptions import TOMLKitError

    try:
        return tomlkit.parse(text)
    except TOMLKitError as error:
        raise UsageError(f"{name} is not TOML: {error}", hint=_HINT) from None


def finished(document: Any, old: str, name: str) -> str:
    """The text of a changed document.

    Raises:
        EnvsolveError: The text would mean something else than the document.
    """
    new = _spaced(document.as_string(), old)
    # A key that the library puts behind the wrong header would silently mean something else.
    if parse_toml(new, Path(name)) != document.unwrap():
        raise EnvsolveError(f"{name} cannot be changed in place: its tables are in an unusual order", hint=_HINT)
    return new


def _spaced(new: str, old: str) -> str:
    """The text with a blank line before every table that follows another line than before."""
    if new == old:
        return old
    known = set(pairwise(old.splitlines()))
    lines: list[str] = []
    for pair in pairwise(["", *new.splitlines()]):
        if pair[1].startswith("[") and pair[0].strip() and pair not in known and not pair[0].startswith("#"):
            lines.append("")
        lines.append(pair[1])
    return "\n".join(lines).strip("\n") + "\n"


def table_in(parent: Any, key: str) -> Any:
    """A table, made if it is not there."""
    import tomlkit

    if key not in parent:
        parent[key] = tomlkit.table(is_super_table=key in ("tool", "uv"))
    return parent[key]


def table_at(document: Any, *keys: str) -> Any:
    """The table at a place, made with all above it that are not there; only the last of these has a header."""
    import tomlkit

    for place, key in enumerate(keys):
        if key not in document:
            document[key] = tomlkit.table(is_super_table=place < len(keys) - 1 or key == "poetry")
        document = document[key]
    return document


def list_in(parent: Any, key: str) -> Any:
    """A list, made if it is not there."""
    import tomlkit

    if key not in parent:
        parent[key] = tomlkit.array()
    return parent[key]


def tables_in(parent: Any, key: str) -> Any:
    """A new list of tables with a header each."""
    import tomlkit

    parent[key] = tomlkit.aot()
    return parent[key]


def as_entry(value: Mapping[str, Any], listed: Any) -> Any:
    """A table as an entry of a list of tables, in the layout of that list."""
    import tomlkit

    if isinstance(listed, tomlkit.items.Array):
        return inline(value)
    table = tomlkit.table()
    table.update(value)
    return table


def inline(value: Mapping[str, Any]) -> Any:
    """A table in one line, with the blanks that people and uv write in it."""
    import tomlkit

    words = (f"{key} = {tomlkit.item(one).as_string()}" for key, one in value.items())
    return tomlkit.value(f"{{ {', '.join(words)} }}")


def lines_of(values: Iterable[Mapping[str, Any]]) -> Any:
    """A list of tables with a line each."""
    import tomlkit

    array = tomlkit.array()
    for one in values:
        array.append(inline(one))
    return array.multiline(True)

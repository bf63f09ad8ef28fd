"""The request that a lock remembers, so that the same command can be repeated without its arguments."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

from msgspec import ValidationError, convert

from envsolve.cli.options import Asked, Machines
from envsolve.errors import UsageError
from envsolve.system.files import is_file, is_folder, own_table, parse_toml, read_regular, real_path

#: Options that are a matter of the moment or of the format, and the one that runs code: no lock chooses that.
_PASSING = ("offline", "manager", "channel", "build_metadata")
_HINT = "give the requirements and machines again, with -o; the new lock remembers them"


class Remembered(NamedTuple):
    """The request behind a lock, and its machines."""

    requirements: list[str]
    asked: Asked
    machines: Machines
    allow_groups: bool


def remember(
    text: str, requirements: Sequence[str], asked: Asked, machines: Machines, *, groups: bool, place: Path | None
) -> str:
    """The text of a lock with the request in its ``[tool.envsolve]`` table; no login of a URL is kept.

    Args:
        text: The lock without it.
        requirements: Words of the command line.
        asked: Its options.
        machines: Those that name machines.
        groups: Whether several plans were allowed.
        place: The lock, or the directory of several; paths are written relative to it. None leaves them as they are.
    """
    import tomli_w

    from envsolve.packages.urls import without_logins

    if place is not None:
        folder = place if is_folder(place) else place.parent
        requirements, asked, machines = _moved(requirements, asked, machines, Path(), folder)
    table = parse_toml(text, Path("pylock.toml"))
    request: dict[str, Any] = {"requirements": [without_logins(one) for one in requirements]}
    for options in (asked, machines):
        for name, value in options._asdict().items():
            if value not in (None, options._field_defaults[name], []) and name not in _PASSING:
                request[name.replace("_", "-")] = _plain(value)
    if groups:
        request["allow-groups"] = True
    table["tool"]["envsolve"]["request"] = request
    return tomli_w.dumps(table)


def _plain(value: Any) -> Any:
    from envsolve.packages.urls import without_logins

    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, Path):
        return value.as_posix()
    return without_logins(value) if isinstance(value, str) else value


def recall(lock: Path) -> Remembered:
    """Read the request that a lock remembers.

    Raises:
        UsageError: The file cannot be read, or remembers nothing that this version understands.
    """
    try:
        text = read_regular(lock).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the lock {lock} cannot be read: {error}", hint="give a pylock.toml") from None
    request = own_table(parse_toml(text, lock), lock).get("request")
    if not isinstance(request, dict):
        raise UsageError(f"{lock} does not record which requirements it was made from", hint=_HINT)
    fields = {name.replace("-", "_"): value for name, value in request.items()}
    try:
        words = convert(fields.get("requirements", []), list[str])
        asked, machines = Asked(**_of(Asked, fields)), Machines(**_of(Machines, fields))
        return Remembered(
            *_moved(words, asked, machines, lock.parent, Path()), convert(fields.get("allow_groups", False), bool)
        )
    except ValidationError as error:
        raise UsageError(f"the request in {lock} cannot be read: {error}", hint=_HINT) from None


def _moved(
    words: Sequence[str], asked: Asked, machines: Machines, start: Path, end: Path
) -> tuple[list[str], Asked, Machines]:
    """A request whose relative paths start at one directory, with paths that start at another."""
    if real_path(start) == real_path(end):
        return list(words), asked, machines

    def moved(value: Any) -> Any:
        if isinstance(value, list):
            return [moved(one) for one in value]
        if isinstance(value, Path):
            return value if value.is_absolute() else Path(_relative(start / value, end))
        return value

    # `.` and `./demo[gpu]` are projects, all else of the words are requirements.
    words = [_relative(start / one, end) if re.match(r"\.\.?(?:$|[/\[\\])", one) else one for one in words]
    links = [one if "://" in one else _relative(start / one, end) for one in asked.find_links or ()]
    asked = asked._replace(**{name: moved(value) for name, value in asked._asdict().items()})
    machines = machines._replace(**{name: moved(value) for name, value in machines._asdict().items()})
    return words, asked._replace(find_links=links or None), machines


def _relative(path: Path, folder: Path) -> str:
    """A path relative to a directory, so that it is not taken for a name; absolute if they have no common root."""
    try:
        found = Path(os.path.relpath(path, folder)).as_posix()
    except ValueError:  # another drive of Windows
        return real_path(path).as_posix()
    return found if found.startswith(".") else f"./{found}"


def _of(group: Any, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a group among remembered ones, in the types that the command line gives them."""
    hints = get_type_hints(group)
    found = {name: value for name, value in fields.items() if name in group._fields and name not in _PASSING}
    return {name: convert(value, hints[name], dec_hook=lambda kind, text: kind(text)) for name, value in found.items()}


def recalled(requirements: Sequence[str], asked: Asked, machines: Machines, lock: Path | None) -> Remembered:
    """The request of a command, completed from a lock if the command names no requirements.

    An option of the command replaces the remembered one.

    Raises:
        UsageError: As :func:`recall`.
    """
    if requirements or asked.requirement or lock is None or not is_file(lock):
        return Remembered(list(requirements), asked, machines, False)
    was = recall(lock)
    given = {name: value for name, value in machines._asdict().items() if value is not None}
    return Remembered(
        was.requirements,
        was.asked._replace(**{k: v for k, v in asked._asdict().items() if v != asked._field_defaults[k]}),
        machines if given else was.machines,
        was.allow_groups,
    )


def same_but_for_dates(old: str, new: str, path: Path) -> bool:
    """Whether two locks pin the same, whatever the date of the catalogue that judged them."""
    return bool(_undated(parse_toml(old, path)) == _undated(parse_toml(new, path)))


def _undated(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _undated(one) for name, one in value.items() if name != "catalogue_date"}
    return [_undated(one) for one in value] if isinstance(value, list) else value

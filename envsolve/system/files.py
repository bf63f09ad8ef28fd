"""Reading files named by others: only regular ones, and up to a limit; writing files atomically."""

from __future__ import annotations

import errno
import os
import stat
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeVar

from envsolve.errors import EnvsolveError, UsageError
from envsolve.system.limits import KEY_PARTS, NUMBER_DIGITS, has_long_number, key_parts

MAX_BYTES = 16 * 2**20
"""No requirement, machine or configuration file is larger."""


def read_regular(path: Path, limit: int = MAX_BYTES) -> bytes:
    """The bytes of a regular file; a link to one is one.

    Opening does not wait, as it would for the writer of a pipe.

    Raises:
        OSError: It cannot be read, is a directory, pipe or device, is larger than ``limit`` or has a number that
            Python does not convert; ``strerror`` says it.
    """
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    with open(descriptor, "rb") as file:  # noqa: PTH123  a descriptor, not a path
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is a pipe or a device, not a file", str(path))
        # Room for the limit would cost more than to read a small file. What the kernel makes up has no size.
        data = file.read(min(status.st_size, limit) + 1)
        if len(data) > status.st_size:
            data += file.read(limit + 1 - len(data))
    if len(data) > limit:
        raise OSError(errno.EFBIG, f"it is larger than {limit // 2**20} MiB", str(path))
    if has_long_number(data):
        raise OSError(errno.EINVAL, f"it has a number of more than {NUMBER_DIGITS} digits", str(path))
    return data


def open_regular(path: Path) -> BinaryIO:
    """A regular file, open for reading; opening does not wait for the writer of a pipe.

    Raises:
        OSError: It cannot be opened, or is a directory, a pipe or a device.
    """
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, "it is a directory, not a regular file", str(path))
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return open(descriptor, "rb")  # noqa: PTH123  a descriptor, which the caller closes


def read_stripped(path: Path) -> str:
    """The text of a file of the kernel or the system, without white space around it; empty if it cannot be read."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def is_file(path: Path) -> bool:
    """Whether a file is there; a directory that may not be entered holds none."""
    try:
        return path.is_file()
    except OSError:
        return False


def is_folder(path: Path) -> bool:
    """Whether a directory is there; False if it cannot be read."""
    try:
        return path.is_dir()
    except OSError:
        return False


def is_there(path: Path) -> bool:
    """Whether anything is there; a link counts by its target."""
    try:
        return path.exists()
    except OSError:
        return False


def home_path(text: str) -> Path:
    """The path with ``~`` resolved; unchanged if it names an unknown user."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        return Path(text)


def real_path(path: Path) -> Path:
    """A path with its links followed, as far as they lead; a loop of links is left as it is."""
    return Path(os.path.realpath(path))


_XDG = {
    "cache": ("XDG_CACHE_HOME", ".cache"),
    "config": ("XDG_CONFIG_HOME", ".config"),
    "data": ("XDG_DATA_HOME", ".local/share"),
}


def user_folder(kind: Literal["cache", "config", "data"], environ: Mapping[str, str] = os.environ) -> Path:
    """The user's directory for envsolve's files of a kind; it need not exist.

    Raises:
        EnvsolveError: The user has no home: HOME is not set, and no user of that number is known.
    """
    if sys.platform == "linux":  # platformdirs does the same after ten milliseconds of importing
        variable, default = _XDG[kind]
        named = environ.get(variable, "").strip()
        if named.startswith("/"):
            return Path(named) / "envsolve"
        try:
            return Path.home() / default / "envsolve"
        except RuntimeError as error:
            hint = f"set HOME, or {variable}, to a directory of yours"
            raise EnvsolveError("HOME is not set, and the system knows no home of this user", hint=hint) from error
    import platformdirs

    find = getattr(platformdirs, f"user_{kind}_path")
    return Path(find("envsolve", appauthor=False))


def replace_file(target: Path, text: str) -> None:
    """Replace or create a file atomically: readers see the old or the new text, never a part.

    A file that was there keeps its mode, and its owner as far as this process may give files away: a configuration
    that only its user can read holds a password.

    Raises:
        OSError: It cannot be written; what was there still is.
    """
    # As tempfile has it, whose import brings every compression along, with the mode that new files get.
    scratch = target.with_name(f".{target.name}.{os.urandom(6).hex()}")
    old = target.lstat() if target.is_file() and not target.is_symlink() else None
    mode = stat.S_IMODE(old.st_mode) & 0o777 if old else 0o666
    file = open(scratch, "x", encoding="utf-8", opener=lambda path, flags: os.open(path, flags, mode))  # noqa: SIM115
    try:
        with file:
            if old and hasattr(os, "fchown"):
                with suppress(PermissionError):
                    os.fchown(file.fileno(), old.st_uid, old.st_gid)
                os.fchmod(file.fileno(), mode)
            file.write(text)
        scratch.replace(target)
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise


# Values as JSON text: indented, and the same bytes for the same value.


def dump(value: object) -> str:
    """JSON with a newline at its end: values in the order of their fields, mappings sorted by key."""
    import msgspec  # not for commands that only read or write files

    try:
        written = msgspec.json.encode(value, order="deterministic", enc_hook=dict)  # the hook is for other mappings
    except UnicodeEncodeError:
        return _with_escapes(value)
    return msgspec.json.format(written, indent=2).decode() + "\n"


def from_json(data: bytes | str, type: type[Item]) -> Item:
    """Decode JSON as a type.

    Raises:
        msgspec.DecodeError: It is something else; msgspec has other errors for what is not UTF-8 or too deep.
    """
    import msgspec

    if has_long_number(data.encode("utf-8", "replace") if isinstance(data, str) else data):
        raise msgspec.DecodeError(f"it has a number of more than {NUMBER_DIGITS} digits")
    try:
        return msgspec.json.decode(data, type=type)
    except (UnicodeDecodeError, RecursionError) as error:
        raise msgspec.DecodeError(str(error)) from None


def _with_escapes(value: object) -> str:
    """Like :func:`canonical`, for a value with a path that is not UTF-8: JSON can hold its bytes only as escapes."""
    import json

    import msgspec

    builtins = msgspec.to_builtins(value, order="deterministic", enc_hook=dict)
    return json.dumps(builtins, indent=2) + "\n"


# Checks of the arguments of the public API, for mistakes that Python's types let through.


StrPath = str | os.PathLike[str]
Item = TypeVar("Item")


def parse_toml(text: str, path: Path, hint: str | None = None) -> dict[str, Any]:
    """Parse TOML that came from a file.

    Args:
        text: What the file contains.
        path: The file, for the message.
        hint: What to do if it is not TOML.

    Raises:
        UsageError: It is not TOML.
    """
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    if parts := key_parts(text):
        raise UsageError(f"{path}: a key has {parts} parts; the limit is {KEY_PARTS}", hint=hint)
    try:
        table: dict[str, Any] = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # a date of month 13, a number of 5,000 digits
        raise UsageError(f"{path} is not TOML: {error}", hint=hint) from None
    return table


@contextmanager
def without_warnings() -> Iterator[None]:
    """Parsers warn about odd escapes and anchors in what they read: nothing that the reader of a plan can mend."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def own_table(table: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """The ``[tool.envsolve]`` table of a TOML file; empty if it has none.

    Raises:
        UsageError: It is not a table.
    """
    tool = table.get("tool", {})
    own = tool.get("envsolve", {}) if isinstance(tool, dict) else None
    if not isinstance(own, dict):
        raise UsageError(f"[tool.envsolve] of {path} is not a table", hint="correct it, or let envsolve write it again")
    return own


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


def reader(directory: Path) -> Callable[[str], bytes | None]:
    """A function that reads files of a directory by their paths in it; None for those that cannot be read."""

    def read(path: str) -> bytes | None:
        try:
            return read_regular(directory / path)
        except OSError:
            return None

    return read

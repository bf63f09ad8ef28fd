"""pip: ``pip install`` says what it would do by ``--dry-run --report`` (pip 22.3 and later)."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from envsolve.environment.layout import is_environment, prefix_of
from envsolve.errors import UsageError
from envsolve.protect.installers._words import names_asked, value_of, verb_at
from envsolve.protect.model import Change, Command, Rehearsed
from envsolve.system.files import read_regular, real_path

_PIP = re.compile(r"pip[\d.]*(?:\.exe)?")
_PYTHON = re.compile(r"python[\d.]*(?:\.exe)?")
_SHEBANG = re.compile(rb"#!\s*(?P<program>/[^\n]+)")
#: Options before the verb that take a value (pip 22 to 26).
_VALUED = frozenset(
    {"--python", "--log", "--proxy", "--retries", "--timeout", "--exists-action", "--trusted-host", "--cert"}
    | {"--client-cert", "--cache-dir", "--use-feature", "--use-deprecated", "--keyring-provider", "--resume-retries"}
)
_REPORT = ("--dry-run", "--quiet", "--report", "-")
_HINT = "name the environment's own program: DIR/bin/python -m pip"


class _Archive(msgspec.Struct, frozen=True):
    url: str


class _Metadata(msgspec.Struct, frozen=True):
    name: str
    version: str


class _Item(msgspec.Struct, frozen=True):
    download_info: _Archive
    metadata: _Metadata


class _Report(msgspec.Struct, frozen=True):
    """https://pip.pypa.io/en/stable/reference/installation-report/"""

    install: tuple[_Item, ...]


class Pip:
    """``pip install``, ``python -m pip install``."""

    def read(self, words: Sequence[str], environ: Mapping[str, str]) -> Command | None:
        """A command of pip; its environment is that of its interpreter, bar ``--python`` or ``--prefix``."""
        start = _start(words)
        if start is None:
            return None
        at = start + verb_at(words[start:], _VALUED)
        options = words[at + 1 :]
        if "install" not in words[at : at + 1] or "--dry-run" in options:
            return Command(tuple(words), "pip")
        return Command(
            words=tuple(words),
            installer="pip",
            rehearsal=(*words[: at + 1], *_REPORT, *options),
            prefix=_prefix(words, start, options, environ),
            asked=names_asked(options),
        )

    def rehearsed(self, out: str, err: str) -> Rehearsed:
        """The report on standard output."""
        report = msgspec.json.decode(out[out.find("{") :], type=_Report)
        return Rehearsed(None, tuple(_change(item) for item in report.install))

    def keeping(self, command: Command, versions: Mapping[str, str]) -> tuple[str, ...]:
        """What is installed satisfies an exact requirement, its local version included."""
        return (*command.words, *(f"{name}=={version}" for name, version in versions.items()))


def _start(words: Sequence[str]) -> int | None:
    """Where pip's own arguments begin."""
    name = Path(words[0]).name
    if _PIP.fullmatch(name):
        return 1
    if _PYTHON.fullmatch(name) and "-m" in words[:-1]:
        at = words.index("-m")
        if words[at + 1] == "pip" and all(word.startswith("-") for word in words[1:at]):
            return at + 2
    return None


def _prefix(words: Sequence[str], start: int, options: Sequence[str], environ: Mapping[str, str]) -> Path:
    elsewhere = value_of(options, "--prefix")
    if elsewhere:
        return Path(elsewhere)
    named = value_of(words[start:], "--python") or environ.get("PIP_PYTHON")
    if named:
        return Path(named) if Path(named).is_dir() else prefix_of(Path(named))
    found = shutil.which(words[0], path=environ.get("PATH"))
    if found is None:
        raise UsageError(f"there is no program {words[0]}")
    program = Path(found)
    if is_environment(program.absolute().parent.parent) or _PYTHON.fullmatch(program.name):
        return prefix_of(program)
    return prefix_of(_interpreter(program))


def _interpreter(script: Path) -> Path:
    """The interpreter that a pip script names in its first line.

    Raises:
        UsageError: It names none.
    """
    try:
        match = _SHEBANG.match(read_regular(real_path(script)))
    except OSError:
        match = None
    program = Path(match["program"].decode("utf-8", "replace").strip()) if match else None
    if program is None or not _PYTHON.fullmatch(program.name):
        raise UsageError(f"which environment {script} installs into cannot be read from it", hint=_HINT)
    return program


def _change(item: _Item) -> Change:
    filename = unquote(urlsplit(item.download_info.url).path).rpartition("/")[2]
    try:
        # The file's own name has the local version even where METADATA, as in torch's old wheels, lacks it.
        version = str(parse_wheel_filename(filename)[1])
    except (InvalidWheelFilename, ValueError):
        version = item.metadata.version
    return Change(canonicalize_name(item.metadata.name), None, version, filename if filename.endswith(".whl") else None)


INSTALLER = Pip()

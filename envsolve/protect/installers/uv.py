"""uv: ``uv pip install``, ``uv pip sync`` and ``uv sync`` have dry runs that print what they would do."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from packaging.utils import canonicalize_name

from envsolve.environment.layout import is_environment, prefix_of
from envsolve.errors import UsageError
from envsolve.protect.installers._words import names_asked, value_of, verb_at
from envsolve.protect.model import Change, Command, Rehearsed
from envsolve.system.files import is_file
from envsolve.system.processes import ask

#: Options before the verb that take a value (uv 0.4 to 0.13).
_VALUED = frozenset({"--directory", "--project", "--config-file", "--cache-dir", "--color", "--allow-insecure-host"})
_SYNCS = frozenset({("sync",), ("pip", "sync")})
_REHEARSED = _SYNCS | {("pip", "install"), ("pip", "uninstall")}
_LINE = re.compile(r" ([-+~]) (?P<name>[\w.-]+)==(?P<version>[^\s(]+)")
_PLACE = re.compile(r"(?m)^(?:Using Python \S+|Would use project) environment at: (?P<place>.+)$")
_ASK_SECONDS = 20.0


class Uv:
    """``uv pip install``, ``uv pip sync``, ``uv pip uninstall``, ``uv sync``."""

    def read(self, words: Sequence[str], environ: Mapping[str, str]) -> Command | None:
        """A command of uv; its environment is found in uv's own order."""
        if Path(words[0]).name not in ("uv", "uv.exe"):
            return None
        at = 1 + verb_at(words[1:], _VALUED)
        verb = tuple(words[at : at + (2 if "pip" in words[at : at + 1] else 1)])
        if verb in (("add",), ("remove",)):
            raise UsageError(
                f"uv {verb[0]} has no dry run",
                hint=f"change the project first, then see what becomes of its environment: "
                f"{shlex.join([*words[: at + 1], '--no-sync', *words[at + 1 :]])} && envsolve guard -- uv sync",
            )
        if verb not in _REHEARSED or "--dry-run" in words:
            return Command(tuple(words), "uv")
        end = at + len(verb)
        options = words[end:]
        return Command(
            words=tuple(words),
            installer="uv",
            rehearsal=(*(w for w in words[:end] if w not in ("-q", "--quiet")), "--dry-run", *_loud(options)),
            prefix=None if verb == ("sync",) else _prefix(options, environ),
            asked=None if verb in _SYNCS else names_asked(options),
        )

    def rehearsed(self, out: str, err: str) -> Rehearsed:
        """The lines `` - torch==2.6.0``, `` + torch==2.7.0`` and `` ~ torch==2.7.0`` on standard error."""
        if not re.search(r"(?m)^(?:Would|Audited|Resolved|Checked|Found up-to-date|Discovered)\b", err):
            raise ValueError("it says nothing of what it would do")
        gone, come = {}, {}
        for line in err.splitlines():
            if match := _LINE.match(line):
                name = canonicalize_name(match["name"])
                if match[1] in "-~":
                    gone[name] = match["version"]
                if match[1] in "+~":
                    come[name] = match["version"]
        place = _PLACE.search(err)
        return Rehearsed(
            Path(place["place"]) if place else None,
            tuple(Change(name, gone.get(name), come.get(name)) for name in {**come, **gone}),
        )

    def keeping(self, command: Command, versions: Mapping[str, str]) -> tuple[str, ...]:
        """What is installed satisfies an exact requirement, its local version included."""
        return (*command.words, *(f"{name}=={version}" for name, version in versions.items()))


def _loud(options: Sequence[str]) -> list[str]:
    return [word for word in options if word not in ("-q", "--quiet")]


def _prefix(options: Sequence[str], environ: Mapping[str, str]) -> Path:
    """The environment of ``uv pip``: as named, else the active one, else ``.venv`` here or above.

    Raises:
        UsageError: There is none.
    """
    named = value_of(options, "--prefix", "--python", "-p") or environ.get("UV_PYTHON")
    if named:
        return Path(named) if Path(named).is_dir() else prefix_of(_program(named, environ))
    if "--system" in options or environ.get("UV_SYSTEM_PYTHON"):
        return prefix_of(_program("python3", environ))
    active = environ.get("VIRTUAL_ENV") or environ.get("CONDA_PREFIX")
    here = Path.cwd()
    near = (folder / ".venv" for folder in (here, *here.parents))
    found = Path(active) if active else next((folder for folder in near if is_environment(folder)), None)
    if found is None:
        raise UsageError("no environment is active, and none is at .venv", hint="name it: uv pip install --python DIR")
    return found


def _program(named: str, environ: Mapping[str, str]) -> Path:
    """The interpreter that ``--python`` names: a path, a program, or a version that uv finds."""
    if is_file(Path(named)):
        return Path(named)
    if program := shutil.which(named, path=environ.get("PATH")):
        return Path(program)
    found = ask(["uv", "python", "find", "--no-project", named], environ, limit=_ASK_SECONDS)
    if found is None:
        raise UsageError(f"uv finds no Python {named}", hint="name the environment: uv pip install --python DIR")
    return Path(found.splitlines()[0])


INSTALLER = Uv()

"""conda, mamba and micromamba: ``--dry-run --json`` lists what would be linked and unlinked."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from envsolve.protect.installers._words import value_of, verb_at
from envsolve.protect.model import Change, Command, Rehearsed

_NAMES = frozenset({"conda", "mamba", "micromamba", "conda.exe", "mamba.exe", "micromamba.exe"})
_VERBS = frozenset({"install", "update", "upgrade", "remove", "uninstall"})
#: ``conda-forge::pytorch=2.7.1=cuda129*``, ``pytorch>=2.7``, ``pytorch[build=cuda*]``.
_SPEC = re.compile(r"(?:[^\s:]+::)?(?P<name>[A-Za-z0-9_][\w.-]*)(?:[ =<>!~\[].*)?")


class _Package(msgspec.Struct, frozen=True):
    name: str
    version: str
    build: str = ""
    build_string: str = ""
    platform: str = ""


class _Actions(msgspec.Struct, frozen=True):
    link: tuple[_Package, ...] = msgspec.field(name="LINK", default=())
    unlink: tuple[_Package, ...] = msgspec.field(name="UNLINK", default=())
    prefix: str | None = msgspec.field(name="PREFIX", default=None)


class _Answer(msgspec.Struct, frozen=True):
    """What conda prints with ``--json``; ``actions`` is missing where there is nothing to do."""

    success: bool
    actions: _Actions = _Actions()
    prefix: str | None = None


class Conda:
    """``conda install``, ``update`` and ``remove``."""

    def read(self, words: Sequence[str], environ: Mapping[str, str]) -> Command | None:
        """A command of conda; its environment is the one named, else the active one."""
        if Path(words[0]).name not in _NAMES:
            return None
        at = 1 + verb_at(words[1:], ("-p", "--prefix", "-n", "--name", "-r", "--root-prefix"))
        options = words[at + 1 :]
        if not {*words[at : at + 1]} & _VERBS or "--dry-run" in options or "-d" in options:
            return Command(tuple(words), "conda")
        named = value_of(words[1:], "-p", "--prefix")
        active = environ.get("CONDA_PREFIX") if value_of(words[1:], "-n", "--name") is None else None
        place = named or active
        asked = (_SPEC.fullmatch(word) for word in options if not word.startswith("-"))
        return Command(
            words=tuple(words),
            installer="conda",
            rehearsal=(*words[: at + 1], "--dry-run", "--json", *options),
            prefix=Path(place) if place else None,
            asked=frozenset(match["name"].lower() for match in asked if match),
        )

    def rehearsed(self, out: str, err: str) -> Rehearsed:
        """The JSON on standard output."""
        answer = msgspec.json.decode(out[out.find("{") :], type=_Answer)
        if not answer.success:
            raise ValueError("it failed")
        gone = {p.name: p for p in answer.actions.unlink}
        come = {p.name: p for p in answer.actions.link}
        place = answer.actions.prefix or answer.prefix
        return Rehearsed(
            Path(place) if place else None,
            tuple(_change(name, gone.get(name), come.get(name)) for name in {**come, **gone}),
        )

    def keeping(self, command: Command, versions: Mapping[str, str]) -> tuple[str, ...]:
        """Exact match specs, ``pytorch=2.7.1=cuda126_py312_200``."""
        return (*command.words, *(f"{name}={version}" for name, version in versions.items()))


def _change(name: str, gone: _Package | None, come: _Package | None) -> Change:
    build = (come.build_string or come.build) if come else ""
    subdir = (come.platform or None) if come else None
    return Change(
        name, gone.version if gone else None, come.version if come else None, build=build or None, subdir=subdir
    )


INSTALLER = Conda()

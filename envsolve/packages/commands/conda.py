"""conda, mamba and micromamba: ``--dry-run --json`` lists the packages that would be linked and unlinked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from envsolve.packages.commands import Argument, Change, Command, Meaning
from envsolve.system.files import from_json

#: ``conda-forge::pytorch=2.7.1=cpu*``, ``pytorch>=2.7``, ``pytorch[build=cpu*]``.
_SPEC = re.compile(r"(?:[^\s:]+::)?(?P<name>[A-Za-z0-9_][\w.-]*)(?:[ =<>!~\[].*)?")


_WITH_DRY_RUN = frozenset((verb,) for verb in ("install", "update", "upgrade", "remove", "uninstall"))


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
    """The output of ``--json``; conda leaves ``actions`` out if there is nothing to do."""

    success: bool
    actions: _Actions = _Actions()
    prefix: str | None = None


class Conda:
    """``conda install``, ``update`` and ``remove``; the options are those of conda 4.12 to 26 and micromamba."""

    name = "conda"
    program = re.compile(r"(?:conda|mamba|micromamba)(?:\.exe)?")
    module = "conda"
    groups = frozenset({"env"})
    index: tuple[str, Meaning] = ("--channel", "channels")
    valued: Mapping[str, Meaning] = {
        "-p --prefix": "prefix",
        "-n --name": "name",
        "-c --channel": "channels",
        "--file -f": "files",
        "-r --root-prefix --revision --solver --experimental-solver --repodata-fn --subdir --platform "
        "--channel-priority --category --rc-file --log-level": "other",
    }
    flags: Mapping[str, Meaning] = {
        "--no-deps": "no_deps",
        "--force-reinstall": "force_reinstall",
        "--update-all --all -a": "upgrade",
        "--dry-run -d": "dry_run",
        "--quiet -q": "quiet",
        "-y --yes": "yes",
        "--json -v --verbose --only-deps --override-channels --strict-channel-priority --no-channel-priority "
        "--freeze-installed --no-update-deps --update-deps --update-specs --use-index-cache -C --insecure -k "
        "--offline --mkdir -m --satisfied-skip-solve -S --no-pin --copy --always-copy --download-only --dev "
        "--force --force-remove --clobber --no-rc --no-env --prune": "other",
    }

    def dry_run(self, command: Command) -> tuple[str, ...] | None:
        """The same command with ``--dry-run --json``."""
        if command.verb[:1] not in _WITH_DRY_RUN or command.has("dry_run"):
            return None
        return command.adding(Argument("--dry-run", "dry_run"), Argument("--json", "other")).words

    def from_wheels(self, command: Command) -> Command | None:
        """None: packages of conda are built already."""
        return None

    def prefix(self, command: Command, environ: Mapping[str, str]) -> Path | None:
        """The environment of ``--prefix``, or the active one; only conda itself knows where a named one is."""
        active = None if command.has("name") else environ.get("CONDA_PREFIX")
        place = command.value("prefix") or active
        return Path(place) if place else None

    def read_dry_run(self, out: str, err: str) -> tuple[Path | None, tuple[Change, ...]]:
        """Read the JSON on standard output."""
        # Other output may precede the JSON.
        answer = from_json(out[out.find("{") :], _Answer)
        if not answer.success:
            raise ValueError("it failed")
        removed = {p.name: p for p in answer.actions.unlink}
        linked = {p.name: p for p in answer.actions.link}
        place = answer.actions.prefix or answer.prefix
        changes = tuple(_change(name, removed.get(name), linked.get(name)) for name in {**linked, **removed})
        return Path(place) if place else None, changes

    def requested(self, word: str) -> str | None:
        """The name in a match spec."""
        match = _SPEC.fullmatch(word)
        return match["name"].lower() if match else None

    def pin(self, name: str, version: str) -> str:
        """An exact match spec, ``pytorch=2.7.1=cpu_generic_py312_0``."""
        return f"{name}={version}"


def _change(name: str, removed: _Package | None, linked: _Package | None) -> Change:
    # conda and micromamba name this field differently.
    build = (linked.build_string or linked.build) if linked else ""
    return Change(
        name,
        removed.version if removed else None,
        linked.version if linked else None,
        build=build or None,
        subdir=(linked.platform or None) if linked else None,
        replaces=(removed.build_string or removed.build or None) if removed else None,
    )


INSTALLER = Conda()

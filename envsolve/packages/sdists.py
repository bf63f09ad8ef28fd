"""The metadata of source archives: what their members state, and what only their build knows.

pip computes the latter in an isolated environment. That runs code of the package, so it is done only if the user
allows it. pip reports the metadata without building the
wheel (``prepare_metadata_for_build_wheel`` of PEP 517, or ``setup.py egg_info``).
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace
from packaging.utils import parse_sdist_filename

from envsolve.errors import IndexUnavailableError, UsageError
from envsolve.packages.cache import DiskCache, Store, default_cache_dir
from envsolve.packages.model import (
    CoreMetadata,
    IndexFile,
    checked_copy,
    is_file_of,
    parse_metadata,
    requirement_text,
    specifier_text,
)
from envsolve.packages.urls import redact
from envsolve.system.files import from_json, parse_toml
from envsolve.system.limits import METADATA_BYTES, NAME_LENGTH
from envsolve.system.processes import capture

if TYPE_CHECKING:
    from envsolve.packages.client import IndexClient

#: Names of members that say something about an sdist, at the top or in a directory of it.
WANTED = ("PKG-INFO", "setup.py", "pyproject.toml")
_SECTION = re.compile(r"\[(?P<extra>[^:\]]*)(?::(?P<marker>[^\]]*))?\]$")


def parse_requires_txt(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Setuptools' ``requires.txt`` (its own format of sections) as ``Requires-Dist`` lines, and the extras it names."""
    lines: list[str] = []
    extras: list[str] = []
    condition = ""
    for line in (raw.strip() for raw in text.splitlines()):
        if section := _SECTION.match(line):
            extra, marker = section["extra"].strip(), (section["marker"] or "").strip()
            if extra and extra not in extras:
                extras.append(extra)
            parts = [f"({marker})"] * bool(marker) + [f"extra == '{extra}'"] * bool(extra)
            condition = " and ".join(parts)
        elif line and not line.startswith("#"):
            requirement = requirement_text(f"{line} ; {condition}" if condition else line)
            if requirement is not None:
                lines.append(requirement)
    return tuple(lines), tuple(extras)


def source_metadata(members: Iterable[tuple[str, IO[bytes], int]], filename: str, *, whole: bool) -> CoreMetadata:
    """The metadata of an sdist of this name, from its members: names, contents and sizes.

    Args:
        members: Those of interest, as they come.
        filename: The name of the archive.
        whole: Whether to go on to its pyproject.toml once the metadata is complete.
    """
    can_be_built = False
    metadata: CoreMetadata | None = None
    requires: tuple[tuple[str, ...], tuple[str, ...]] | None = None
    backend = _Backend()
    for name, content, size in members:
        base = name.rpartition("/")[2]
        if base == "setup.py":
            can_be_built = True
            continue
        if size > METADATA_BYTES:
            raise ValueError(f"its {name} is too large")
        if base == "PKG-INFO":
            metadata = parse_metadata(content.read(), sdist=True)
        elif base == "pyproject.toml":
            backend = _Backend.read(content.read()) if whole else backend
        else:
            requires = parse_requires_txt(content.read().decode("utf-8", "replace"))
        complete = metadata is not None and (metadata.exact or metadata.requires_dist or requires is not None)
        if complete and (not whole or backend.name):
            break
    if metadata is None and can_be_built:
        named, version = parse_sdist_filename(filename)
        metadata = CoreMetadata(named, str(version), exact=False)
    if metadata is None:
        raise ValueError("the archive contains no PKG-INFO")
    metadata = replace(metadata, backend=backend.name, wheels=backend.wheels)
    if metadata.exact or metadata.requires_dist or requires is None:
        return metadata
    return replace(metadata, requires_dist=requires[0], provides_extra=requires[1])


class _Backend(msgspec.Struct, frozen=True):
    """The build backend of an sdist, and the index that it downloads a wheel from, by pyproject.toml."""

    name: str = ""
    wheels: str | None = None

    @classmethod
    def read(cls, text: bytes) -> _Backend:
        """Read pyproject.toml; one that cannot be read says nothing."""
        try:
            table = parse_toml(text.decode("utf-8", "replace"), Path("pyproject.toml"))
            name = table["build-system"]["build-backend"]
            tool = table.get("tool", {}).get(name.partition(".")[0], {})
        except (UsageError, KeyError, AttributeError, TypeError):
            return cls()
        index = tool.get("index_url") if isinstance(tool, dict) else None
        return cls(name[:NAME_LENGTH], index if isinstance(index, str) and index.startswith("https://") else None)


_SECONDS = 600.0
_PIP = ("install", "--dry-run", "--ignore-installed", "--no-deps", "--no-input", "--quiet", "--report", "-")


class MetadataBuildError(Exception):
    """The metadata cannot be built; the text says why."""


class MetadataBuilds:
    """Builds the metadata of each file once; what was built is kept in the cache.

    Attributes:
        failures: Why files were not built, by file name.
    """

    def __init__(self, client: IndexClient, python: str, environ: Mapping[str, str]) -> None:
        """Prepare.

        Args:
            client: Reads the files; its default index is the one of the build requirements.
            python: The planned Python, ``3.12``: its own interpreter runs the build if it is on PATH.
            environ: Variables of pip, among them its configuration.
        """
        self.failures: dict[str, str] = {}
        self._client = client
        self._python = python
        self._environ = {**environ, "PIP_INDEX_URL": client.settings.default}
        self._store = Store(DiskCache(default_cache_dir(environ) / "index"))
        self._done: dict[str, CoreMetadata] = {}

    def exact(self, file: IndexFile, guess: CoreMetadata) -> CoreMetadata:
        """The metadata that the build of a source archive computes; the guess if it cannot be built."""
        # By Python: a setup.py may ask which one runs it.
        marked = replace(file, url=f"{file.url}#built-{self._python}")
        if marked.url not in self._done:
            kept = self._store.metadata(marked) if file.hashes else None
            if kept is None:
                try:
                    kept = self._built(file)
                except (MetadataBuildError, IndexUnavailableError, OSError) as error:
                    self.failures[file.filename] = str(error)
                    kept = guess
                else:
                    self._store.keep_metadata(marked, kept)
            self._done[marked.url] = kept
        return self._done[marked.url]

    def _built(self, file: IndexFile) -> CoreMetadata:
        if self._client.offline:
            raise MetadataBuildError("with --offline, nothing is built")
        with tempfile.TemporaryDirectory(prefix="envsolve-build-") as directory:
            path = Path(directory, file.filename)
            self._download(file, path)
            ended = capture([*self._pip(), *_PIP, str(path)], self._environ, limit=_SECONDS)
        if ended.returncode is None:
            raise MetadataBuildError(f"the build took more than {_SECONDS:.0f} seconds")
        if ended.returncode != 0:
            lines = [line.strip() for line in ended.stderr.splitlines() if line.strip()]
            errors = [line for line in lines if "Error: " in line and not line.startswith(("ERROR", "error"))]
            raise MetadataBuildError(redact((errors or lines or ["pip failed"])[-1])[:200])
        found = _reported(ended.stdout)
        if not is_file_of(file.filename, found):
            raise MetadataBuildError(f"the build produced {found.name} {found.version[:50]}")
        return found

    def _download(self, file: IndexFile, path: Path) -> None:
        with self._client.open(file) as source, path.open("wb") as target:
            try:
                checked_copy(source, target, file.hashes, file.filename)
            except ValueError as error:
                raise MetadataBuildError(str(error)) from None

    def _pip(self) -> list[str]:
        """pip for the planned Python, or for the one that runs envsolve if that is not on PATH."""
        interpreter = self._interpreter()
        words = ["--python", interpreter] if interpreter else []
        if importlib.util.find_spec("pip") is not None:
            return [sys.executable, "-m", "pip", *words]
        uv = shutil.which("uv", path=self._environ.get("PATH"))
        if uv is None:
            raise MetadataBuildError("envsolve's environment has neither pip nor uv")
        return [uv, "tool", "run", "--quiet", "pip", "--python", interpreter or sys.executable]

    def _interpreter(self) -> str | None:
        """The interpreter of the planned Python, if it is another one than this and on PATH."""
        if self._python == f"{sys.version_info.major}.{sys.version_info.minor}":
            return None
        found = shutil.which(f"python{self._python}", path=self._environ.get("PATH"))
        # The shim of a version manager may be there without the Python.
        runs = found is not None and capture([found, "--version"], self._environ, limit=30).returncode == 0
        return found if runs else None


class _Item(msgspec.Struct):
    metadata: dict[str, Any]


class _Report(msgspec.Struct):
    """pip's installation report, version 1. Source: pip documentation, "Installation Report"."""

    install: list[_Item]


def _reported(text: bytes) -> CoreMetadata:
    try:
        (item,) = from_json(text, _Report).install
        said = item.metadata
        lines = [requirement_text(line) for line in said.get("requires_dist", ())]
        return CoreMetadata(
            name=said["name"],
            version=said["version"],
            requires_dist=tuple(line for line in lines if line is not None),
            requires_python=specifier_text(said.get("requires_python")),
            provides_extra=tuple(said.get("provides_extra", ())),
        )
    except (msgspec.MsgspecError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise MetadataBuildError(f"pip's report cannot be read: {error}") from None

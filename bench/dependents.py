"""Makes ``index_data/dependents.json`` anew: which packages bring torch, or another package that uses a GPU.

``check-dockerfile`` installs nothing and asks no index, so it knows of a package's requirements only what is recorded.
``known_metadata.json`` has them for the packages that plans come upon; this file has what is needed of many more.

    python -m bench.dependents [PACKAGE...]

adds packages to those of the file, and reads the newest release of each. Add only packages without GPU code of their
own. A package is left out if the requirements of one that it brings cannot be read.
"""

from __future__ import annotations

import io
import sys
import tarfile
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import date

from packaging.metadata import Metadata
from packaging.requirements import Requirement
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import Version

from envsolve.errors import EnvsolveError
from envsolve.facts.builds import Dependents
from envsolve.facts.catalogue import Catalogue
from envsolve.facts.evidence import Evidence, Source
from envsolve.facts.files import DEPENDENTS, data_folder
from envsolve.facts.maintain.update import dump_catalogue_file
from envsolve.packages.client import IndexClient
from envsolve.packages.model import IndexFile
from envsolve.packages.settings import read_settings
from envsolve.system.files import replace_file

_SOURCE = "measured-default-index"
_ENVIRONMENT = {
    "sys_platform": "linux",
    "platform_system": "Linux",
    "os_name": "posix",
    "platform_machine": "x86_64",
    "python_version": "3.12",
    "python_full_version": "3.12.0",
    "extra": "",
}


class _Read:
    """The requirements of newest releases."""

    def __init__(self, client: IndexClient, catalogue: Catalogue) -> None:
        self._client = client
        self._made: dict[str, tuple[str, ...] | None] = {}
        #: Packages that use a GPU: of the catalogue, and those that lack a part for it.
        self.marked = {*catalogue.packages(), *(part.package for part in catalogue.gpu_parts)}
        self.marked |= {project.package for project in catalogue.source_projects}

    def lines(self, name: str) -> tuple[str, ...] | None:
        """Requires-Dist of the newest release; None if it cannot be read."""
        if name not in self._made:
            try:
                self._made[name] = self._newest(name)
            except (EnvsolveError, OSError, ValueError, KeyError) as error:
                print(name, error, sep=": ", file=sys.stderr)
                self._made[name] = None
        return self._made[name]

    def _newest(self, name: str) -> tuple[str, ...] | None:
        wheels, sdists = dict[Version, IndexFile](), dict[Version, IndexFile]()
        for file in self._client.project(name):
            try:
                if file.filename.endswith(".whl"):
                    wheels.setdefault(parse_wheel_filename(file.filename)[1], file)
                elif file.filename.endswith(".tar.gz"):
                    sdists[parse_sdist_filename(file.filename)[1]] = file
            except (InvalidWheelFilename, InvalidSdistFilename):
                continue
        final = [v for v in (wheels or sdists) if not v.is_prerelease]
        newest = max(final, default=None)
        if newest is None:
            return None
        if newest in wheels:
            return tuple(self._client.metadata(wheels[newest]).requires_dist)
        with self._client.open(sdists[newest]) as opened:
            return _of_sdist(opened.read())

    def brings(self, name: str) -> tuple[str, ...] | None:
        """The marked packages among everything that it requires; None if some of it cannot be read."""
        found: dict[str, str] = {}
        seen, queue = {name}, [name]
        while queue:
            lines = self.lines(queue.pop(0))
            if lines is None:
                return None
            for requirement in map(Requirement, lines):
                needed = canonicalize_name(requirement.name)
                if requirement.marker and not requirement.marker.evaluate(_ENVIRONMENT):
                    continue
                if needed in self.marked:
                    found.setdefault(needed, f"{needed}{requirement.specifier}")
                # torch and its like bring what their own records say.
                if needed not in seen and needed not in self.marked:
                    seen.add(needed)
                    queue.append(needed)
        return tuple(sorted(found.values()))


def _of_sdist(content: bytes) -> tuple[str, ...] | None:
    """Requires-Dist in PKG-INFO, or what setuptools wrote beside it; None if neither is there."""
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        names = sorted(archive.getnames(), key=lambda name: name.count("/"))

        def text(ending: str) -> bytes | None:
            found = next((name for name in names if name.endswith(ending)), None)
            opened = archive.extractfile(found) if found else None
            return opened.read() if opened else None

        stated = Metadata.from_email(text("/PKG-INFO") or b"", validate=False).requires_dist
        if stated:
            return tuple(map(str, stated))
        # setuptools leaves the file out if there is nothing to list.
        written = text(".egg-info/requires.txt")
        if written is None:
            return () if text(".egg-info/PKG-INFO") is not None else None
        plain = written.decode().partition("[")[0]
        return tuple(line for line in plain.splitlines() if line.strip())


def measured(names: Iterable[str], read: _Read) -> list[Dependents]:
    """One record for all packages that bring the same."""
    ordered = sorted(names)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(read.lines, ordered))
    found: dict[tuple[str, ...], list[str]] = {}
    for name in ordered:
        brings = read.brings(name)
        if brings is not None:
            found.setdefault(brings, []).append(name)
    made: Mapping[tuple[str, ...], list[str]] = dict(sorted(found.items()))
    return [Dependents(tuple(some), brings, Evidence.MEASURED, _SOURCE) for brings, some in made.items()]


def main() -> None:
    """Read and write."""
    catalogue = Catalogue(data_folder())
    known = {name for record in catalogue.dependents for name in record.packages}
    names = known | {canonicalize_name(word) for word in sys.argv[1:]}
    with closing(IndexClient(read_settings())) as client:
        read = _Read(client, catalogue)
        records = measured(names - read.marked, read)
    title = "METADATA, read out of the newest wheel or sdist of each package on the default package index, and of what "
    title += "it requires"
    text = dump_catalogue_file({_SOURCE: Source(title, date.today().isoformat())}, records)
    replace_file(data_folder() / f"{DEPENDENTS.name}.json", text)
    print(len(records), "records of", sum(len(record.packages) for record in records), "packages")


if __name__ == "__main__":
    main()

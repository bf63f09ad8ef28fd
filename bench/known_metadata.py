"""Makes ``index_data/known_metadata.json`` anew: what the wheels of AI environments say of themselves.

The packages are those that plans come upon: of every file in ``bench/requirements/`` for each Python and system below,
and of the family, its companions and the projects that are compiled. Of each package the newest releases are read,
and of older ones those that the plans came to.

    python -m bench.known_metadata
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import date
from itertools import product
from pathlib import Path

from packaging.utils import canonicalize_name, parse_wheel_filename

from envsolve.errors import EnvsolveError
from envsolve.facts.builds import KnownMetadata
from envsolve.facts.catalogue import Catalogue
from envsolve.facts.evidence import Source
from envsolve.facts.files import KNOWN_METADATA, data_folder
from envsolve.facts.maintain.steps import known_order, newest_metadata
from envsolve.facts.maintain.update import dump_catalogue_file
from envsolve.machine.completed import machine_from_target
from envsolve.machine.target import parse_target
from envsolve.packages.client import IndexClient
from envsolve.packages.model import CoreMetadata, IndexFile
from envsolve.packages.requirement_files import read_requirements
from envsolve.packages.requirements import Asked
from envsolve.packages.settings import IndexSettings, read_settings
from envsolve.planning.make import make_plan
from envsolve.planning.request import Request
from envsolve.system.files import replace_file

_REQUIREMENTS = Path(__file__).with_name("requirements")
_PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
_TARGETS = (
    "H100, driver 580.95.05, linux-x86_64, glibc 2.36",
    "GH200, driver 580.95.05, linux-aarch64, glibc 2.36",
    "RTX 4090, driver 581.42, win-amd64",
)
_SOURCE = "measured-default-index"


class _Noting(IndexClient):
    """Notes the versions whose metadata was asked for."""

    def __init__(self, settings: IndexSettings) -> None:
        super().__init__(settings)
        self.noted: dict[str, set[str]] = {}

    def metadata(self, file: IndexFile) -> CoreMetadata:
        if file.filename.endswith(".whl"):
            name, version, *_ = parse_wheel_filename(file.filename)
            self.noted.setdefault(name, set()).add(str(version))
        return super().metadata(file)


def _asked(catalogue: Catalogue) -> Iterator[tuple[str, Asked, str, str]]:
    """Requests, each for a Python and a system: the files for all of them, packages alone for the most usual."""
    for path in sorted(_REQUIREMENTS.glob("*.txt")):
        asked = read_requirements([], [path])
        yield from ((path.stem, asked, python, target) for python, target in product(_PYTHONS, _TARGETS))
    compiled = (project.package for project in catalogue.source_projects)
    lacking = (part.package for part in catalogue.gpu_parts)
    for name in sorted({*catalogue.family, *map(canonicalize_name, compiled), *lacking, "accelerate"}):
        yield name, read_requirements([name]), "3.12", _TARGETS[0]


def _come_upon(catalogue: Catalogue, client: _Noting) -> None:
    """Plan everything; a request that fits nowhere tells of the packages that it came upon, too."""
    for name, asked, python, target in _asked(catalogue):
        machine = machine_from_target(parse_target(target), catalogue)
        try:
            plan = make_plan(asked, [machine], Request(python), catalogue, client)
        except EnvsolveError as error:
            print(name, python, target, error, sep=": ", file=sys.stderr)
        else:
            print(name, python, target, plan.status, len(plan.packages), sep=": ", file=sys.stderr)


def written(records: Sequence[KnownMetadata]) -> str:
    """The text of the file."""
    source = Source("METADATA, read out of the wheels on the default package index", date.today().isoformat())
    ordered = sorted(records, key=known_order)
    return dump_catalogue_file({_SOURCE: source}, ordered)


def main() -> None:
    """Plan, read, write."""
    catalogue = Catalogue(data_folder())
    with closing(_Noting(read_settings())) as client:
        _come_upon(catalogue, client)
        ordinary = {name: versions for name, versions in client.noted.items() if not catalogue.builds(name)}
        records = newest_metadata(client, ordinary, _SOURCE, lambda _: True, catalogue)
    replace_file(data_folder() / f"{KNOWN_METADATA.name}.json", written(records))
    print(len(records), "records of", len({record.package for record in records}), "packages")


if __name__ == "__main__":
    main()

"""The project's own catalogue, its indexes out of reach, and one loopback index with all that torch builds need."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from envsolve.facts.catalogue import Catalogue
from envsolve.facts.files import data_folder
from envsolve.machine.completed import machine_from_target
from envsolve.machine.model import Machine
from envsolve.machine.target import parse_target
from envsolve.packages.client import IndexClient
from envsolve.packages.requirement_files import read_requirements
from envsolve.packages.settings import IndexSettings
from envsolve.planning.groups import Plans, make_plans
from envsolve.planning.make import make_plan
from envsolve.planning.plan import Plan
from envsolve.planning.request import Request
from tests.indexserver import IndexServer


class Questions:
    """The catalogue, and an index that serves what torch builds need."""

    def __init__(self, catalogue: Catalogue, client: IndexClient) -> None:
        self.catalogue = catalogue
        self.client = client

    def machine(self, target: str) -> Machine:
        return machine_from_target(parse_target(target), self.catalogue)

    def plan(
        self, targets: str | Sequence[str], *requirements: str, cuda: str | None = None, before: str | None = None
    ) -> Plan:
        machines = [self.machine(t) for t in ([targets] if isinstance(targets, str) else targets)]
        return self.plan_for(machines, *requirements, cuda=cuda, before=before)

    def plan_for(
        self, machines: Sequence[Machine], *requirements: str, cuda: str | None = None, before: str | None = None
    ) -> Plan:
        choices = Request(cuda=cuda, exclude_newer=before)
        return make_plan(read_requirements(requirements), machines, choices, self.catalogue, self.client)

    def groups(self, targets: Sequence[str], *requirements: str) -> Plans:
        machines = [self.machine(target) for target in targets]
        return make_plans(read_requirements(requirements), machines, Request(), self.catalogue, self.client)


@contextmanager
def questions(folder: Path) -> Iterator[Questions]:
    """The project's own catalogue over loopback indexes; everything that they serve stops with the block."""
    with IndexServer() as server:
        index = server.index()
        shutil.copytree(data_folder(), folder / "index_data")
        places = folder / "index_data" / "indexes.json"
        places.write_text(places.read_text().replace('"url": "https://', f'"url": "{server.url}/away/'))
        catalogue = Catalogue(folder / "index_data")
        for path in ("/away/", *(f"/simple/{name}/" for name in catalogue.family)):
            server.fault(path, status=503)
        for name, version in sorted(_needed(catalogue)):
            index.wheel(name, version, upload_time="2020-01-01T00:00:00Z")
        settings = IndexSettings(index.url, retries=0)
        with IndexClient(settings, cache_dir=folder / "cache") as client:
            yield Questions(catalogue, client)


def _needed(catalogue: Catalogue) -> set[tuple[str, str]]:
    """A version of every package outside the family that a torch build needs: pinned, the lower bound, or a new one."""
    found = {("numpy", "1.26.4")}  # the last that torch before 2.3 was compiled against
    found |= {("numpy", "2.2.0"), ("fastrlock", "0.8.3"), ("cuda-pathfinder", "1.9.0")}  # of CuPy
    for build in catalogue.builds("torch"):
        for requirement in map(Requirement, build.requires or ()):
            name = canonicalize_name(requirement.name)
            if name not in catalogue.family:
                named = [s.version.removesuffix(".*") for s in requirement.specifier if s.operator in ("==", ">=")]
                wanted = (version for version in ("99", *named, "1") if version in requirement.specifier)
                found.add((name, next(wanted)))
    return found

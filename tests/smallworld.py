"""A small torch world: a catalogue of a few builds and the loopback indexes that serve their files.

Toolkits, floors, drivers, architectures and Tritons are the project's own; only the builds and the index are small.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from envsolve.facts.builds import Build, IndexPlace
from envsolve.facts.catalogue import Catalogue
from envsolve.facts.evidence import Evidence, Source
from envsolve.facts.files import BUILDS, INDEXES, PLACEHOLDERS, Kind, Record, data_folder
from envsolve.facts.maintain.update import dump_catalogue_file, group_requires
from envsolve.machine.completed import machine_from_target
from envsolve.machine.model import Machine
from envsolve.machine.target import parse_target
from envsolve.packages.cache import KnownFiles
from envsolve.packages.client import IndexClient
from envsolve.packages.requirement_files import read_requirements
from envsolve.packages.requirements import Asked
from envsolve.packages.settings import IndexSettings
from envsolve.planning.make import make_plan
from envsolve.planning.plan import Plan
from envsolve.planning.request import Request
from tests.indexserver import Index, IndexServer

LINUX = "manylinux_2_28_x86_64"
OLD = ("sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90")
NEW = ("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120")
SOURCE = Source("a small world", "2026-01-01")


class _Catalogue(Catalogue):
    """The builds and indexes of a directory; all other facts are read where they are, once in a process."""

    def has(self, kind: Kind[Any]) -> bool:
        return super().has(kind) or (data_folder() / f"{kind.name}.json").is_file()

    def _loaded(self, file: str, kind: Kind[Record]) -> tuple[Record, ...]:
        if kind.name in (BUILDS.name, INDEXES.name):
            return super()._loaded(file, kind)
        rest = Catalogue(data_folder(), self._folder / "no overlay")
        found = rest._loaded(file, kind)
        self._sources |= rest._sources
        return found


@dataclass
class World:
    """Indexes, catalogue folder and cache of one test."""

    server: IndexServer
    default: Index
    folder: Path
    cache: Path
    extras: tuple[str, ...] = ()
    builds: list[Build] = field(default_factory=list)
    pytorch: dict[str, Index] = field(default_factory=dict)
    places: list[IndexPlace] = field(default_factory=list)

    def build(
        self,
        package: str,
        version: str,
        variant: str,
        *,
        index: str = "default",
        requires: Sequence[str] = (),
        code: tuple[str, ...] | None = None,
        pythons: tuple[str, ...] = ("cp312",),
        platform: str = LINUX,
        system: str | None = None,
        torch: str | None = None,
        torch_cuda: str | None = None,
        released: str | None = "2025-06-01",
        served: bool = True,
    ) -> None:
        """Add a build to the catalogue and, unless ``served`` is False, its wheels to its index."""
        cuda = f"{variant[2:4]}.{variant[4:]}" if variant.startswith("cu") else None
        local = f"+{variant}" if index == "pytorch" else ""
        build = Build(
            package=package,
            version=version,
            variant=variant,
            platform=platform,
            system=system,
            pythons=pythons,
            index=index,
            evidence=Evidence.MEASURED,
            source="small",
            local=local,
            code=code,
            requires=tuple(requires),
            torch=torch,
            torch_cuda=torch_cuda,
            cuda=cuda,
            released=released,
        )
        self.builds.append(build)
        if not served:
            return
        place = self.default if index == "default" else self.variant_index(variant)
        for python in pythons:
            tags = build.filename(python)[:-4].split("-", 2)[2]
            place.wheel(package, version + local, requires=requires, tags=tags, upload_time=released)

    def variant_index(self, variant: str) -> Index:
        """The index of one CUDA variant, as download.pytorch.org lays it out."""
        if variant not in self.pytorch:
            self.pytorch[variant] = self.server.index(f"/whl/{variant}/", style="pytorch")
        return self.pytorch[variant]

    def catalogue(self) -> Catalogue:
        """Write the builds down and load them."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        pytorch = IndexPlace("pytorch", self.server.url + "/whl/{variant}/", Evidence.DOCUMENTED, "small")
        places = [pytorch, *self.places]
        (self.folder / "indexes.json").write_text(dump_catalogue_file({"small": SOURCE}, places))
        for index in {b.index for b in self.builds}:
            for package in {b.package for b in self.builds if b.index == index}:
                path = self.folder / "builds" / index / f"{package}.json"
                path.parent.mkdir(parents=True, exist_ok=True)
                chosen = [b for b in self.builds if (b.index, b.package) == (index, package)]
                grouped, groups = group_requires(chosen)
                path.write_text(dump_catalogue_file({"small": SOURCE}, grouped, groups))
        return _Catalogue(self.folder)

    def complete(self) -> Path:
        """The directory of the catalogue with all other facts in it, for another process."""
        self.catalogue()
        ignored = shutil.ignore_patterns("builds", "indexes.json")
        return Path(shutil.copytree(data_folder(), self.folder, ignore=ignored, dirs_exist_ok=True))

    def client(self) -> IndexClient:
        """A client of the default index and the extras."""
        known = KnownFiles(tuple, lambda: Catalogue().records(PLACEHOLDERS))
        return IndexClient(IndexSettings(self.default.url, self.extras, retries=0), cache_dir=self.cache, known=known)

    def plan(
        self, *requirements: str, target: str = "H100, driver 580.95.05", asked: Asked | None = None, **choices: object
    ) -> Plan:
        """Plan requirements for a target, Python 3.12 on Linux x86_64 unless it says otherwise."""
        return self.plan_for([self.machine(target)], *requirements, asked=asked, **choices)

    def plan_for(
        self, machines: Sequence[Machine], *requirements: str, asked: Asked | None = None, **choices: object
    ) -> Plan:
        """Plan requirements for machines."""
        with self.client() as client:
            fixed = Request(**choices)  # type: ignore[arg-type]
            return make_plan(asked or read_requirements(requirements), machines, fixed, self.catalogue(), client)

    def machine(self, target: str) -> Machine:
        """The machine that a target names, on Python 3.12 and Linux x86_64 unless it says otherwise."""
        given = parse_target(target)
        defaults = [
            "" if given.python else ", python 3.12",
            "" if given.os else ", linux-x86_64",
            "" if given.libc else ", glibc 2.35",
        ]
        return machine_from_target(parse_target(target + "".join(defaults)), Catalogue())


@contextmanager
def small_world(folder: Path) -> Iterator[World]:
    """An empty world; everything that it serves stops with the block."""
    with IndexServer() as server:
        yield World(server, server.index(), folder / "index_data", folder / "cache")

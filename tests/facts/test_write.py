from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from envsolve.facts.builds import Build, FileFact
from envsolve.facts.catalogue import Catalogue
from envsolve.facts.evidence import Evidence, Source
from envsolve.facts.files import CatalogueFile
from envsolve.facts.hardware import DriverBranch, Toolkit
from envsolve.facts.maintain.update import build_order, dump_catalogue_file, group_requires

SOURCES = {"s": Source("A title", "2026-11-27", "https://example.org/ü")}


def test_what_is_written_loads_back_equal(tmp_path: Path) -> None:
    one = Build(
        package="torch",
        version="2.9.1",
        variant="cu128",
        platform="linux_x86_64",
        pythons=("cp312", "cp313t"),
        index="default",
        evidence=Evidence.MEASURED,
        source="s",
        code=(),
        requires=("filelock", 'triton==3.5.1; platform_system == "Linux"'),
        files={"cp312": FileFact("ab", 3), "cp313t": FileFact()},
    )
    two = Build("torch", "2.9.1", "cpu", "win_amd64", ("cp312",), "default", Evidence.PUBLISHED, "s", code=None)
    records, requires = group_requires([one, two])
    folder = tmp_path / "builds" / "default"
    folder.mkdir(parents=True)
    (folder / "torch.json").write_text(dump_catalogue_file(SOURCES, records, requires))
    catalogue = Catalogue(tmp_path)
    loaded = catalogue.builds("torch")
    assert [replace(build, source="s") for build in loaded] == [one, two]
    assert [catalogue.source(build.source) for build in loaded] == [SOURCES["s"]] * 2


def test_files_may_use_the_same_key_for_different_sources(tmp_path: Path) -> None:
    toolkit = Toolkit("13.5", None, None, "9.5", (), Evidence.DOCUMENTED, "s")
    branch = DriverBranch("580", "13.0", "9.0", "580.65.06", Evidence.DOCUMENTED, "s")
    one, other = Source("One", "2026-11-27"), Source("Another", "2026-11-27")
    (tmp_path / "toolkits.json").write_text(dump_catalogue_file({"s": one}, [toolkit]))
    (tmp_path / "drivers.json").write_text(dump_catalogue_file({"s": other}, [branch]))
    catalogue = Catalogue(tmp_path)
    assert catalogue.source(catalogue.toolkits[0].source) == one
    assert catalogue.source(catalogue.drivers[0].source) == other


def test_required_fields_stay_even_when_null() -> None:
    toolkit = Toolkit("13.5", None, None, "9.5", ("sm_90",), Evidence.DOCUMENTED, "s")
    text = dump_catalogue_file(SOURCES, [toolkit])
    assert msgspec.json.decode(text, type=CatalogueFile[Toolkit]).records == (toolkit,)


def test_one_record_per_line() -> None:
    records = [Toolkit(str(n), None, None, "9.5", (), Evidence.DOCUMENTED, "s") for n in range(3)]
    lines = dump_catalogue_file(SOURCES, records).splitlines()
    assert [line.count('"version"') for line in lines if '"version"' in line] == [1, 1, 1]


@pytest.mark.parametrize(
    ("builds", "groups"),
    [
        (["a", "a"], {"1": ("a",)}),
        (["a", "b", "a"], {"1": ("a",), "1/2": ("b",)}),
        (["a", "b", "c"], {"1": ("a",), "1/2": ("b",), "1/3": ("c",)}),
    ],
)
def test_groups_are_shared_and_named_apart(builds: list[str], groups: dict[str, tuple[str, ...]]) -> None:
    records = [
        Build("torch", "1", "cpu", f"p{n}", (), "default", Evidence.MEASURED, "s", requires=(line,))
        for n, line in enumerate(builds)
    ]
    assert group_requires(records)[1] == groups


def test_order_is_by_version_not_by_text() -> None:
    builds = [
        Build("torch", version, "cpu", "p", (), "default", Evidence.MEASURED, "s") for version in ("2.10.0", "2.9.0")
    ]
    assert [b.version for b in sorted(builds, key=build_order)] == ["2.9.0", "2.10.0"]

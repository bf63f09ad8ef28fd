"""Every file of the catalogue: its schema, the forms of its values, one spelling, and one record for each thing."""

from __future__ import annotations

import datetime
import json
import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from msgspec.structs import replace

from envsolve.facts.builds import Build, FileFact, SourceProject
from envsolve.facts.catalogue import Catalogue
from envsolve.facts.evidence import Evidence
from envsolve.facts.files import BUILDS, FORMS, KINDS, CatalogueFile, data_folder, kind_of, misshapen, read_file
from envsolve.facts.hardware import GpuModel, Toolkit
from envsolve.facts.maintain import summary
from envsolve.facts.maintain.update import dump_catalogue_file

FOLDER = data_folder()
FILES = sorted(path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*.json"))
DOCS = Path(__file__).parents[2] / "docs"


@cache
def read(name: str) -> CatalogueFile[Any]:
    return read_file(FOLDER / name, kind_of(name).record)


def test_a_file_is_what_writing_its_records_gives() -> None:
    """So that a diff shows facts alone, and no field that its record lacks is passed over."""
    for name in FILES:
        file = read(name)
        written = dump_catalogue_file(file.sources, file.records, file.requires or None).splitlines()
        assert (FOLDER / name).read_text("utf-8").splitlines() == written, name


def test_every_value_has_its_form() -> None:
    catalogue = Catalogue(FOLDER)
    wrong = {
        f"{kind.name}: {said}"
        for kind in KINDS.values()
        if kind is BUILDS or catalogue.has(kind)
        for record in catalogue.records(kind)
        for said in misshapen(record)
    }
    assert wrong == set()


def test_sources_were_read_on_a_day_that_has_come() -> None:
    for source in (source for name in FILES for source in read(name).sources.values()):
        assert list(misshapen(source)) == []
        assert datetime.date.fromisoformat(source.date) <= datetime.date.today() + datetime.timedelta(days=1)


@pytest.mark.parametrize("kind", [kind for kind in KINDS.values() if kind.name not in ("builds", "conda")], ids=str)
def test_there_is_one_record_of_each_thing(kind: Any) -> None:
    catalogue = Catalogue(FOLDER)
    if not catalogue.has(kind):
        pytest.skip(f"no {kind.name} yet")
    counts = Counter(map(kind.identity, catalogue.records(kind)))
    assert [key for key, count in counts.items() if count > 1] == []


TOOLKIT = Toolkit("12.8", "570.26", "570.65", "8.7", ("sm_90",), Evidence.MEASURED, "a")
GPU = GpuModel("A card", "8.9", Evidence.DOCUMENTED, "a", pci_ids=("2684",))
BUILD = Build(
    "torch",
    "2.9.1",
    "cu128",
    "win_amd64",
    ("cp312", "cp313t", "py3-none"),
    "default",
    Evidence.MEASURED,
    "a",
    code=("sm_90a", "compute_90"),
    requires=("filelock>=3",),
    requires_python=">=3.9",
    torch="==2.9.*",
    cuda="12.8",
    libc="glibc 2.17",
    released="2026-01-31",
    files={"cp312": FileFact("a" * 64, 1)},
)


PROJECT = SourceProject(
    "flash-attn", ">=2.8", "install", Evidence.DOCUMENTED, "a", cuda=">=12.0", build_requires=("torch", "psutil")
)


@pytest.mark.parametrize("good", [TOOLKIT, GPU, BUILD, PROJECT])
def test_a_good_record_is_passed(good: Any) -> None:
    assert list(misshapen(good)) == []


@pytest.mark.parametrize(
    ("record", "changes"),
    [
        (TOOLKIT, {"version": "twelve"}),
        (TOOLKIT, {"driver_linux": "v570"}),
        (TOOLKIT, {"ptx_isa": "8"}),
        (TOOLKIT, {"archs": ("sm90",)}),
        (GPU, {"compute_capability": "89"}),
        (GPU, {"pci_ids": ("0x2684",)}),
        (GPU, {"pci_ids": ("2684", "ABCD")}),
        (GPU, {"first_driver": "R470"}),
        (BUILD, {"version": "2.9.x"}),
        (BUILD, {"variant": "cuda128"}),
        (BUILD, {"cuda": "12"}),
        (BUILD, {"code": ("sm_90", "sm_9x")}),
        (BUILD, {"requires": ("filelock >= ",)}),
        (BUILD, {"requires_python": "3.9"}),
        (BUILD, {"torch": "2.9"}),
        (BUILD, {"libc": "2.17"}),
        (BUILD, {"released": "2026-02-30"}),
        (BUILD, {"pythons": ("312",)}),
        (BUILD, {"files": {"cp312": FileFact("a" * 63)}}),
        (BUILD, {"files": {"cp312": FileFact("A" * 64)}}),
        (PROJECT, {"cuda": "12.0"}),
        (PROJECT, {"versions": "2.8"}),
        (PROJECT, {"build_requires": ("torch", "psutil ==")}),
    ],
)
def test_a_value_of_another_form_is_told(record: Any, changes: dict[str, Any]) -> None:
    assert len(list(misshapen(replace(record, **changes)))) == 1


def test_every_form_is_one_of_a_field() -> None:
    schema = json.loads(summary.schema_text())["$defs"]
    named = {field for component in schema.values() for field in component.get("properties", ())}
    assert set(FORMS) - named == set()


def test_the_schema_in_the_documentation_is_of_todays_types() -> None:
    assert (DOCS / summary.SCHEMA).read_text("utf-8") == summary.schema_text(), "run: make catalogue-docs"


def test_the_schema_has_a_definition_for_every_file_and_is_closed() -> None:
    schema = json.loads(summary.schema_text())["$defs"]
    assert {kind_of(name).name for name in FILES} <= set(schema)
    assert all(part["additionalProperties"] is False for part in schema.values() if "properties" in part)


SCHEMA = json.loads((DOCS / summary.SCHEMA).read_text("utf-8"))
FIELDS = {field for part in SCHEMA["$defs"].values() for field in part.get("properties", ())}
WORDS = set(re.findall(r'"([^"]+)"', " ".join(re.findall(r'"enum": \[[^]]*]', json.dumps(SCHEMA)))))


def shape(value: Any) -> Any:
    """What a schema sees of a value: types, names of fields, and the words that it lists."""
    if isinstance(value, dict):
        return (dict, *dict.fromkeys((key if key in FIELDS else str, shape(part)) for key, part in value.items()))
    if isinstance(value, list):
        return (list, *dict.fromkeys(map(shape, value)))
    return value if value in WORDS else type(value)


def refusals(name: str, text: str) -> list[str]:
    """What the published schema says against a file: one record of each shape is looked at, as there are thousands."""
    data = json.loads(text)
    data["records"] = list({shape(record): record for record in data["records"]}.values())
    validator = Draft202012Validator({**SCHEMA, "$ref": f"#/$defs/{kind_of(name).name}"})
    return [error.json_path for error in validator.iter_errors(data)]


def test_a_file_is_what_the_published_schema_says() -> None:
    assert [(name, said) for name in FILES if (said := refusals(name, (FOLDER / name).read_text("utf-8")))] == []


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("builds/default/torchcodec.json", '"variant": "', '"flavour": "'),
        ("builds/default/triton.json", '"pythons": ["cp38"', '"pythons": [38'),
        ("builds/default/triton.json", '"size": 2', '"size": "large", "sizes": 2'),
        ("builds/natten/natten.json", '"evidence": "documented"', '"evidence": "rumoured"'),
        ("builds/pytorch/torchcodec.json", '"date": "2026', '"day": "2026'),
        ("gpus.json", '"compute_capability": "8.9"', '"compute_capability": 8.9'),
        ("gpus.json", '"evidence": "documented", ', ""),
        ("torch_extensions.json", '"gcc_below": {"11.0": 10', '"gcc_below": {"11.0": "10"'),
        ("toolkits.json", '"schema": "envsolve.catalogue/1"', '"schema": "envsolve.catalogue/2"'),
    ],
)
def test_one_damaged_place_is_refused_by_the_published_schema(name: str, right: str, wrong: str) -> None:
    before, found, after = (FOLDER / name).read_text("utf-8").rpartition(right)
    assert found
    assert refusals(name, before + wrong + after)


def test_the_tables_in_the_documentation_are_of_todays_facts() -> None:
    page = (DOCS / summary.PAGE).read_text("utf-8")
    assert page == summary.with_tables(page), "run: make catalogue-docs"

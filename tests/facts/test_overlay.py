"""The user's own catalogue folder: what holds against what, what damage says, and that nothing is half-written."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from envsolve.cli.main import run
from envsolve.errors import EnvsolveError
from envsolve.facts.builds import Build
from envsolve.facts.catalogue import Catalogue, overlay_folder
from envsolve.facts.evidence import Evidence, Source
from envsolve.facts.files import data_folder
from envsolve.facts.hardware import Toolkit
from envsolve.facts.maintain.update import dump_catalogue_file, group_requires, update_overlay
from tests.binaries.artefacts import torch_wheel
from tests.facts.test_refresh import Memory, Published
from tests.indexserver import IndexServer

READ = Source("Wheels that were read", "2026-06-01")


def build(version: str, cuda: str = "13.0", python: str = "cp312", **more: Any) -> Build:
    variant = "cu" + cuda.replace(".", "")
    known = {"requires": ("filelock",), "cuda": cuda, **more}
    platform = "manylinux_2_28_x86_64"
    return Build("torch", version, variant, platform, (python,), "default", Evidence.MEASURED, "m", **known)


def write(folder: Path, *builds: Build, date: str) -> Path:
    path = folder / "builds" / "default" / "torch.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    records, requires = group_requires(builds)
    path.write_text(dump_catalogue_file({"m": Source("Wheels that were read", date)}, records, requires))
    return path


@pytest.fixture
def base(tmp_path: Path) -> Path:
    write(tmp_path / "base", build("2.10.0", code=("sm_90",)), build("2.11.0"), date="2026-06-01")
    return tmp_path / "base"


@pytest.fixture
def own(tmp_path: Path) -> Path:
    return tmp_path / "own"


@pytest.mark.parametrize(
    ("date", "code"), [("2026-06-02", ("sm_80",)), ("2026-06-01", ("sm_90",)), ("2026-05-31", ("sm_90",))]
)
def test_of_two_records_of_one_build_the_one_read_later_holds_and_else_the_bundled_one(
    base: Path, own: Path, date: str, code: tuple[str, ...]
) -> None:
    write(own, build("2.10.0", code=("sm_80",)), build("2.12.0"), date=date)
    catalogue = Catalogue(base, own)
    found = {b.version: b for b in catalogue.builds("torch")}
    assert list(found) == ["2.10.0", "2.11.0", "2.12.0"]
    assert found["2.10.0"].code == code
    assert found["2.12.0"].requires == ("filelock",)
    source = catalogue.source(found["2.12.0"].source)
    assert source is not None and source.date == date
    assert catalogue.own_date == date
    assert catalogue.date == max(date, "2026-06-01")


def test_all_records_of_a_build_are_replaced_together(base: Path, own: Path) -> None:
    write(own, build("2.10.0"), build("2.10.0", python="cp315", requires=("other",)), date="2026-07-01")
    pythons = [b.pythons for b in Catalogue(base, own).builds("torch")]
    assert pythons == [("cp312",), ("cp315",), ("cp312",)]


def test_a_package_that_only_the_user_knows(base: Path, own: Path) -> None:
    path = write(own, replace(build("2.10.0"), package="torchfoo"), date="2026-07-01")
    path.rename(path.with_name("torchfoo.json"))
    assert Catalogue(base, own).packages() == ("torch", "torchfoo")
    assert len(Catalogue(base, own).builds("torchfoo")) == 1


@pytest.mark.parametrize("place", ["own", os.devnull])
def test_without_a_folder_nothing_is_laid_over(base: Path, tmp_path: Path, place: str) -> None:
    catalogue = Catalogue(base, tmp_path / place)
    assert catalogue.packages() == ("torch",)
    assert len(catalogue.builds("torch")) == 2
    assert catalogue.own_date is None


def test_where_the_folder_is(monkeypatch: pytest.MonkeyPatch, own: Path) -> None:
    assert overlay_folder({"ENVSOLVE_CATALOGUE": str(own)}) == own
    assert overlay_folder({}).parts[-2:] == ("envsolve", "catalogue")
    monkeypatch.setenv("ENVSOLVE_CATALOGUE", str(own))
    write(own, build("99.0"), date="2099-01-01")
    assert Catalogue().builds("torch")[-1].version == "99.0" or "99.0" in {
        b.version for b in Catalogue().builds("torch")
    }
    assert "99.0" not in {b.version for b in Catalogue(data_folder()).builds("torch")}, "a named folder stands alone"


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text[: len(text) // 2],
        lambda text: "",
        lambda text: text.replace('"records"', '"record"'),
        lambda text: text.replace('"version": "2.12.0"', '"version": 2'),
        lambda text: text.replace('"requires": ["2.12.0"]', '"requires": ["none"]'),
        lambda text: text.replace('"source": "m"', '"source": "none"'),
        lambda text: text.replace('"version": "2.12.0"', '"version": "two"'),
        lambda text: text.replace('"package": "torch"', '"package": "torchfoo"'),
        lambda text: text.replace('"index": "default"', '"index": "pytorch"'),
    ],
)
def test_damage_names_the_file_to_delete(base: Path, own: Path, spoil: Callable[[str], str]) -> None:
    path = write(own, build("2.12.0"), date="2026-07-01")
    text = path.read_text()
    assert spoil(text) != text
    path.write_text(spoil(text))
    with pytest.raises(EnvsolveError) as failure:
        Catalogue(base, own).builds("torch")
    assert f"delete {path}" in str(failure.value.hint)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_is_no_file_and_nobody_waits_for_it(base: Path, own: Path) -> None:
    path = write(own, build("2.12.0"), date="2026-07-01")
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(EnvsolveError, match="pipe or a device"):
        Catalogue(base, own).builds("torch")


def test_a_place_that_no_index_describes_is_left_aside_with_a_warning(
    own: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write(own, build("99.0"), date="2099-01-01")
    (own / "builds" / "nowhere").mkdir()
    path.rename(own / "builds" / "nowhere" / "torch.json")
    with caplog.at_level(logging.WARNING):
        catalogue = Catalogue(data_folder(), own)
        assert "99.0" not in {b.version for b in catalogue.builds("torch")}
        assert "builds/nowhere/torch" not in catalogue.build_files
    assert "nowhere" in caplog.text


def test_another_form_of_file_is_left_aside_with_a_warning(
    base: Path, own: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write(own, build("2.12.0"), date="2026-07-01")
    path.write_text(path.read_text().replace("envsolve.catalogue/1", "envsolve.catalogue/0").replace("records", "rows"))
    with caplog.at_level(logging.WARNING):
        assert len(Catalogue(base, own).builds("torch")) == 2
    assert str(path) in caplog.text and "delete it" in caplog.text


def index() -> Memory:
    return Memory([Published("torch-2.12.0-cp312-cp312-manylinux_2_28_x86_64.whl", torch_wheel(release="2.12.0"))])


@pytest.fixture
def whole(base: Path) -> Path:
    """A base that has every file that is measured."""
    kept = write(base, build("2.10.0"), date="2026-06-01").read_text()
    kept = kept.replace('"m"', '"measured-default-index"')
    (base / "builds/default/torch.json").write_text(kept)
    source = {"measured-default-index": READ}
    (base / "builds/default/triton.json").write_text(dump_catalogue_file(source, []))
    for name in ("tritons.json", "torch_extensions.json"):
        (base / name).write_text(dump_catalogue_file(source, []))
    (base / "toolkits.json").write_text(dump_catalogue_file({"measured-nvcc-wheels": READ}, []))
    return base


def test_an_update_writes_what_differs_and_the_next_one_nothing(whole: Path, own: Path) -> None:
    before = {path: path.read_bytes() for path in whole.rglob("*.json")}
    assert update_overlay(index(), own, whole, "2026-07-01") == {
        own / "builds/default/torch.json": ("torch 2.12.0 manylinux_2_28_x86_64",),
        own / "torch_extensions.json": ("torch-extension 2.12.0",),
    }
    assert [b.version for b in Catalogue(own).builds("torch")] == ["2.12.0"]
    assert [b.version for b in Catalogue(whole, own).builds("torch")] == ["2.10.0", "2.12.0"]
    assert {path: path.read_bytes() for path in whole.rglob("*.json")} == before
    assert update_overlay(index(), own, whole, "2026-07-02") == {}


def test_an_update_drops_what_a_newer_envsolve_brings(whole: Path, own: Path) -> None:
    write(own, build("2.10.0"), build("2.11.0"), date="2026-05-01")
    update_overlay(index(), own, whole, "2026-07-01")
    assert [b.version for b in Catalogue(own).builds("torch")] == ["2.11.0", "2.12.0"]


@pytest.mark.parametrize("failure", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    whole: Path, own: Path, monkeypatch: pytest.MonkeyPatch, failure: BaseException
) -> None:
    path = write(own, build("2.11.0"), date="2026-06-30")
    before = path.read_bytes()

    def fail(*_: object) -> None:
        raise failure

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises((EnvsolveError, KeyboardInterrupt)) as raised:
        update_overlay(index(), own, whole, "2026-07-01")
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == ["torch.json"]
    if isinstance(raised.value, EnvsolveError):
        assert "No space left" in raised.value.message


def test_two_updates_at_once_leave_whole_files(whole: Path, own: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(update_overlay, index(), own, whole, "2026-07-01") for _ in range(8)]:
            done.result()
    assert [b.version for b in Catalogue(whole, own).builds("torch")] == ["2.10.0", "2.12.0"]
    assert {path.name for path in own.rglob("*") if path.is_file()} == {"torch.json", "torch_extensions.json"}


def test_a_folder_that_cannot_be_made(whole: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvsolveError, match="cannot write"):
        update_overlay(index(), tmp_path / "file", whole, "2026-07-01")


def test_other_kinds_are_laid_over_too(base: Path, own: Path) -> None:
    for folder, date, isa in ((base, "2026-01-01", "8.6"), (own, "2026-02-01", "8.7")):
        folder.mkdir(exist_ok=True)
        toolkit = Toolkit("12.8", None, None, isa, (), Evidence.MEASURED, "m")
        (folder / "toolkits.json").write_text(dump_catalogue_file({"m": Source("Read", date)}, [toolkit]))
    assert [t.ptx_isa for t in Catalogue(base, own).toolkits] == ["8.7"]


def test_the_command_makes_the_next_plan_know_a_release(
    own: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ENVSOLVE_CATALOGUE", str(own))
    with IndexServer() as server:
        name = "torch-99.0-cp312-cp312-manylinux_2_28_x86_64.whl"
        server.index().add("torch", name, torch_wheel(release="99.0"), upload_time="2026-01-21T16:23:25Z")
        monkeypatch.setenv("PIP_INDEX_URL", f"{server.url}/simple/")
        for said in (
            f"{own / 'builds/default/torch.json'}: torch 99.0 manylinux_2_28_x86_64\n"
            f"{own / 'torch_extensions.json'}: torch-extension 99.0",
            "no new release has been published",
        ):
            with pytest.raises(SystemExit) as left:
                run(["index", "update"])
            assert left.value.code == 0
            assert capsys.readouterr().err.strip() == said
    catalogue = Catalogue()
    assert [b.cuda for b in catalogue.builds("torch") if b.version == "99.0"] == ["13.0"]
    assert catalogue.torch_extensions["99.0"].archs == ("3.5", "9.0", "9.0a", "10.0")
    bundled = Catalogue(data_folder()).date or ""
    assert catalogue.date == max(catalogue.own_date or "", bundled), "somewhere it is still the day before"

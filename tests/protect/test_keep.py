"""Constraints that real pip and uv honour, and that leave nothing behind."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import envsolve
from envsolve.errors import UsageError
from envsolve.machine.model import Machine
from tests.install.wheels import make_wheel, plan_of, planned
from tests.protect.conftest import Shop


@pytest.fixture
def guarded(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.delenv("PIP_CONFIG_FILE")
    envsolve.guard(shop.prefix)
    return shop


def test_plain_pip_keeps_the_torch(guarded: Shop) -> None:
    pip = (sys.executable, "-m", "pip", "--python", str(guarded.prefix), "install")
    assert guarded.run(*pip, "loose").returncode == 0
    assert (guarded.installed()["torch"], guarded.installed()["loose"]) == ("2.6.0+cu126", "0.9")
    assert guarded.run(*pip, "strict").returncode == 1


def test_uv_keeps_it_by_the_variable_that_is_told(guarded: Shop) -> None:
    told = next(note for note in envsolve.guard(guarded.prefix).notes if "UV_CONSTRAINT" in note)
    guarded.variables["UV_CONSTRAINT"] = told.partition("UV_CONSTRAINT=")[2]
    done = guarded.run("uv", "pip", "install", "--python", str(guarded.prefix), "strict")
    assert done.returncode == 1
    assert "torch==2.6.0+cu126" in done.stderr


@pytest.mark.parametrize(
    "before",
    [None, "", "[global]\n# mine\ntimeout = 60\n", "[install]\nno-compile = yes\n[list]\nformat = json\n"],
    ids=["none", "empty", "global", "install"],
)
def test_removing_leaves_the_configuration_as_it_was(shop: Shop, before: str | None) -> None:
    config = shop.prefix / "pip.conf"
    if before is not None:
        config.write_text(before)
    for _ in range(2):
        envsolve.guard(shop.prefix)
    assert config.read_text().count("constraint =") == 1
    envsolve.unguard(shop.prefix)
    assert (config.read_text() if config.exists() else "") == (before or "")
    assert not (shop.prefix / ".envsolve/constraints.txt").exists()


@pytest.mark.parametrize("own", ["[install]\nconstraint = mine.txt\n", "[global]\nconstraint: mine.txt\n", "[glob"])
def test_constraints_of_ones_own_are_not_touched(shop: Shop, own: str) -> None:
    config = shop.prefix / "pip.conf"
    config.write_text(own)
    with pytest.raises(UsageError):
        envsolve.guard(shop.prefix)
    assert config.read_text() == own
    assert not (shop.prefix / ".envsolve").exists()


def test_an_environment_without_torch_has_nothing_to_keep(tmp_path: Path) -> None:
    (tmp_path / "conda-meta").mkdir()
    with pytest.raises(UsageError, match="no torch"):
        envsolve.guard(tmp_path)


def test_condas_pins_are_added_to_those_that_are_there_and_taken_out_again(tmp_path: Path) -> None:
    records = {"pytorch": "cuda126_py312_200", "cuda-version": "h0", "python": "h1"}
    (tmp_path / "conda-meta").mkdir()
    for name, build in records.items():
        record = {"name": name, "version": "2.7.1", "build": build}
        (tmp_path / f"conda-meta/{name}-2.7.1-{build}.json").write_text(json.dumps(record))
    pinned = tmp_path / "conda-meta/pinned"
    pinned.write_text("python 3.12.*\ncuda-version=12.6\n")
    for _ in range(2):
        envsolve.guard(tmp_path)
    assert pinned.read_text() == "python 3.12.*\ncuda-version=12.6\npytorch=2.7.1=cuda126_py312_200\n"
    envsolve.unguard(tmp_path)
    assert pinned.read_text() == "python 3.12.*\ncuda-version=12.6\n"
    assert envsolve.unguard(tmp_path).files == ()


def test_an_environment_of_envsolve_is_replaced_and_its_new_torch_held(tmp_path: Path) -> None:
    prefix = tmp_path / "env"

    def install(version: str) -> None:
        plan = plan_of(planned(make_wheel(tmp_path, "torch", version)))
        envsolve.install(plan, prefix, manager="uv", machine=Machine(), check=False)

    install("2.6.0")
    envsolve.guard(prefix)
    install("2.7.0")
    assert "torch==2.7.0" in (prefix / ".envsolve/constraints.txt").read_text()
    config = prefix / "pip.conf"
    config.write_text(f"{config.read_text()}[global]\ntimeout = 60\n")
    with pytest.raises(UsageError, match=r"pip\.conf"):
        install("2.6.0")

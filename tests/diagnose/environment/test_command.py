"""``envsolve diagnose --prefix`` and ``envsolve envs`` as they are typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from envsolve.cli.main import run
from tests.environment.prefixes import Prefix

H100 = ("--target", "H100, driver 570.86.15, linux-x86_64")


@pytest.fixture
def prefix(tmp_path: Path) -> Prefix:
    prefix = Prefix(tmp_path / "env")
    prefix.add_torch("2.8.0", None, requires=["filelock"])
    return prefix


def said(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        run([str(word) for word in words])
    captured = capsys.readouterr()
    assert isinstance(ended.value.code, int)
    return ended.value.code, captured.out, captured.err


@pytest.mark.parametrize("option", ["--prefix", "--python"])
def test_an_environment_is_diagnosed(capsys: pytest.CaptureFixture[str], prefix: Prefix, option: str) -> None:
    where = prefix.folder if option == "--prefix" else prefix.folder / "bin/python"
    code, out, _ = said(capsys, "diagnose", option, where, *H100)
    assert code == 0
    assert out.startswith("cpu-build")
    assert f"uv pip install --python {prefix.folder} torch==2.8.0+cu128" in out


def test_an_environment_in_order_is_said_to_be(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    prefix = Prefix(tmp_path / "env")
    prefix.add_torch(needed=())
    code, out, _ = said(capsys, "diagnose", "--prefix", prefix.folder, *H100)
    assert code == 0
    assert out.startswith("No fault was found in this environment.")
    assert f"envsolve verify --prefix {prefix.folder}" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["diagnose"], "give an environment: --prefix DIR"),
        (["diagnose", "--prefix", ".", "--python", "python"], "both give the environment"),
        (["diagnose", "--prefix", "nowhere", *H100], "does not exist"),
        (["diagnose", "--python", "nowhere/bin/python", *H100], "there is no interpreter"),
        (["diagnose", "--prefix", ".", *H100], "is not a Python environment"),
    ],
)
def test_wrong_usage(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = said(capsys, *words)
    assert (code, out) == (2, "")
    assert message in err


def test_environments_are_listed(capsys: pytest.CaptureFixture[str], prefix: Prefix) -> None:
    code, out, err = said(capsys, "envs", prefix.folder.parent, *H100)
    assert code == 0
    assert f"does not work  venv     python 3.12.4  torch 2.8.0            {prefix.folder}" in out
    assert f"envsolve diagnose --prefix {prefix.folder}   (cpu-build" in out
    assert "torch does not work on this machine" in err
    code, out, _ = said(capsys, "envs", prefix.folder.parent, *H100, "--format", "json")
    found = [e for e in json.loads(out)["environments"] if e["prefix"] == str(prefix.folder)]
    assert [(e["works"], e["causes"][0]) for e in found] == [("no", "cpu-build")]


def test_an_environment_without_python_is_said_to_be_so(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    prefix = Prefix(tmp_path / "env")
    (prefix.folder / "bin/python").unlink()
    _, out, _ = said(capsys, "diagnose", "--prefix", prefix.folder, *H100)
    assert "interpreter-missing" in out
    # Evidence is wrapped, and the path is longer in a worker of pytest-xdist.
    assert f"{prefix.folder}/bin/python: does not exist" in " ".join(out.split())
    assert f"python3.12 -m venv --upgrade {prefix.folder}" in out


@pytest.mark.parametrize(
    "words", [["--log", "x", "--run"], ["--prefix", ".", "--run", "--fix"], ["--prefix", ".", "--run", *H100]]
)
def test_a_run_is_of_an_environment_on_this_machine(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    code, _, err = said(capsys, "diagnose", *words)
    assert code == 2
    assert "--run " in err

"""``envsolve diagnose err.txt``: the environment in use is read too, unless the text is from elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from envsolve import describe_target
from envsolve.diagnose.environment import elsewhere
from envsolve.facts.catalogue import Catalogue
from envsolve.machine import known
from tests.diagnose.environment.test_command import said
from tests.environment.prefixes import Prefix

CATALOGUE = Catalogue()
HERE = "RTX 4090, driver 550.54.15, linux-x86_64"
ERROR = "RuntimeError: CUDA error: no kernel image is available for execution on the device\n"
OWN = "{prefix}/lib/python3.12/site-packages/torch/nn/functional.py"


@pytest.fixture
def prefix(tmp_path: Path) -> Prefix:
    prefix = Prefix(tmp_path / "env")
    prefix.add_torch("2.8.0", "12.8", requires=["filelock"])
    return prefix


@pytest.mark.parametrize(
    ("text", "target", "why"),
    [
        (ERROR, HERE, None),
        ("torch 2.8.0+cu128, Python 3.12.4\n" + ERROR, HERE, None),
        (f'  File "{OWN}", line 1, in linear\n{ERROR}', HERE, None),
        ("| Driver Version: 550.54.15 |\nNVIDIA GeForce RTX 4090\n" + ERROR, HERE, None),
        ("torch 2.6.0+cu124\n" + ERROR, HERE, "torch 2.6.0+cu124"),
        ("torch 2.8.0+cu126\n" + ERROR, HERE, "torch 2.8.0+cu126"),
        ("torch==2.8.0\nvllm==0.11.0\n" + ERROR, HERE, "vllm 0.11.0"),
        ('  File "/opt/conda/lib/python3.12/site-packages/torch/x.py", line 1, in f\n' + ERROR, HERE, "/opt/conda/lib"),
        ("GPU 0: NVIDIA GeForce RTX 5090\n" + ERROR, HERE, "RTX 5090"),
        ("| Driver Version: 535.104.05 |\n" + ERROR, HERE, "driver 535.104.05"),
        ("Python version: 3.10.12\n" + ERROR, HERE, "python 3.10"),
        (ERROR, "no gpu", "no NVIDIA GPU"),
    ],
)
def test_a_text_from_elsewhere_is_known_by_its_facts(prefix: Prefix, text: str, target: str, why: str | None) -> None:
    machine = describe_target(target, CATALOGUE)
    found = elsewhere(text.format(prefix=prefix.folder), prefix.folder, machine, CATALOGUE, {})
    assert found is None if why is None else why in (found or "")


def test_an_environment_without_torch_is_not_where_torch_failed(tmp_path: Path) -> None:
    empty = Prefix(tmp_path / "env")
    found = elsewhere(ERROR, empty.folder, describe_target(HERE, CATALOGUE), CATALOGUE, {})
    assert found == "that environment has no torch"


@pytest.mark.parametrize(("facts", "read"), [("", True), ("torch 2.6.0+cu124\n", False)])
def test_what_is_read_is_printed(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    prefix: Prefix,
    facts: str,
    read: bool,
) -> None:
    monkeypatch.setenv("VIRTUAL_ENV", str(prefix.folder))
    monkeypatch.setattr(known, "detect", lambda: describe_target(HERE, CATALOGUE))
    (tmp_path / "err.txt").write_text(facts + ERROR)
    code, _, err = said(capsys, "diagnose", tmp_path / "err.txt")
    assert code == 0
    assert (f"is explained with the environment {prefix.folder} and this machine" in err) is read
    assert (f"--prefix {prefix.folder}" in err) is not read
    _, _, err = said(capsys, "diagnose", tmp_path / "err.txt", "--target", HERE)
    assert "is read" not in err


def test_the_environment_that_a_text_names_is_proposed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, prefix: Prefix
) -> None:
    other = Prefix(tmp_path / "other")
    other.add_torch("2.8.0", "12.8")
    monkeypatch.setenv("VIRTUAL_ENV", str(prefix.folder))
    monkeypatch.setattr(known, "detect", lambda: describe_target(HERE, CATALOGUE))
    text = f'  File "{other.folder}/lib/python3.12/site-packages/torch/x.py", line 1, in f\n{ERROR}'
    (tmp_path / "err.txt").write_text(text)
    _, _, err = said(capsys, "diagnose", tmp_path / "err.txt")
    assert f"--prefix {other.folder}\n" in err

"""A real CPU build of torch, tried: what the files say and what the run says agree, sound and damaged.

Its wheel is on PyTorch's own index, or where pip is configured to look.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import envsolve
from envsolve.verify.installed import check_here
from envsolve.verify.report import Probe, describe
from tests.verify.mutations import CUSTOM

pytestmark = pytest.mark.network
TORCH = "torch==2.13.0+cpu"
INDEX = "https://download.pytorch.org/whl/cpu"
H100 = envsolve.describe_target("H100, driver 580.95.05, linux-x86_64, glibc 2.35")
PYTHON = shutil.which("python3.11") or sys.executable
"""Mirrors of the index hold this build for Python 3.11 more often than for others."""


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("torch") / "env"
    subprocess.run([PYTHON, "-m", "venv", folder], check=True)
    command = [str(folder / "bin/pip"), "install", "-q", "--retries", "1", TORCH, "--extra-index-url", INDEX]
    environ = {**os.environ, "PIP_CONSTRAINT": os.devnull}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=600)
    if "No matching distribution" in done.stderr:
        pytest.skip(f"no index within reach has {TORCH} for this Python")
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def damaged(prefix: Path) -> Iterator[Path]:
    """The environment with a library of torch cut off."""
    library = next(prefix.glob("lib/python3*/site-packages/torch/lib/libtorch_python.so"))
    whole = library.read_bytes()
    library.write_bytes(whole[: len(whole) // 2])
    yield prefix
    library.write_bytes(whole)


def steps(probes: tuple[Probe, ...]) -> dict[str, Probe]:
    return {probe.name: probe for probe in probes}


def test_a_sound_one_is_told_as_its_files_say(prefix: Path) -> None:
    imported = steps(envsolve.probe(prefix))["torch-import"]
    assert imported.outcome == "works", imported
    assert imported.seen["version"] == TORCH.partition("==")[2]
    assert imported.seen["file"].startswith(str(prefix.resolve()))
    found = envsolve.diagnose("", [H100], prefix=prefix, probes=[imported])
    assert [diagnosis.cause for diagnosis in found.diagnoses] == ["cpu-build"]


def test_a_damaged_one_is_told_by_files_and_run_alike(damaged: Path) -> None:
    imported = steps(envsolve.probe(damaged))["torch-import"]
    assert imported.outcome in ("fails", "crashes"), imported
    found = envsolve.diagnose("", [H100], prefix=damaged, probes=[imported])
    assert found.diagnoses[0].cause == "lock-incomplete"
    assert "torch is found at" in imported.printed  # said before it crashed


def test_a_module_that_replaces_an_operator_is_named(prefix: Path) -> None:
    (site,) = prefix.glob("lib/python3*/site-packages")
    python, custom = prefix / "bin" / "python", site / "sitecustomize.py"
    sound = check_here(python, only=["torch-operators"])
    assert sound.passed, describe(sound)
    for one in (one for one in CUSTOM if one.check == "torch-operators"):
        custom.write_text(one.source + "\n")
        report = check_here(python, only=["torch-operators"])
        custom.unlink()
        assert report.failed, one.what
        assert str(custom) in report.checks[-1].detail

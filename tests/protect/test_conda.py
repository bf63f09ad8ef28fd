"""conda's dry runs, in the form that it documents: read, and judged by its own builds."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import envsolve
from envsolve.protect.preview import Preview

OLD = {"name": "pytorch", "version": "2.7.1", "build_string": "cuda126_mkl_py312_h0_300", "platform": "linux-64"}


def forecast(tmp_path: Path, come: dict[str, str], *words: str, gone: dict[str, str] | None = None) -> Preview:
    """What ``conda install`` would do, where its dry run answers with one package that comes."""
    prefix = tmp_path / "env"
    (prefix / "conda-meta").mkdir(parents=True)
    record = {**OLD, "build": OLD["build_string"]}
    (prefix / "conda-meta/pytorch-2.7.1-0.json").write_text(json.dumps(record))
    actions = {"LINK": [come] if come else [], "UNLINK": [gone or OLD], "PREFIX": str(prefix)}
    answer = {"success": True, "dry_run": True, "actions": actions}
    (tmp_path / "answer.json").write_text(json.dumps(answer))
    program = tmp_path / "conda"
    program.write_text(f"#!/bin/sh\ncat {tmp_path}/answer.json\n")
    program.chmod(0o755)
    card = envsolve.describe_target("RTX 4090, driver 550.54, linux-x86_64, glibc 2.35")
    found = envsolve.preview_install([str(program), *words], [card], dict(os.environ))
    assert found is not None
    return found


def test_a_cpu_build_that_a_package_drags_along_is_refused(tmp_path: Path) -> None:
    cpu = {**OLD, "build_string": "cpu_generic_py312_h0_1"}
    found = forecast(tmp_path, cpu, "install", "-p", str(tmp_path / "env"), "lightning")
    assert (found.refused, found.works, found.unasked) == (True, "no", ("pytorch",))
    assert "CPU build" in (found.why or "")


@pytest.mark.parametrize("spec", ["pytorch", "conda-forge::pytorch=2.7.1", "pytorch>=2.7"])
def test_a_build_that_runs_and_is_asked_for_is_not_refused(tmp_path: Path, spec: str) -> None:
    newer = {**OLD, "build_string": "cuda126_mkl_py312_h1_301"}
    found = forecast(tmp_path, newer, "install", "-y", spec)
    assert (found.refused, found.works) == (False, "yes"), found


def test_a_removal_that_nobody_asked_for_is_refused(tmp_path: Path) -> None:
    found = forecast(tmp_path, {}, "remove", "mkl")
    assert (found.refused, found.unasked, found.works) == (True, ("pytorch",), None)
    assert found.keeps is None

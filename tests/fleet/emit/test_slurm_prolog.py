"""The prolog of Slurm: which nodes it drains."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from envsolve.fleet.emit.slurm_prolog import render
from envsolve.fleet.plan import read_plan


@pytest.mark.parametrize(
    ("node", "code", "expected"),
    [("h1", 0, 0), ("h1", 3, 1), ("h1", 1, 0), ("h1", 127, 0), ("login", 3, 0)],
    ids=["fits", "fits nothing", "envsolve fails", "envsolve is missing", "another node"],
)
def test_only_a_node_that_nothing_fits_is_drained(
    fleet: Path, tmp_path: Path, node: str, code: int, expected: int
) -> None:
    for name, does in (("python", f"echo it burns >&2; exit {code}"), ("logger", 'echo "$@" > "$0.log"')):
        (tmp_path / name).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / name).chmod(0o755)
    text = render(fleet, read_plan(fleet), str(tmp_path / "python"))
    environ = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURMD_NODENAME": node}
    assert subprocess.run(["sh", "-c", text], env=environ).returncode == expected
    assert (tmp_path / "logger.log").exists() == (expected == 1)
    if expected:
        assert (tmp_path / "logger.log").read_text() == "-t envsolve it burns\n"

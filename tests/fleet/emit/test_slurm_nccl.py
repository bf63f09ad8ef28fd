"""The job that checks NCCL between nodes; the sums themselves need GPUs on several nodes, which no test here has."""

from __future__ import annotations

import ast
import os
import subprocess
from pathlib import Path

import pytest

from envsolve.fleet.emit.slurm_nccl import render
from envsolve.fleet.plan import read_plan

#: Starts the tasks of two nodes one after the other; the exit code is that of the worst.
SRUN = """\
shift; worst=0
for node in n1 n2; do
  SLURMD_NODENAME=$node "$@"; code=$?
  [ $code -gt $worst ] && worst=$code
done
exit $worst
"""


def started(fleet: Path, directory: Path, python: str, limits: tuple[int, int] = (120, 360)) -> tuple[int, str]:
    """The exit code and the output of the job on two nodes with three GPUs each, whose Python does ``python``."""
    for name, does in {"scontrol": "echo n1; echo n2", "srun": SRUN, "python": python}.items():
        (directory / name).write_text(f"#!/bin/sh\n{does}\n")
        (directory / name).chmod(0o755)
    environ = {
        "PATH": f"{directory}:{os.environ['PATH']}",
        "SLURM_JOB_NODELIST": "n[1-2]",
        "SLURM_JOB_NUM_NODES": "2",
        "SLURM_JOB_ID": "41",
        "CUDA_VISIBLE_DEVICES": "0,1,2",
    }
    text = render(fleet, read_plan(fleet), str(directory / "python"))
    for before, after in zip(("-k 5 120", "-k 5 360"), limits, strict=True):
        assert before in text
        text = text.replace(before, f"-k 5 {after}")
    done = subprocess.run(["sh", "-c", text], env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.returncode, done.stdout


def test_each_node_starts_a_process_for_each_of_its_gpus(fleet: Path, tmp_path: Path) -> None:
    loads = 'case "$*" in *"import torch") exit 0;; esac; '
    keeps = f'printf "%s|" "$@" > {tmp_path}/told; for last; do :; done; cp "$last" {tmp_path}/check.py; exit 7'
    code, out = started(fleet, tmp_path, loads + keeps)
    assert code == 7
    assert out.splitlines() == [
        *("n1: ready", "n1: ended with exit code 7", "n2: ready", "n2: ended with exit code 7"),
    ]
    told = (tmp_path / "told").read_text().split("|")
    assert told[:6] == ["-m", "envsolve", "run", "--fleet", str(fleet), "--"]
    assert told[told.index("--nproc-per-node") + 1] == "3"
    assert told[told.index("--rdzv-endpoint") + 1] == "n1:29417"
    assert told[told.index("--rdzv-conf") + 1] == "join_timeout=150"
    ast.parse((tmp_path / "check.py").read_text())


def test_all_is_well(fleet: Path, tmp_path: Path) -> None:
    assert started(fleet, tmp_path, "exit 0") == (0, "n1: ready\nn2: ready\n")


@pytest.mark.parametrize(
    ("of_n2", "said"),
    [
        ("exit 9", ["n2: cannot load torch within 120 s", "n2: did not get ready"]),
        ("sleep 900", ["n2: cannot load torch within 120 s", "n2: did not get ready"]),
        ('case "$*" in *"import torch") exit 0;; esac; exit 9', ["n2: ended with exit code 9"]),
        ('case "$*" in *"import torch") exit 0;; esac; sleep 900', ["n2: ended with exit code 124"]),
    ],
)
def test_a_node_that_fails_or_hangs_is_named(fleet: Path, tmp_path: Path, of_n2: str, said: list[str]) -> None:
    hanging = "sleep" in of_n2
    code, out = started(
        fleet, tmp_path, f"[ $SLURMD_NODENAME = n1 ] && exit 0; {of_n2}", (5, 5) if hanging else (120, 360)
    )
    assert code != 0
    assert [line for line in out.splitlines() if line.startswith("n2") and line != "n2: ready"] == said
    assert not [line for line in out.splitlines() if line.startswith("n1") and line != "n1: ready"]

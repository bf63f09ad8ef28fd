"""The job that checks NCCL between nodes; the sums themselves need GPUs on several nodes, which no test here has."""

from __future__ import annotations

import ast
import os
import subprocess
from pathlib import Path

from envsolve.fleet.emit.slurm_nccl import render
from envsolve.fleet.plan import read_plan


def test_each_node_starts_a_process_for_each_of_its_gpus(fleet: Path, tmp_path: Path) -> None:
    programs = {
        "scontrol": "echo n1; echo n2",
        "srun": 'shift; exec "$@"',
        "python": f'printf "%s|" "$@" > {tmp_path}/told; for last; do :; done; cp "$last" {tmp_path}/check.py; exit 7',
    }
    for name, does in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / name).chmod(0o755)
    environ = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "SLURM_JOB_NODELIST": "n[1-2]",
        "SLURM_JOB_NUM_NODES": "2",
        "SLURM_JOB_ID": "41",
        "CUDA_VISIBLE_DEVICES": "0,1,2",
    }
    text = render(fleet, read_plan(fleet), str(tmp_path / "python"))
    assert subprocess.run(["sh", "-c", text], env=environ).returncode == 7
    told = (tmp_path / "told").read_text().split("|")
    assert told[:6] == ["-m", "envsolve", "run", "--fleet", str(fleet), "--"]
    assert told[told.index("--nproc-per-node") + 1] == "3"
    assert told[told.index("--rdzv-endpoint") + 1] == "n1:29417"
    ast.parse((tmp_path / "check.py").read_text())

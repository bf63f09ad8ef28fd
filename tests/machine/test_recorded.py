"""What ``envsolve detect`` said on a real H100 machine, against what ``nvidia-smi`` said there (ids replaced)."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from envsolve.machine.detect import detect
from envsolve.machine.known import dump_machine, load_machine

RECORDED = Path(__file__).parent.parent / "recorded"


def test_detect_agreed_with_nvidia_smi() -> None:
    machine = load_machine(RECORDED / "h100.json")
    rows = list(csv.DictReader((RECORDED / "h100-nvidia-smi.csv").open(), skipinitialspace=True))
    assert machine.driver is not None
    assert machine.gpus is not None
    assert [
        {
            "name": gpu.name,
            "driver_version": machine.driver.version,
            "memory.total [MiB]": f"{gpu.memory_mib} MiB",
            "compute_cap": gpu.compute_capability,
            "uuid": gpu.uuid,
            "mig.mode.current": "Enabled" if gpu.mig else "Disabled",
        }
        for gpu in machine.gpus
    ] == rows


def test_a_recorded_machine_is_read_and_written_without_loss(tmp_path: Path) -> None:
    machine = load_machine(RECORDED / "h100.json")
    copy = tmp_path / "machine.json"
    copy.write_text(dump_machine(machine))
    assert load_machine(copy) == machine


@pytest.mark.gpu
def test_detect_agrees_with_nvidia_smi_here() -> None:
    import subprocess

    query = "--query-gpu=name,driver_version,memory.total,compute_cap,uuid"
    said = subprocess.run(
        ["nvidia-smi", query, "--format=csv,noheader,nounits"], capture_output=True, text=True, check=True
    )
    machine = detect(environ={})
    assert machine.driver is not None
    found = [
        [g.name, machine.driver.version, str(g.memory_mib), g.compute_capability, g.uuid] for g in machine.gpus or ()
    ]
    assert found == [[cell.strip() for cell in line.split(",")] for line in said.stdout.splitlines()]

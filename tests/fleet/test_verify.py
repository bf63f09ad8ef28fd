"""Verifying a fleet through ClusterShell's local worker, on nodes that print recorded reports."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from envsolve.fleet.model import Reader
from envsolve.fleet.plan import FleetPlan, Group
from envsolve.fleet.probe import probe_files
from envsolve.fleet.verify import FleetReport, NodeResult, page
from envsolve.planning.lock import Assumptions
from envsolve.system.files import dump
from envsolve.verify.report import Check, Report
from tests.fleet.profiles import profile

pytest.importorskip("ClusterShell")

NODES = ("gpu1", "gpu2", "gpu3", "gpu4")
GOOD = Check("torch-matmul", "0: H100", "pass", 1.0, "equal")


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    """A fleet of four H100 nodes with an environment, and a Python that plays ``NODE.sh``."""
    (tmp_path / "in").mkdir()
    (tmp_path / "nodes").mkdir()
    for node in NODES:
        faults = ["GPU 2 has 7 uncorrected ECC errors"] if node == "gpu3" else []
        (tmp_path / "in" / f"{node}.json").write_bytes(profile(node, "H100", faults=faults))
    fleet = tmp_path / "fleet"
    probe_files(fleet, [tmp_path / "in"])
    group = Group("cu130", ("h100-580.95.05",), NODES, "abc", "ok", Assumptions(gpus=("9.0",)), {})
    (fleet / "plan.json").write_text(dump(FleetPlan(groups=(group,), unreachable={"gpu9": "it is down"})))
    (group.environment(fleet) / "bin").mkdir(parents=True)
    (group.environment(fleet) / "bin/python").touch()
    python = tmp_path / "python"
    python.write_text(
        f'#!/bin/sh\necho "$ENVSOLVE_NODE $*" >> {tmp_path}/asked\nexec sh {tmp_path}/nodes/"$ENVSOLVE_NODE".sh\n'
    )
    python.chmod(0o755)
    for node in NODES:
        reporting(fleet, node, GOOD)
    return fleet


def reporting(fleet: Path, node: str, *checks: Check, driver: str = "580.95.05", before: str = "") -> None:
    machine = Reader().read(profile(node, "H100", driver), node).machine
    file = fleet.parent / "nodes" / f"{node}.json"
    file.write_text(before + dump(Report(checks=checks, machine=machine)))
    failed = any(check.status == "fail" for check in checks)
    (file.parent / f"{node}.sh").write_text(f"cat {file}; exit {4 if failed else 0}")


def verify(fleet: Path, *options: str, nodes: str = "gpu[1-4]", code: int = 0) -> str:
    reach = ["--ssh", nodes, "--worker", "exec", "--python", str(fleet.parent / "python")]
    words = [sys.executable, "-m", "envsolve", "fleet", "verify", "--fleet", str(fleet), *reach, *options]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    return done.stdout


def test_all_pass_and_are_not_run_again(fleet: Path) -> None:
    assert verify(fleet) == "4 of 4 nodes pass\n"
    asked = (fleet.parent / "asked").read_text()
    assert f"gpu1 -m envsolve verify --prefix {fleet}/envs/cu130-abc --format json" in asked
    assert verify(fleet) == "4 of 4 nodes pass, 4 of them in an earlier run\n"
    assert (fleet.parent / "asked").read_text() == asked
    assert verify(fleet, "--again") == "4 of 4 nodes pass\n"
    assert len((fleet.parent / "asked").read_text().splitlines()) == 8
    assert {path.stem for path in (fleet / "reports/cu130-abc").iterdir()} == set(NODES)
    assert not list(fleet.glob(".verify-*"))


def test_each_node_that_fails_is_named_with_the_reason(fleet: Path) -> None:
    reporting(fleet, "gpu1", GOOD, before="Welcome to gpu1\n")
    reporting(fleet, "gpu2", GOOD, driver="535.54.03")
    reporting(fleet, "gpu3", GOOD, Check("nccl", None, "fail", 1.0, "Traceback\nunhandled system error", "nccl-p2p"))
    (fleet.parent / "nodes/gpu4.sh").write_text("echo 'No module named envsolve' >&2; exit 1")
    assert verify(fleet, nodes="gpu[1-4,9-10]", code=4).splitlines() == [
        "1 of 6 nodes pass",
        "fail:",
        "  gpu2: driver 535.54.03 differs from its class (580.95.05)",
        "  gpu3: nccl: nccl-p2p; GPU 2 has 7 uncorrected ECC errors",
        "no report:",
        "  gpu10: no plan fits this node; see envsolve fleet plan",
        "  gpu4: exit code 1: No module named envsolve",
        "  gpu9: it is down",
    ]
    # Only those that did not pass are run again.
    (fleet.parent / "asked").unlink()
    reporting(fleet, "gpu3", GOOD)
    reporting(fleet, "gpu4", GOOD)
    found: dict[str, Any] = json.loads(verify(fleet, "--format", "json", code=4))
    assert found["schema"] == "envsolve.fleet-checks/1"
    assert {node: (one["status"], one["earlier"]) for node, one in found["nodes"].items()} == {
        "gpu1": ("pass", True),
        "gpu2": ("fail", False),
        "gpu3": ("pass", False),
        "gpu4": ("pass", False),
    }


def test_what_envsolve_says_in_place_of_a_report_is_the_reason(fleet: Path) -> None:
    error = {"schema": "envsolve.error/1", "kind": "usage", "message": "no environment is there", "exit_code": 2}
    (fleet.parent / "nodes/gpu1.json").write_text(json.dumps({**error, "hint": None}, indent=2))
    (fleet.parent / "nodes/gpu1.sh").write_text(f"cat {fleet.parent}/nodes/gpu1.json; exit 2")
    assert verify(fleet, code=4).splitlines() == ["3 of 4 nodes pass", "no report:", "  gpu1: no environment is there"]


def test_nodes_without_a_gpu_have_nothing_to_compile_for(fleet: Path) -> None:
    inventory = json.loads((fleet / "nodes.json").read_text())
    inventory["classes"][0]["machine"] |= {"gpus": [], "accelerators": [], "driver": None}
    (fleet / "nodes.json").write_text(json.dumps(inventory))
    told = verify(fleet, "--compile-only", code=4)
    assert "  gpu[1-4]: the class of this node has no GPU to compile for" in told
    assert not (fleet.parent / "asked").exists()


def test_a_report_that_proves_nothing_does_not_pass(fleet: Path) -> None:
    reporting(fleet, "gpu1", Check("driver", None, "skip", 0.0, "no GPU"))
    (fleet.parent / "nodes/gpu2.sh").write_text("echo nothing here")
    told = verify(fleet, nodes="gpu[1-2]", code=4)
    assert "gpu1: nothing could be checked" in told and "gpu2: it printed no report" in told


def test_compiling_names_the_gpus_of_the_class_and_is_kept_apart(fleet: Path) -> None:
    assert verify(fleet, "--compile-only", nodes="gpu1") == "1 of 1 nodes pass (compiled only)\n"
    assert "--compile-only --gpu 9.0" in (fleet.parent / "asked").read_text()
    assert verify(fleet, nodes="gpu1") == "1 of 1 nodes pass\n"


def test_what_is_not_installed_is_refused_before_anything_runs(fleet: Path) -> None:
    (fleet / "envs/cu130-abc/bin/python").unlink()
    verify(fleet, code=2)
    assert not (fleet.parent / "asked").exists()


def test_another_command_in_the_fleet_is_not_disturbed(fleet: Path) -> None:
    from envsolve.fleet.jobs import only_one

    with only_one(fleet):
        verify(fleet, code=2)
    assert not (fleet.parent / "asked").exists()
    assert verify(fleet) == "4 of 4 nodes pass\n"


def test_the_page_names_the_nodes_to_repair_first() -> None:
    nodes = {"a": NodeResult("pass", "cu126"), "b": NodeResult("fail", "cu126", ("<script>: it burns",))}
    text = page(FleetReport(made="2026-11-29T10:00:00+00:00", nodes=nodes))
    assert text.index("<td>b</td>") < text.index("<td>a</td>")
    assert "1 of 2 nodes pass" in text and "<script>" not in text and "&lt;script&gt;: it burns" in text

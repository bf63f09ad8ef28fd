"""The jobs that are submitted, and what is made of results; tests/fleet/test_cluster.py runs a real Slurm."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from envsolve.errors import EnvsolveError, UsageError
from envsolve.fleet.engines import Options, slurm
from envsolve.fleet.probe import probe_nodes
from tests.fleet.engines import fake_slurm
from tests.fleet.profiles import profile

SINFO = """\
gpu01|idle|h100,ib|gpu:h100:8(S:0-1)|main*|none
gpu01|idle|h100,ib|gpu:h100:8(S:0-1)|long|none
gpu02|mixed|h100,ib|gpu:h100:8(S:0-1)|main*|none
gpu03|down*|h100,ib|gpu:h100:8|main*|Not responding
gpu04|drained|h100|(null)|main*|bad | DIMM
refused05|idle|(null)|(null)|main*|none
pending06|allocated|(null)|(null)|main*|none
empty07|idle|(null)|(null)|main*|none
odd08|idle|(null)|(null)|main*|none
"""
PYTHON = """#!/bin/sh
cat > /dev/null
case $ENVSOLVE_NODE in
  empty*) echo "python3: bad magic" >&2; exit 3;;
  odd*) echo "motd: hello";;
  *) cat PROFILES/$ENVSOLVE_NODE;;
esac
"""


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for node in ("gpu01", "gpu02"):
        (tmp_path / node).write_bytes(profile(node, "H100", count=8))
    commands = fake_slurm.make(tmp_path / "slurm", SINFO, PYTHON.replace("PROFILES", str(tmp_path)))
    monkeypatch.setenv("PATH", f"{commands}:{os.environ['PATH']}")
    monkeypatch.setattr(slurm, "_POLL_SECONDS", 0.05)
    return tmp_path / "slurm/state"


def test_a_cancelled_job_that_still_writes_does_not_mix_with_the_next(tmp_path: Path) -> None:
    """Ctrl-C, then the same command: what the first job starts may outlive its cancelling by seconds."""
    os.mkfifo(tmp_path / "gate")
    (tmp_path / ".stdin").touch()
    scripts = {"1": "echo old; read line < gate; echo old, and longer than the other", "2": "echo new"}
    running = {}
    for job, command in scripts.items():
        values = {"node": "v1", "directory": shlex.quote(str(tmp_path)), "limit": 60, "command": shlex.quote(command)}
        environ = {**os.environ, "SLURM_JOB_ID": job}
        running[job] = subprocess.Popen(["sh", "-c", slurm._SCRIPT.format(**values)], env=environ)
        if job == "1":
            while not any(path.read_text() for path in tmp_path.glob(".v1.*out")):
                assert running["1"].poll() is None
            running["1"].kill()  # the script alone, as Slurm does it at first
            running["1"].wait()
    assert running["2"].wait() == 0
    (tmp_path / "gate").write_text("go on\n")
    while any("longer" not in path.read_text() for path in tmp_path.glob(".v1.1.out")):
        pass
    assert (tmp_path / "v1.json").read_text() == "new\n"


def test_every_node_is_a_class_or_a_reason(state: Path, tmp_path: Path) -> None:
    inventory = probe_nodes(tmp_path / "fleet", slurm.Slurm(Options(wait=1)))
    assert [one.nodes for one in inventory.classes] == [("gpu01", "gpu02")]
    assert inventory.unreachable == {
        "empty07": "exit code 3: python3: bad magic",
        "gpu03": "Slurm reports down*: Not responding",
        "gpu04": "Slurm reports drained: bad | DIMM",
        "odd08": inventory.unreachable["odd08"],
        "pending06": "no result after 1 s: its job is pending (Resources)",
        "refused05": "sbatch: sbatch: error: Requested node configuration is not available",
    }
    assert "not a profile" in inventory.unreachable["odd08"]
    labels = inventory.labels["gpu01"]
    assert (labels.features, labels.gres, labels.partitions) == (("h100", "ib"), ("gpu:h100:8",), ("main", "long"))
    submitted = (state / "sbatch.log").read_text()
    assert "--nodelist=gpu01" in submitted and "--gres=gpu:h100:1" in submitted
    assert "gpu03" not in submitted and "gpu04" not in submitted
    assert not list(state.glob("job.*")), "the job that waits is cancelled"


def test_verification_asks_for_all_gpus() -> None:
    assert list(slurm._gres(("gpu:h100:8", "gpu:2", "gpu"), whole=True)) == ["gpu:h100:8", "gpu:2", "gpu:1"]
    assert list(slurm._gres(("gpu:h100:8", "gpu:2", "gpu"), whole=False)) == ["gpu:h100:1", "gpu:1", "gpu:1"]


def test_jobs_of_a_killed_command_are_found_and_not_submitted_twice(state: Path, tmp_path: Path) -> None:
    (state / "sinfo.txt").write_text(SINFO.splitlines()[0] + "\n")
    fleet = tmp_path / "fleet"
    name = slurm_name(fleet)
    (state / "job.7").write_text(f"7|{name}-gpu01|RUNNING|None\n8|{name}x-gpu01|RUNNING|None\n")
    (fleet / ".probe").mkdir(parents=True)
    (fleet / ".probe/gpu01.json").write_bytes(b"")  # it has not finished

    def finished() -> None:
        (fleet / ".probe/gpu01.json").write_bytes(profile("gpu01", "H100"))

    class Finishing(slurm.Slurm):
        def _waited(self, *arguments: object) -> None:
            finished()
            super()._waited(*arguments)  # type: ignore[arg-type]

    inventory = probe_nodes(fleet, Finishing(Options(wait=20)))
    assert [one.nodes for one in inventory.classes] == [("gpu01",)]
    assert not (state / "sbatch.log").exists()
    assert not (state / "scancel.log").exists(), "it has a result"


def slurm_name(fleet: Path) -> str:
    import hashlib

    return f"envsolve-probe-{hashlib.sha256(str(fleet.absolute()).encode()).hexdigest()[:8]}"


def test_nodes_that_slurm_does_not_know_are_listed(state: Path) -> None:
    known = slurm.Slurm(Options(nodes="gpu01,nope[1-2]")).nodes()
    assert known["nope2"].dead == "Slurm does not know this node"


def test_no_slurm_and_no_answer_say_what_to_do(state: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (state / "sinfo.txt").unlink()
    with pytest.raises(EnvsolveError, match="sinfo: cat: "):
        slurm.Slurm(Options()).nodes()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="not installed here"):
        slurm.Slurm(Options()).nodes()

"""A real Slurm on this computer: ``pytest -m cluster``, as root, with slurm-wlm and munge installed."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.fleet import cluster

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, str]]:
    if missing := cluster.missing():
        pytest.skip(f"not installed: {', '.join(missing)}")
    with cluster.cluster(tmp_path_factory.mktemp("slurm")) as environ:
        yield environ


@pytest.fixture(autouse=True)
def commands(slurm: Mapping[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in slurm.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)


def words(*given: str) -> list[str]:
    return [sys.executable, "-m", "envsolve", *given]


def run(*given: str, code: int = 0) -> str:
    done = subprocess.run(words(*given), capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    return done.stdout


def probe(*options: str) -> list[str]:
    return ["fleet", "probe", "--slurm", "--python", os.environ["NODE_PYTHON"], *options]


def asked(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def submitted() -> int:
    log = Path(os.environ["SLURM_CONF"]).with_name("slurmctld.log").read_text()
    return log.count("_slurm_rpc_submit_batch_job:")


def directory() -> Path:
    return Path(os.environ["SLURM_CONF"]).parent


def test_the_nodes_are_probed_with_their_labels() -> None:
    found = json.loads(run(*probe("--format", "json")))
    classes = {one["name"]: one["nodes"] for one in found["classes"]}
    assert classes == {"h100-580.95.05": ["h1", "h2"], "v100-535.104.05": ["v1"]}
    assert found["labels"]["v1"] == {"features": ["v100", "ib"], "gres": ["gpu:v100:1"], "partitions": ["main"]}
    assert asked("squeue", "-h") == ""


def test_a_node_that_is_down_is_listed_and_does_not_hold_up_the_rest() -> None:
    asked("scontrol", "update", "NodeName=h2", "State=DOWN", "Reason=power supply")
    try:
        assert "  h2: Slurm reports down: power supply" in run(*probe())
    finally:
        asked("scontrol", "update", "NodeName=h2", "State=RESUME")


def slow_node(node: str) -> Path:
    profile = directory() / "profiles" / f"{node}.json"
    profile.rename(profile.with_suffix(".away"))
    os.mkfifo(profile)
    return profile


def healed(profile: Path) -> None:
    profile.unlink()
    profile.with_suffix(".away").rename(profile)


def wait_for(text: str) -> None:
    deadline = time.monotonic() + 30
    while asked("squeue", "-h", "-t", "running", "-o", "%j").count(text) == 0:
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.parametrize("moment", [0.0, 0.5, 2.0])
def test_after_a_kill_the_same_command_goes_on_without_another_job(moment: float) -> None:
    before, profile = submitted(), slow_node("h1")
    try:
        child = subprocess.Popen(words(*probe()), stderr=subprocess.DEVNULL)
        wait_for("-h1")
        time.sleep(moment)
        child.send_signal(signal.SIGKILL)
        child.wait()
        again = subprocess.Popen(words(*probe()), stdout=subprocess.PIPE, text=True)
        time.sleep(2)
        content = profile.with_suffix(".away").read_bytes()
        with profile.open("wb") as pipe:
            pipe.write(content)
        out = again.communicate(timeout=60)[0]
        assert out.startswith("3 of 3 nodes answered"), out
        assert submitted() - before == 3
    finally:
        healed(profile)


def test_ctrl_c_cancels_the_jobs() -> None:
    profile = slow_node("h1")
    try:
        child = subprocess.Popen(words(*probe()), stderr=subprocess.PIPE)
        wait_for("-h1")
        child.send_signal(signal.SIGINT)
        child.communicate(timeout=30)
        assert child.returncode == 130
        deadline = time.monotonic() + 20
        while asked("squeue", "-h", "-t", "pending,running"):
            assert time.monotonic() < deadline
            time.sleep(0.2)
    finally:
        healed(profile)


def test_nodes_are_reached_over_ssh(tmp_path: Path) -> None:
    if shutil.which("sshd", path="/usr/sbin:/sbin") is None:
        pytest.skip("no sshd here")
    (tmp_path / "ssh").mkdir()
    with cluster.ssh_nodes(tmp_path / "ssh", ["127.0.0.2", "127.0.0.3", "127.0.0.4"]) as options:
        text = run("fleet", "probe", "--ssh", "127.0.0.[2-5]", "--ssh-options", options, "--format", "json")
    found = json.loads(text)
    assert [one["nodes"] for one in found["classes"]] == [["127.0.0.2", "127.0.0.3", "127.0.0.4"]]
    assert "Connection refused" in found["unreachable"]["127.0.0.5"]


@pytest.mark.network
def test_triton_is_planned_installed_verified_and_run_on_every_node(tmp_path: Path) -> None:
    run(*probe())
    text = run("fleet", "plan", "triton")
    assert text.startswith("1 plan for 3 of 3 nodes")
    run("fleet", "install")
    assert run("fleet", "verify", "--slurm", "--compile-only") == "3 of 3 nodes pass (compiled only)\n"
    assert "3 of them in an earlier run" in run("fleet", "verify", "--slurm", "--compile-only")
    checks = [json.loads(path.read_text())["checks"] for path in (tmp_path / "fleet/reports").rglob("*.json")]
    assert {check["gpu"] for one in checks for check in one if check["name"] == "triton-compile"} >= {"7.0", "9.0"}
    # This computer has no GPU of the fleet, or none at all, and is refused.
    done = subprocess.run(["srun", "-w", "v1", *words("run", "--", "python", "-V")], capture_output=True, text=True)
    assert done.returncode == 3 and "no plan of the fleet fits this node" in done.stderr


HOW_TO = Path(__file__).parents[2] / "docs/howto/cluster.md"
# On the simulated nodes nothing can run on a GPU.
ENDS = {"envsolve fleet verify --slurm": 4}


@pytest.mark.network
def test_the_how_to_works_word_for_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = re.findall(r"(?:^ {8}.*\n)+", HOW_TO.read_text(), re.MULTILINE)
    blocks = [textwrap.dedent(block).strip() for block in found]
    assert len(blocks) == 7
    (tmp_path / "train.py").touch()
    # Jobs of Slurm get the PATH of whoever submits them.
    search = f"{directory()}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    monkeypatch.setenv("PATH", search)
    told = {}
    for block in blocks:
        done = subprocess.run(["sh", "-e", "-c", block], capture_output=True, text=True)
        assert done.returncode == ENDS.get(block, 0), f"{block}\n{done.stdout}{done.stderr}"
        told[block] = done.stdout
    assert told["envsolve fleet verify --slurm --compile-only"] == "3 of 3 nodes pass (compiled only)\n"
    assert told["envsolve fleet verify --slurm"].startswith("0 of 3 nodes pass\nfail:\n")
    deadline = time.monotonic() + 60
    while not (files := list(tmp_path.glob("slurm-*.out"))) or "fits this node" not in files[0].read_text():
        assert time.monotonic() < deadline
        time.sleep(0.5)

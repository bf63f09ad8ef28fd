"""Probing through ClusterShell's local worker and from files: every node is in a class or has a reason."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from envsolve.cli.main import run as command_line
from envsolve.errors import UsageError
from envsolve.fleet.jobs import only_one
from envsolve.fleet.kubernetes import probe_manifest
from envsolve.fleet.probe import probe_files, read_inventory
from tests.fleet.profiles import profile

pytest.importorskip("ClusterShell")


@pytest.fixture
def nodes(tmp_path: Path) -> Path:
    """A directory of scripts, one for each node, that the nodes' Python runs."""
    nodes = tmp_path / "nodes"
    nodes.mkdir()
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec sh {nodes}/"$ENVSOLVE_NODE".sh\n')
    python.chmod(0o755)
    return nodes


def printing(nodes: Path, node: str, gpu: str | None = "H100", driver: str = "580.95.05") -> str:
    (nodes / f"{node}.json").write_bytes(profile(node, gpu, driver))
    return f"cat {nodes}/{node}.json\n"


def command(nodes: Path, names: str, *options: str) -> list[str]:
    reach = ["--ssh", names, "--worker", "exec", "--python", str(nodes.parent / "python")]
    return [
        sys.executable,
        "-m",
        "envsolve",
        "fleet",
        "probe",
        "--fleet",
        str(nodes.parent / "fleet"),
        *reach,
        *options,
    ]


def run(words: list[str], code: int = 0) -> str:
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    return done.stdout


KINDS = {
    "good": "cat {profile}",
    "welcome": "echo Welcome; cat {profile}",
    "dead": "echo 'ssh: connect to host: No route to host' >&2; exit 255",
    "slow": "sleep 60",
    "absent": "echo 'sh: python3: not found' >&2; exit 127",
    "killed": "kill -9 $$",
    "silent": "exit 0",
    "failing": "echo 'Traceback' >&2; echo 'SyntaxError: invalid syntax' >&2; exit 1",
    "cut": "head -c 100 {profile}",
    "binary": "head -c 1000 /dev/urandom",
    "other": 'echo \'{{"schema": "other/1"}}\'',
    "wrong": 'echo \'{{"schema": "envsolve.machine/2", "driver": {{"version": "new"}}}}\'',
    "full": "echo 'cannot write: No space left on device' >&2; exit 1",
}
GOOD = {"good", "welcome"}


def test_every_kind_of_fault_is_named_and_no_node_is_lost(nodes: Path) -> None:
    for kind, text in KINDS.items():
        printing(nodes, f"{kind}1")
        (nodes / f"{kind}1.sh").write_text(text.format(profile=nodes / f"{kind}1.json"))
    found = json.loads(
        run(command(nodes, ",".join(f"{kind}1" for kind in KINDS), "--time-limit", "6", "--format", "json"))
    )
    answered = {node for one in found["classes"] for node in one["nodes"]}
    assert answered == {f"{kind}1" for kind in GOOD}
    assert found["unreachable"].keys() == {f"{kind}1" for kind in KINDS.keys() - GOOD}
    assert found["unreachable"]["dead1"] == "ssh failed: ssh: connect to host: No route to host"
    assert found["unreachable"]["slow1"] == "it took longer than 6 s"
    assert "SyntaxError" in found["unreachable"]["failing1"]
    assert "No space left" in found["unreachable"]["full1"]
    kept = {path.name for path in (nodes.parent / "fleet/machines").iterdir()}
    assert kept == {f"{node}.json" for node in answered}
    # What a login prints is not in the machine file.
    assert probe_files(nodes.parent / "again", [nodes.parent / "fleet/machines"]).class_of.keys() == answered


def test_no_answer_at_all_is_exit_code_4(nodes: Path) -> None:
    (nodes / "a.sh").write_text("exit 1")
    assert "0 of 1 nodes answered" in run(command(nodes, "a"), code=4)


def test_a_killed_probe_goes_on_where_it_was(nodes: Path) -> None:
    count = nodes / "count"
    for node in ("a1", "a2"):
        (nodes / f"{node}.sh").write_text(f"echo {node} >> {count}; {printing(nodes, node)}")
    (nodes / "b1.sh").write_text(f"touch {nodes}/started; sleep 60")
    running = subprocess.Popen(command(nodes, "a[1-2],b1", "--fanout", "3"), stderr=subprocess.DEVNULL)
    work = nodes.parent / "fleet/.probe"
    while len(list(work.glob("*.json"))) < 2 or not (nodes / "started").exists():
        time.sleep(0.05)
    running.send_signal(signal.SIGKILL)
    running.wait()
    (nodes / "b1.sh").write_text(printing(nodes, "b1"))
    assert run(command(nodes, "a[1-2],b1")).startswith("3 of 3 nodes answered")
    assert sorted(count.read_text().split()) == ["a1", "a2"]
    assert not work.exists()


def test_what_an_interrupted_probe_found_long_ago_is_not_used(nodes: Path) -> None:
    (nodes / "a1.sh").write_text(printing(nodes, "a1", driver="580.95.05"))
    old = nodes.parent / "fleet/.probe/a1.json"
    old.parent.mkdir(parents=True)
    old.write_bytes(profile("a1", "H100", "535.104.05"))
    os.utime(old, (time.time() - 4000, time.time() - 4000))
    assert "driver 580.95.05" in run(command(nodes, "a1"))


def test_nothing_outlives_ctrl_c_and_the_time_limit(nodes: Path) -> None:
    (nodes / "a.sh").write_text(f"echo $$ > {nodes}/pid; exec sleep 601")
    running = subprocess.Popen(command(nodes, "a", "--time-limit", "60"), stderr=subprocess.PIPE, text=True)
    while not (nodes / "pid").exists() or not (nodes / "pid").read_text():
        time.sleep(0.05)
    pid = int((nodes / "pid").read_text())
    running.send_signal(signal.SIGINT)
    assert running.wait(120) == 130
    deadline = time.monotonic() + 120
    while Path(f"/proc/{pid}/cmdline").exists() and "sleep" in Path(f"/proc/{pid}/cmdline").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_files_and_logs_are_read_and_missing_nodes_listed(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/one.json").write_bytes(profile("gpu1", "H100"))
    (tmp_path / "in/copy.json").write_bytes(profile("gpu1", "H100"))
    (tmp_path / "in/pod-x.log").write_bytes(b"hello\n" + profile("gpu2", "V100", "535.104.05") + b"\n")
    (tmp_path / "in/evil.json").write_bytes(profile("../../evil", "V100", "535.104.05"))
    (tmp_path / "in/broken.json").write_bytes(b"{")
    inventory = probe_files(tmp_path / "fleet", [tmp_path / "in"], ["gpu1", "gpu2", "gpu3"])
    assert inventory.class_of.keys() == {"gpu1", "one", "gpu2", "evil"}
    assert inventory.unreachable.keys() == {"broken", "gpu3"}
    assert read_inventory(tmp_path / "fleet") == inventory


def test_a_directory_without_files_and_a_fleet_without_inventory_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no directory with profiles"):
        probe_files(tmp_path / "fleet", [tmp_path / "none"])
    with pytest.raises(UsageError, match=r"nodes\.json"):
        read_inventory(tmp_path / "fleet")


def test_one_command_works_in_a_fleet_at_a_time(tmp_path: Path) -> None:
    with only_one(tmp_path / "fleet"), pytest.raises(UsageError, match="another"), only_one(tmp_path / "fleet"):
        pass


def test_the_manifest_holds_the_probe() -> None:
    yaml = pytest.importorskip("ruamel.yaml").YAML(typ="safe")
    config, daemons = yaml.load_all(probe_manifest())
    assert config["data"]["probe.py"] == probe_text()
    (container,) = daemons["spec"]["template"]["spec"]["containers"]
    assert container["env"][0]["valueFrom"]["fieldRef"]["fieldPath"] == "spec.nodeName"


def test_a_job_has_one_pod_on_each_node_and_ends() -> None:
    yaml = pytest.importorskip("ruamel.yaml").YAML(typ="safe")
    _, job = yaml.load_all(probe_manifest(nodes=7))
    _, daemons = yaml.load_all(probe_manifest())
    assert (job["kind"], job["spec"]["completions"], job["spec"]["parallelism"]) == ("Job", 7, 7)
    pod, other = (one["spec"]["template"]["spec"] for one in (job, daemons))
    (apart,) = pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert apart["labelSelector"]["matchLabels"] == job["spec"]["template"]["metadata"]["labels"]
    (container,), (same,) = pod["containers"], other["containers"]
    assert "sleep" not in container.pop("command")[-1]
    same.pop("command")
    assert container == same


def test_a_job_has_a_number_of_pods(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for words in (
        ["--job", "3", "--slurm"],
        ["--kubernetes", "-", "--job", "0"],
        ["--kubernetes", "-", "--job", "99999"],
    ):
        with pytest.raises(SystemExit) as left:
            command_line(["fleet", "probe", "--fleet", str(tmp_path), *words])
        assert left.value.code == 2
        assert "--job" in capsys.readouterr().err


@pytest.mark.parametrize("nodes", [None, 7])
def test_the_manifest_is_valid(nodes: int | None) -> None:
    validate = pytest.importorskip("kubernetes_validate")
    documents = list(pytest.importorskip("ruamel.yaml").YAML(typ="safe").load_all(probe_manifest(nodes=nodes)))
    for document in documents:
        validate.validate(document, "1.37", strict=True)
    documents[-1]["spec"]["template"]["spec"]["container"] = []
    with pytest.raises(validate.ValidationError):
        validate.validate(documents[-1], "1.37", strict=True)


def probe_text() -> str:
    from envsolve.fleet.probe import SCRIPT

    return SCRIPT.read_text()

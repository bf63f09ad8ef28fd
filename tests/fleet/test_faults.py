"""Forty-five kinds of nodes, most of them broken: each is named, none is lost, and none holds up the rest."""

from __future__ import annotations

import json
import random
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.fleet.profiles import profile

pytest.importorskip("ClusterShell")

PLAIN = profile("x", "H100").decode()


def changed(**fields: Any) -> str:
    return json.dumps({**json.loads(PLAIN), **fields})


def gpu(**fields: Any) -> str:
    return changed(gpus=[{**json.loads(PLAIN)["gpus"][0], **fields}])


SSH = "echo 'ssh: {}' >&2; exit 255"
H100 = "h100-580.95.05"
ENDLESS = "more than 4 MiB"
# What a node does ({} is a file with its profile), its profile, and its class or the reason.
KINDS: dict[str, tuple[str, str, str]] = {
    "good": ("cat {}", PLAIN, H100),
    "banner": ("echo Welcome; cat {}; echo; echo Bye", PLAIN, H100),
    "latin": ("printf 'Willkommen, M\\374ller\\n'; cat {}", PLAIN, H100),
    "noisy": ("echo 'perl: warning: locale' >&2; cat {}", PLAIN, H100),
    "late": ("sleep 1; cat {}", PLAIN, H100),
    "code": ("cat {}; exit 3", PLAIN, H100),
    "noroute": (SSH.format("No route to host"), "", "No route to host"),
    "refused": (SSH.format("Connection refused"), "", "Connection refused"),
    "timedout": (SSH.format("Connection timed out"), "", "Connection timed out"),
    "key": (SSH.format("Host key verification failed."), "", "Host key verification failed"),
    "denied": (SSH.format("Permission denied (publickey)."), "", "Permission denied"),
    "reset": ("head -c 200 {}; " + SSH.format("Connection reset by peer"), PLAIN, "Connection reset"),
    "unnamed": (SSH.format("Could not resolve hostname"), "", "Could not resolve"),
    "hangs": ("sleep 100", "", "longer than"),
    "deaf": ("trap '' TERM; sleep 100", "", "longer than"),
    "stalls": ("head -c 200 {}; sleep 100", PLAIN, "longer than"),
    "drips": ("while :; do echo .; sleep 0.2; done", "", "longer than"),
    "nopython": ("echo 'sh: python3: not found' >&2; exit 127", "", "python3: not found"),
    "oldpython": ("echo 'SyntaxError: invalid syntax' >&2; exit 1", "", "SyntaxError"),
    "noexec": ("echo 'python3: Permission denied' >&2; exit 126", "", "Permission denied"),
    "segfault": ("kill -SEGV $$", "", "exit code"),
    "oom": ("kill -KILL $$", "", "killed"),
    "silent": ("exit 0", "", "printed nothing"),
    "failing": ("exit 1", "", "exit code 1"),
    "blank": ("echo; echo '  '", "", "exit code 0"),
    "bannered": ("echo This node is in maintenance", "", "not a profile"),
    "cut": ("head -c 200 {}", PLAIN, "not a profile"),
    "array": ("echo '[1]'", "", "not a profile"),
    "schema": ("cat {}", changed(schema="other/1"), "schema is"),
    "types": ("cat {}", changed(driver={"version": 580}), "driver"),
    "version": ("cat {}", changed(driver={"version": "new"}), "driver"),
    "binary": ("head -c 3000 /dev/urandom", "", "not a profile"),
    "huge": ("head -c 300000 /dev/zero | tr '\\0' x", "", "not a profile"),
    "long": ("cat {}", gpu(name="x" * 5000), "characters"),
    "endless": ("exec cat /dev/zero", "", ENDLESS),
    "lines": ("exec yes", "", ENDLESS),
    "shouts": ("head -c 9000000 /dev/zero >&2; cat {}", PLAIN, H100),
    "full": ("echo 'write error: No space left on device' >&2; exit 1", "", "No space left"),
    "readonly": ("echo 'Read-only file system' >&2; exit 1", "", "Read-only"),
    "olddriver": ("cat {}", changed(driver={"version": "535.54.03", "cuda": None}), "h100-535.54.03"),
    "nodriver": ("cat {}", changed(driver=None, gpus=None), "unknown"),
    "nogpu": ("cat {}", changed(driver=None, gpus=[]), "cpu"),
    "ecc": ("cat {}", changed(faults=["GPU 0 has 7 uncorrected ECC errors"]), H100),
    "lost": ("cat {}", changed(faults=["GPU 1 is lost"]), H100),
    "escape": ("cat {}", gpu(name="H100 \x1b[2J"), "h100-580.95.05-2"),
}


def write(directory: Path) -> Path:
    (directory / "kinds").mkdir()
    for kind, (does, text, _) in KINDS.items():
        (directory / "kinds" / f"{kind}.json").write_text(text)
        (directory / "kinds" / f"{kind}.sh").write_text(does.format(directory / "kinds" / f"{kind}.json"))
    python = directory / "python"
    # Node good17 is of the kind good.
    python.write_text(f'#!/bin/sh\nexec sh {directory}/kinds/"${{ENVSOLVE_NODE%%[0-9]*}}".sh\n')
    python.chmod(0o755)
    return python


def command(directory: Path, nodes: str, *options: str) -> list[str]:
    reach = ["--ssh", nodes, "--worker", "exec", "--python", str(directory / "python")]
    return [sys.executable, "-m", "envsolve", "fleet", "probe", "--fleet", str(directory / "fleet"), *reach, *options]


def probed(directory: Path, kinds: Iterable[str], each: int, limit: int) -> tuple[dict[str, str], dict[str, Any]]:
    """The class or the reason of every node of some kinds, and all that was found."""
    directory.mkdir()
    write(directory)
    nodes = ",".join(f"{kind}[1-{each}]" for kind in kinds)
    options = ["--time-limit", str(limit), "--fanout", "64", "--format", "json"]
    done = subprocess.run(command(directory, nodes, *options), capture_output=True, text=True)
    found = json.loads(done.stdout)
    assert done.returncode == (0 if found["classes"] else 4), done.stderr
    classes = {node: one["name"] for one in found["classes"] for node in one["nodes"]}
    assert not classes.keys() & found["unreachable"].keys()
    return {**classes, **found["unreachable"]}, found


# The nodes are processes of this computer, which may be busy: those that answer get all the time that they need, and
# those that never answer get little.
@pytest.mark.parametrize("each", [1, pytest.param(24, marks=pytest.mark.slow)])
def test_every_node_is_in_a_class_or_has_its_reason(tmp_path: Path, each: int) -> None:
    hanging = [kind for kind, (_, _, expected) in KINDS.items() if expected == "longer than"]
    answering = [kind for kind in KINDS if kind not in hanging]
    told, found = probed(tmp_path / "answering", answering, each, 3600)
    late, _ = probed(tmp_path / "hanging", hanging, each, 2)
    assert len(told) + len(late) == each * len(KINDS)
    wrong = []
    for kind, (_, _, expected) in KINDS.items():
        for node in (f"{kind}{number}" for number in range(1, each + 1)):
            said = {**told, **late}.get(node, "it is lost")
            if not re.search(expected, said):
                wrong.append(f"{node}: {said}, not {expected}")
    assert wrong == []
    assert len(found["faults"]) == 2 * each
    memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024
    print(f"{each * len(KINDS)} nodes: {memory} MiB")


def test_a_node_that_hangs_does_not_hold_up_the_rest(tmp_path: Path) -> None:
    """More nodes hang than connections are open at a time; the others are reached all the same."""
    write(tmp_path)
    reach = command(tmp_path, "hangs[1-8],good[1-4]", "--time-limit", "2", "--fanout", "4", "--format", "json")
    found = json.loads(subprocess.run(reach, capture_output=True, text=True).stdout)
    answered = [node for one in found["classes"] for node in one["nodes"]]
    # On a busy computer a good one may be late, too; none is lost.
    assert sorted([*answered, *found["unreachable"]]) == sorted(
        [*(f"hangs{n}" for n in range(1, 9)), *(f"good{n}" for n in range(1, 5))]
    )
    assert all("longer than" in reason for reason in found["unreachable"].values())


@pytest.mark.parametrize("moments", [1, pytest.param(50, marks=pytest.mark.slow)])
def test_a_probe_that_is_killed_at_any_moment_is_finished_by_the_same_command(tmp_path: Path, moments: int) -> None:
    write(tmp_path)
    (tmp_path / "kinds/good.sh").write_text(f"sleep 0.3; cat {tmp_path}/kinds/good.json")
    draw = random.Random(17)
    for _ in range(moments):
        running = subprocess.Popen(command(tmp_path, "good[1-20]", "--fanout", "8"), stderr=subprocess.DEVNULL)
        time.sleep(draw.uniform(0, 2.5))
        running.send_signal(signal.SIGKILL)
        running.wait()
        done = subprocess.run(command(tmp_path, "good[1-20]"), capture_output=True, text=True)
        assert done.stdout.startswith("20 of 20 nodes answered; 1 class"), done.stdout + done.stderr
        assert sorted(path.name for path in (tmp_path / "fleet").iterdir()) == [".lock", "machines", "nodes.json"]

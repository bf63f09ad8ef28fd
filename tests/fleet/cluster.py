"""A Slurm cluster on this computer: three nodes whose features name GPUs, and whose Python prints recorded profiles.

    python -m tests.fleet.cluster start DIR    # then: . DIR/env.sh
    python -m tests.fleet.cluster stop DIR

It takes Debian's packages slurm-wlm and munge, and the rights of root (munged and slurmd expect them). Nothing outside
of DIR is changed.
"""

from __future__ import annotations

import getpass
import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.fleet.profiles import profile
from tests.indexserver import free_port

PROGRAMS = ("slurmctld", "slurmd", "munged", "srun", "sbatch")
#: Node, GPU, driver.
NODES = (("v1", "V100", "535.104.05"), ("h1", "H100", "580.95.05"), ("h2", "H100", "580.95.05"))

_CONF = """\
ClusterName=test
SlurmctldHost={host}
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={directory}/munge.sock
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/spool-%n
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdPidFile={directory}/slurmd-%n.pid
SlurmctldLogFile={directory}/slurmctld.log
SlurmdLogFile={directory}/slurmd-%n.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=1
ReturnToService=2
MinJobAge=2
GresTypes=gpu
{nodes}
PartitionName=main Nodes=ALL Default=YES State=UP MaxTime=INFINITE
"""
_NODE = "NodeName={name} NodeHostname={host} Port={port} CPUs=1 Gres=gpu:{gpu}:1 Feature={gpu},ib"
_PYTHON = """\
#!/bin/sh
# The Python of the simulated nodes: prints what the probe printed on a node with such GPUs.
[ "$*" = - ] || exec {python} "$@"
cat > /dev/null
exec cat "{directory}/profiles/$ENVSOLVE_NODE.json"
"""


def missing() -> list[str]:
    """The programs that are not installed."""
    return [name for name in PROGRAMS if shutil.which(name, path=_search()) is None]


def _search() -> str:
    return f"{os.environ['PATH']}:/usr/sbin:/sbin"


def start(directory: Path, nodes: tuple[tuple[str, str, str], ...] = NODES) -> Mapping[str, str]:
    """Start the daemons; returns the variables that lead Slurm's commands there."""
    directory = directory.resolve()
    for name in ("state", "profiles"):
        (directory / name).mkdir(parents=True, exist_ok=True)
    directory.chmod(0o755)
    host = socket.gethostname().split(".")[0]
    lines = [_NODE.format(name=name, host=host, port=free_port(), gpu=gpu.lower()) for name, gpu, _ in nodes]
    values = {"host": host, "port": free_port(), "user": getpass.getuser(), "directory": directory}
    (directory / "slurm.conf").write_text(_CONF.format(nodes="\n".join(lines), **values))
    gres = [f"NodeName={name} Name=gpu Type={gpu.lower()} File=/dev/null" for name, gpu, _ in nodes]
    (directory / "gres.conf").write_text("\n".join(gres) + "\n")
    (directory / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\nIgnoreSystemd=yes\nCgroupAutomount=no\n")
    (directory / "munge.key").write_bytes(os.urandom(128))
    (directory / "munge.key").chmod(0o400)
    pythons = [{"version": platform.python_version(), "path": sys.executable}]
    for name, gpu, driver in nodes:
        (directory / "profiles" / f"{name}.json").write_bytes(profile(name, gpu, driver, pythons=pythons))
    (directory / "python3").write_text(_PYTHON.format(directory=directory, python=sys.executable))
    (directory / "python3").chmod(0o755)
    environ = {"SLURM_CONF": str(directory / "slurm.conf"), "NODE_PYTHON": str(directory / "python3")}
    (directory / "env.sh").write_text("".join(f"export {name}={value}\n" for name, value in environ.items()))
    munge = ["munged", "--force", f"--socket={directory}/munge.sock", f"--key-file={directory}/munge.key"]
    munge += [f"--{name}-file={directory}/munge.{name}" for name in ("pid", "log", "seed")]
    _run(environ, *munge)
    _run(environ, "slurmctld")
    for name, _, _ in nodes:
        (directory / f"spool-{name}").mkdir(exist_ok=True)
        _run(environ, "slurmd", "-N", name)
    _wait(environ, len(nodes))
    return environ


def _run(environ: Mapping[str, str], *command: str) -> None:
    # The daemons leave their parent, and must not hold its streams.
    program = shutil.which(command[0], path=_search())
    assert program is not None, f"{command[0]} is not installed"
    done = subprocess.run(
        [program, *command[1:]],
        env={**os.environ, **environ},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE if command[0] == "munged" else subprocess.DEVNULL,
        timeout=60,
    )
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr!r}"


def _wait(environ: Mapping[str, str], count: int) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        done = subprocess.run(
            ["sinfo", "-N", "-h", "-o", "%T"], env={**os.environ, **environ}, capture_output=True, text=True
        )
        if done.stdout.split() == ["idle"] * count:
            return
        time.sleep(0.2)
    raise AssertionError(f"the nodes are not idle: {done.stdout} {done.stderr}")


def stop(directory: Path) -> None:
    """End the daemons, by the numbers that they left in the directory."""
    files = [*directory.glob("slurmd-*.pid"), directory / "slurmctld.pid", directory / "munge.pid"]
    for file in files:
        try:
            pid = int(file.read_text())
            os.kill(pid, signal.SIGTERM)
        except (OSError, ValueError):
            continue
        for _ in range(100):
            if not Path(f"/proc/{pid}").exists():
                break
            time.sleep(0.1)
        else:
            os.kill(pid, signal.SIGKILL)


@contextmanager
def ssh_nodes(directory: Path, addresses: Sequence[str]) -> Iterator[str]:
    """An sshd on loopback addresses; yields the options of ssh that lead there."""
    directory.chmod(0o700)
    for name in ("host", "user"):
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(directory / name)]
        subprocess.run(words, check=True)
    shutil.copy(directory / "user.pub", directory / "authorized")
    port = free_port()
    settings = {
        "Port": port,
        "HostKey": directory / "host",
        "AuthorizedKeysFile": directory / "authorized",
        "PidFile": directory / "sshd.pid",
        "StrictModes": "no",
        "UsePAM": "no",
        "PermitRootLogin": "yes",
    }
    lines = [f"{name} {value}" for name, value in settings.items()]
    lines += [f"ListenAddress {address}" for address in addresses]
    (directory / "sshd_config").write_text("\n".join(lines) + "\n")
    sshd = shutil.which("sshd", path=_search())
    assert sshd is not None
    # sshd separates its privileges in this directory.
    Path("/run/sshd").mkdir(exist_ok=True)
    running = subprocess.Popen([sshd, "-D", "-f", str(directory / "sshd_config")], stderr=subprocess.DEVNULL)
    try:
        while not (directory / "sshd.pid").exists():
            assert running.poll() is None
            time.sleep(0.05)
        checks = "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
        yield f"-F none -p {port} -i {directory / 'user'} {checks}"
    finally:
        running.terminate()
        running.wait()


@contextmanager
def cluster(directory: Path) -> Iterator[Mapping[str, str]]:
    """A cluster that ends with the block."""
    try:
        yield start(directory)
    finally:
        stop(directory)


if __name__ == "__main__":
    action, place = sys.argv[1:]
    if action == "start":
        start(Path(place))
        print(f". {Path(place).resolve()}/env.sh")
    else:
        stop(Path(place))

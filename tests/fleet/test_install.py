"""Environments of a fleet: made once and whole, and the right one on each node."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from envsolve.errors import ImpossibleError, UsageError
from envsolve.fleet import install
from envsolve.fleet.install import choose, environment_of
from envsolve.fleet.model import Reader
from envsolve.fleet.plan import FleetPlan, Group
from envsolve.machine.model import Machine
from envsolve.planning.lock import Assumptions, assumptions_of
from envsolve.planning.plan import Plan
from envsolve.system.files import dump
from tests.commandline import answered
from tests.fleet.profiles import profile
from tests.install.wheels import make_wheel, plan_of, planned

PROGRAM = [sys.executable, "-m", "envsolve"]


def write_plan(fleet: Path, **groups: Plan) -> FleetPlan:
    """A planned fleet, whose packages are files."""
    (fleet / "locks").mkdir(parents=True, exist_ok=True)
    made = []
    for name, plan in groups.items():
        text = plan.to_pylock()
        digest = hashlib.sha256(text.encode()).hexdigest()[:12]
        assumes = assumptions_of(plan)
        made.append(Group(name, (name,), (f"{name}1",), digest, "ok", assumes, {}))
        made[-1].lock(fleet).write_text(text)
    planned_fleet = FleetPlan(groups=tuple(made))
    (fleet / "plan.json").write_text(dump(planned_fleet))
    return planned_fleet


def demo(tmp_path: Path, version: str = "1.0", padding: int = 0) -> Plan:
    return plan_of(planned(make_wheel(tmp_path, "demo", version, padding=padding)))


def start(fleet: Path, *wrapper: str) -> subprocess.Popen[str]:
    words = [*wrapper, *PROGRAM, "fleet", "install", "--fleet", str(fleet)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run(*words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    becomes_another = words[0] == "run"
    done = subprocess.run([*PROGRAM, *words], capture_output=True, text=True) if becomes_another else answered(*words)
    assert done.returncode == code, done.stderr
    return done


def test_each_plan_gets_an_environment_and_a_module(tmp_path: Path) -> None:
    fleet = tmp_path / "fleet"
    (one,) = write_plan(fleet, cpu=demo(tmp_path)).groups
    assert "cpu: ready" in run("fleet", "install", "--fleet", str(fleet)).stderr
    place = one.environment(fleet)
    assert subprocess.run([place / "bin/demo"], capture_output=True, text=True).stdout == "demo 1.0\n"
    assert "cpu: as planned" in run("fleet", "install", "--fleet", str(fleet)).stderr
    module = (fleet / "modules/envsolve/cpu").read_text()
    assert module.startswith("#%Module") and f'prepend-path PATH "{place}/bin"' in module
    # A new plan makes a new environment, and the old one goes on.
    write_plan(fleet, cpu=demo(tmp_path, "2.0"))
    run("fleet", "install", "--fleet", str(fleet))
    assert len(list((fleet / "envs").glob("cpu-*"))) == 2
    ran = run("run", "--fleet", str(fleet), "--", "demo")
    assert ran.stdout == "demo 2.0\n"
    found = run("run", "--fleet", str(fleet), "--which").stdout.strip()
    assert found != str(place) and Path(found).is_dir()
    assert "no such" in run("run", "--fleet", str(fleet), "--", "no-such-program", code=2).stderr.lower()


MODULES = [Path("/usr/lib/x86_64-linux-gnu/modulecmd.tcl"), Path("/usr/share/modules/libexec/modulecmd.tcl")]


def test_environment_modules_read_the_module(tmp_path: Path) -> None:
    command = next((path for path in MODULES if path.exists()), None)
    if command is None:
        pytest.skip("no environment modules here")
    # What is special to Tcl in the path of an environment is not run.
    fleet = tmp_path / "fleet [exit] $b"
    (one,) = write_plan(fleet, cpu=demo(tmp_path)).groups
    install._write_module(fleet, one)
    (fleet / "modules").rename(tmp_path / "all modules")
    environ = {**os.environ, "MODULEPATH": str(tmp_path / "all modules")}
    done = subprocess.run(
        [str(command), "sh", "load", "envsolve/cpu"], env=environ, capture_output=True, text=True, check=True
    )
    script = f'{done.stdout}\nprintf %s "$VIRTUAL_ENV"'
    shown = subprocess.run(["sh", "-c", script], capture_output=True, text=True).stdout
    assert shown == str(one.environment(fleet)), done.stderr


def test_two_installs_at_once_make_one_environment(tmp_path: Path) -> None:
    fleet = tmp_path / "fleet"
    (one,) = write_plan(fleet, cpu=demo(tmp_path)).groups
    both = [start(fleet), start(fleet)]
    told = "".join(child.communicate()[1] for child in both)
    assert [child.returncode for child in both] == [0, 0], told
    assert told.count("cpu: ready") == 1 and told.count("cpu: as planned") == 1
    assert [path.name for path in (fleet / "envs").iterdir()] == [one.environment(fleet).name]


@pytest.mark.parametrize("moments", [1, pytest.param(50, marks=pytest.mark.slow)])
def test_an_install_that_is_killed_at_any_moment_leaves_nothing_broken(tmp_path: Path, moments: int) -> None:
    fleet = tmp_path / "fleet"
    (one,) = write_plan(fleet, cpu=demo(tmp_path)).groups
    place = one.environment(fleet)
    draw = random.Random(17)

    def works() -> bool:
        return subprocess.run([place / "bin/demo"], capture_output=True, text=True).stdout == "demo 1.0\n"

    for _ in range(moments):
        shutil.rmtree(place, ignore_errors=True)
        child = start(fleet)
        time.sleep(draw.uniform(0, 2.0))
        child.send_signal(signal.SIGKILL)
        child.communicate()
        assert not place.exists() or works()
        run("fleet", "install", "--fleet", str(fleet))
        assert works()
        assert [path.name for path in (fleet / "envs").iterdir()] == [place.name]


def test_a_full_disk_leaves_no_environment(tmp_path: Path) -> None:
    fleet = tmp_path / "fleet"
    write_plan(fleet, cpu=demo(tmp_path, padding=30_000_000))
    child = start(fleet, "sh", "-c", 'ulimit -f 12000; exec "$0" "$@"')
    told = child.communicate()[1]
    if child.returncode == 0:
        pytest.skip("this shell has no limit on file sizes")
    assert "disk is full" in told or "file sizes" in told or "File too large" in told, told
    assert not list((fleet / "envs").glob("cpu-*"))


# Which environment a node gets.


def machine(gpu: str | None, driver: str = "580.95.05") -> Machine:
    return Reader().read(profile("x", gpu, driver), "x").machine


def group(name: str, *gpus: str, driver: str | None = "525.60.13", nodes: tuple[str, ...] = ()) -> Group:
    assumes = Assumptions(os="linux", arch="x86_64", libc="glibc 2.28", driver_required=driver, gpus=gpus)
    return Group(name, (), nodes, "0", "ok", assumes, {})


OLD = group("cu126", "7.0", "8.0", "9.0", nodes=("gpu2",))
NEW = group("cu130", "9.0", "12.0", driver="580.65.06")
CPU = group("cpu", driver=None)
FLEET = FleetPlan(groups=(OLD, NEW, CPU))


@pytest.mark.parametrize(
    ("node", "gpu", "driver", "expected"),
    [
        ("gpu1", "V100", "535.104.05", "cu126"),
        ("gpu1", "H100", "535.104.05", "cu126"),
        ("gpu1", "H100", "580.95.05", "cu130"),
        ("gpu2", "H100", "580.95.05", "cu126"),  # what was planned for it
        ("gpu2", "5090", "580.95.05", "cu130"),  # its GPUs are others now
        (None, None, "", "cpu"),
    ],
)
def test_a_node_gets_the_plan_that_fits(node: str | None, gpu: str | None, driver: str, expected: str) -> None:
    assert choose(FLEET, node, machine(gpu, driver)).name == expected


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (machine("5090", "560.35.03"), "560.35.03"),
        (machine("V100", "510.47.03"), "510.47.03"),
        (replace(machine("H100"), gpus=None), "the plan uses no GPU"),
        (replace(machine("H100"), driver=None), "not known"),
    ],
)
def test_a_node_that_fits_none_is_refused_with_the_reasons(found: Machine, reason: str) -> None:
    with pytest.raises(ImpossibleError, match="no plan of the fleet fits this node") as refused:
        choose(FLEET, "gpu1", found)
    assert reason in refused.value.message and "cu126: " in refused.value.message
    assert refused.value.exit_code == 3


def test_a_plan_without_gpu_code_runs_on_the_gpus_that_it_was_made_for() -> None:
    fleet = FleetPlan(groups=(Group("any-sm90", ("h100",), ("gpu1",), "0" * 12, "ok", Assumptions(), {}),))
    assert choose(fleet, "gpu1", machine("H100")).name == "any-sm90"
    for node, found in (("gpu2", machine("H100")), ("gpu1", replace(machine("H100"), gpus=None))):
        with pytest.raises(ImpossibleError, match="the plan uses no GPU"):
            choose(fleet, node, found)


def test_a_node_without_gpu_does_not_run_what_is_for_gpus() -> None:
    with pytest.raises(ImpossibleError, match="this node has none"):
        choose(FleetPlan(groups=(OLD,)), None, machine(None))


def test_what_is_not_installed_or_has_no_interpreter_here_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not installed"):
        environment_of(tmp_path, OLD)
    (OLD.environment(tmp_path) / "bin").mkdir(parents=True)
    (OLD.environment(tmp_path) / "bin/python").symlink_to("/no/such/python3")
    with pytest.raises(UsageError, match="/no/such/python3, the interpreter of"):
        environment_of(tmp_path, OLD)


def test_a_plan_for_another_architecture_is_made_there(tmp_path: Path) -> None:
    fleet = tmp_path / "fleet"
    made = write_plan(fleet, cpu=demo(tmp_path))
    arm = replace(made.groups[0], name="arm", nodes=("arm1",), assumes=Assumptions(arch="aarch64"))
    (fleet / "plan.json").write_text(dump(replace(made, groups=(arm, *made.groups))))
    told = run("fleet", "install", "--fleet", str(fleet), code=3).stderr
    assert "arm is for aarch64" in told and "arm1" in told
    assert made.groups[0].environment(fleet).is_dir()


@pytest.mark.skipif(shutil.which("mksquashfs") is None, reason="squashfs-tools is not installed")
def test_an_environment_is_packed_once_and_whole(tmp_path: Path) -> None:
    fleet = tmp_path / "fleet"
    (one,) = write_plan(fleet, cpu=demo(tmp_path)).groups
    assert "cpu: image: " in run("fleet", "install", "--squashfs", "--fleet", str(fleet)).stderr
    (image,) = (fleet / "images").iterdir()
    made = image.stat()
    run("fleet", "install", "--squashfs", "--fleet", str(fleet))
    assert image.stat() == made
    subprocess.run(["unsquashfs", "-q", "-n", "-d", tmp_path / "out", image], check=True, stdout=subprocess.DEVNULL)
    place = one.environment(fleet)
    files = {path.relative_to(place) for path in place.rglob("*")}
    assert {path.relative_to(tmp_path / "out") for path in (tmp_path / "out").rglob("*")} == files
    # Mounted where it was made, its programs run.
    place.rename(tmp_path / "away")
    (tmp_path / "out").rename(place)
    assert subprocess.run([place / "bin/demo"], capture_output=True, text=True).stdout == "demo 1.0\n"


LMOD = "/usr/share/lmod/lmod/libexec/lmod"


@pytest.mark.skipif(not os.access(LMOD, os.X_OK), reason="lmod is not installed")
def test_lmod_reads_the_module(tmp_path: Path) -> None:
    # Lmod 8.6 itself splits the path of a Tcl modulefile at spaces, and takes the one in Lua.
    fleet = tmp_path / "fleet [exit] (b) é"
    (one,) = write_plan(fleet, cpu=demo(tmp_path)).groups
    run("fleet", "install", "--fleet", str(fleet))
    environ = {"PATH": os.environ["PATH"], "MODULEPATH": str(fleet / "modules"), "HOME": str(tmp_path)}
    loaded = subprocess.run([LMOD, "sh", "load", "envsolve/cpu"], capture_output=True, text=True, env=environ)
    shown = subprocess.run(
        ["sh", "-c", f'{loaded.stdout}\necho "$VIRTUAL_ENV"; demo'], capture_output=True, text=True, env=environ
    )
    assert shown.stdout == f"{one.environment(fleet)}\ndemo 1.0\n", loaded.stderr + shown.stderr

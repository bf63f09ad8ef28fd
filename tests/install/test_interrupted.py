"""Installs that are killed, stopped, starved of disk, or run twice at once."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from envsolve.errors import UsageError
from envsolve.install import environment, staging
from envsolve.install.environment import install
from envsolve.install.errors import silent
from envsolve.planning.plan import Plan
from tests.indexserver import Hold, IndexServer
from tests.install.wheels import make_sdist, make_wheel, plan_of, planned, stalling_backend

ROOT = Path(__file__).parents[2]


def start(plan: Plan, prefix: Path, *wrapper: str, manager: str = "uv") -> subprocess.Popen[str]:
    """An install of ``plan`` in a process of its own."""
    path = prefix.parent / f"{len(list(prefix.parent.glob('plan*')))}.plan.json"
    path.write_bytes(msgspec.json.encode(plan))
    command = [*wrapper, sys.executable, "-m", "tests.install.child", str(path), str(prefix), manager]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def version(prefix: Path) -> str | None:
    """What the environment's own script says; None where there is no environment."""
    if not prefix.exists():
        return None
    return subprocess.run([prefix / "bin" / "demo"], capture_output=True, text=True, check=True).stdout.split()[1]


def beside(prefix: Path) -> list[str]:
    return sorted(path.name for path in prefix.parent.iterdir() if path.name.startswith("."))


def running_in(folder: Path) -> list[str]:
    """Command lines of live processes that name ``folder``."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if str(folder) in line and "tests.install.child" not in line:
            lines.append(line)
    return lines


def running(mark: Path) -> bool:
    """Whether the process whose number stands in ``mark`` lives; one that nobody has reaped yet does not."""
    try:
        return Path("/proc", mark.read_text(), "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def eventually(condition: Callable[[], bool], seconds: float = 120) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folder = tmp_path / "place"
    folder.mkdir()
    return folder


@pytest.mark.parametrize(
    ("stage", "seconds", "before"),
    [
        pytest.param("prepare", 0.0, "1.0", marks=pytest.mark.slow),
        ("packages", 0.05, None),
        pytest.param("verify", 0.0, "1.0", marks=pytest.mark.slow),
        ("swap", 0.003, "1.0"),
    ],
)
def test_kill_at_a_moment_then_the_same_command(place: Path, stage: str, seconds: float, before: str | None) -> None:
    prefix = place / "env"
    if before:
        install(plan_of(planned(make_wheel(place, "demo", before))), prefix)
    plan = plan_of(planned(make_wheel(place, "demo", "2.0")))

    child = start(plan, prefix)
    assert child.stdout is not None
    for line in child.stdout:
        if line.startswith(stage):
            break
    time.sleep(seconds)
    child.kill()
    child.communicate()

    assert version(prefix) in ({before, "2.0"} if stage == "swap" else {before})
    install(plan, prefix)
    assert version(prefix) == "2.0"
    assert beside(prefix) == []


@pytest.fixture
def stalled(tmp_path: Path) -> Iterator[tuple[Hold, Plan]]:
    """A plan whose one file does not come before it is released."""
    wheel = make_wheel(tmp_path, "demo", "2.0")
    with IndexServer() as server:
        index = server.index()
        entry = index.add("demo", wheel.name, wheel.read_bytes())
        yield server.hold(entry.url), plan_of(planned(wheel, index.address(entry)))


@pytest.mark.slow
@pytest.mark.parametrize(("manager", "number"), [("uv", signal.SIGINT), ("uv", signal.SIGTERM), ("pip", signal.SIGINT)])
def test_signals_during_a_download(stalled: tuple[Hold, Plan], place: Path, manager: str, number: int) -> None:
    download, plan = stalled
    prefix = place / "env"
    child = start(plan, prefix, manager=manager)
    assert download.reached.wait(120)
    child.send_signal(number)
    _, errors = child.communicate(timeout=120)
    assert child.returncode == 128 + number
    assert "interrupted by SIG" in errors
    assert "Traceback" not in errors
    assert running_in(prefix.parent) == []
    assert not prefix.exists()
    assert beside(prefix) == []


def test_an_ignored_hangup_stays_ignored(stalled: tuple[Hold, Plan], place: Path) -> None:
    download, plan = stalled
    child = start(plan, place / "env", "nohup")
    assert download.reached.wait(120)
    child.send_signal(signal.SIGHUP)
    time.sleep(0.1)
    download.release()
    child.communicate(timeout=120)
    assert child.returncode == 0
    assert version(place / "env") == "2.0"


def test_a_killed_manager_fails_the_install(stalled: tuple[Hold, Plan], place: Path) -> None:
    download, plan = stalled
    prefix = place / "env"
    child = start(plan, prefix)
    assert download.reached.wait(120)
    children = Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()
    os.kill(int(children[0]), signal.SIGKILL)
    _, errors = child.communicate(timeout=120)
    assert child.returncode == 1
    assert "killed by signal 9" in errors
    assert beside(prefix) == []


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux to end orphans")
def test_no_orphan_outlives_a_killed_install(stalled: tuple[Hold, Plan], place: Path, manager: str) -> None:
    download, plan = stalled
    prefix = place / "env"
    child = start(plan, prefix, manager=manager)
    assert download.reached.wait(120)
    assert running_in(prefix.parent)
    child.kill()
    child.communicate()
    assert eventually(lambda: not running_in(prefix.parent))
    assert not prefix.exists()
    install(plan_of(planned(make_wheel(place, "demo", "2.0"))), prefix)
    assert version(prefix) == "2.0"
    assert beside(prefix) == []


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc")
def test_what_a_killed_install_was_building_is_ended_by_the_next(place: Path, manager: str) -> None:
    prefix, mark = place / "env", place / "builder"
    child = start(
        plan_of(planned(make_sdist(place, "sourced", "1.0", backend=stalling_backend(mark)))), prefix, manager=manager
    )
    assert eventually(mark.exists, 120)
    child.kill()
    child.communicate()
    install(plan_of(planned(make_wheel(place, "demo", "2.0"))), prefix, manager=manager)
    assert version(prefix) == "2.0"
    assert not running(mark)
    assert beside(prefix) == []


def test_impatience_leaves_nothing_behind(place: Path) -> None:
    prefix, mark = place / "env", place / "builder"
    child = start(
        plan_of(planned(make_sdist(place, "sourced", "1.0", backend=stalling_backend(mark)))), prefix, manager="pip"
    )
    assert eventually(mark.exists, 120)
    for _ in range(5):
        child.send_signal(signal.SIGINT)
        time.sleep(0.002)
    _, errors = child.communicate(timeout=120)
    assert child.returncode == 130
    assert "interrupted by SIGINT" in errors
    assert "Traceback" not in errors
    assert beside(prefix) == []
    assert not running(mark)


def test_a_second_install_waits_or_is_refused(
    stalled: tuple[Hold, Plan], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    download, plan = stalled
    prefix = place / "env"
    other = plan_of(planned(make_wheel(place, "demo", "3.0")))
    first = start(plan, prefix)
    assert download.reached.wait(120)
    monkeypatch.setattr(environment, "WAIT_SECONDS", 0)
    with pytest.raises(UsageError, match=r"another install into .* is running"):
        install(other, prefix)
    second = start(other, prefix)
    assert second.stdout is not None
    assert second.stdout.readline().startswith("wait")
    download.release()
    first.communicate(timeout=120)
    second.communicate(timeout=120)
    assert (first.returncode, second.returncode) == (0, 0)
    assert version(prefix) == "3.0"
    assert beside(prefix) == []


def _can_mount() -> bool:
    return (
        shutil.which("unshare") is not None and subprocess.run(["unshare", "-rm", "true"], check=False).returncode == 0
    )


@pytest.mark.skipif(not _can_mount(), reason="cannot mount a small file system of its own")
def test_disk_full(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    wheel = make_wheel(tmp_path, "demo", "2.0", padding=20_000_000)
    plan = tmp_path / "plan.json"
    plan.write_bytes(msgspec.json.encode(plan_of(planned(wheel))))
    script = (
        f'mount -t tmpfs -o size=16m none "{disk}" || exit 99\n'
        f'"{sys.executable}" -m tests.install.child "{plan}" "{disk}/env" uv\n'
        f'code=$?; ls -A "{disk}" >&2; exit $code'
    )
    ended = subprocess.run(
        ["unshare", "-rm", "sh", "-c", script], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if ended.returncode == 99:
        pytest.skip("mounting is not allowed here")
    assert ended.returncode == 1
    assert "the disk is full" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.stderr.splitlines()[-1].startswith("free some space")


def test_a_limit_on_file_sizes_is_said(place: Path) -> None:
    plan = plan_of(planned(make_wheel(place, "demo", "2.0", padding=9_000_000)))
    child = start(plan, place / "env", "sh", "-c", 'ulimit -f 12000; exec "$0" "$@"', manager="pip")
    _, errors = child.communicate()
    assert child.returncode == 1
    assert "the disk is full, or a limit on file sizes was reached" in errors
    assert not (place / "env").exists()
    assert beside(place / "env") == []


def test_an_environment_moved_aside_and_not_replaced_goes_back(place: Path) -> None:
    """The one half-way state of the two renames, where folders cannot be exchanged."""
    prefix = place / "env"
    old = place / ".env.envsolve" / "old"
    old.mkdir(parents=True)
    (old / "mark").touch()
    with staging.opened(prefix, wait=0, progress=silent):
        assert (prefix / "mark").exists()
    assert beside(prefix) == []


def test_swap_without_exchange(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "exchange", lambda one, other: False)
    prefix = place / "env"
    install(plan_of(planned(make_wheel(place, "demo", "1.0"))), prefix)
    install(plan_of(planned(make_wheel(place, "demo", "2.0"))), prefix)
    assert version(prefix) == "2.0"
    assert beside(prefix) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is read-only to root")
def test_read_only_folders_do_not_keep_the_staging_folder(place: Path) -> None:
    outside = place / "outside"
    outside.mkdir(mode=0o500)
    with staging.opened(place / "env", wait=0, progress=silent) as stage:
        locked = stage.environment / "locked"
        locked.mkdir(parents=True)
        (locked / "file").touch()
        (locked / "link").symlink_to(outside)
        locked.chmod(0o500)
    assert beside(place / "env") == []
    assert outside.stat().st_mode & 0o777 == 0o500

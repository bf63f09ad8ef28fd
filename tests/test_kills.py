"""Hundreds of ``kill -9`` at random moments: of installs, plans, updates, bundles, fleets, ``--fix`` and ``--restore``.

What was there before is there afterwards, or what was to come is, and the same command finishes the work.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import pytest

import envsolve
from envsolve.fleet.plan import FleetPlan, Group
from envsolve.planning.lock import Assumptions
from envsolve.planning.plan import Plan
from envsolve.system.files import dump
from tests.condachannel import CondaChannel, Package, python_package
from tests.indexserver import IndexServer
from tests.install.test_interrupted import ROOT, beside, eventually, running_in, version
from tests.install.wheels import PYTHON, make_wheel, plan_of, planned
from tests.network.tools import program
from tests.protect.test_fix import OLD_DRIVER, Workshop, served, shop

pytestmark = pytest.mark.slow
__all__ = ["served", "shop"]  # fixtures
RANDOM = random.Random(os.environ.get("ENVSOLVE_KILLS", "1"))
MANY = 20
GPU = "RTX 4090, driver 550.54.14, python 3.12, linux-x86_64, glibc 2.28"


def killed(command: Sequence[str], place: Path, longest: float, environ: Mapping[str, str] = os.environ) -> bool:
    """Kill a command at a moment of its usual time; whether it lived so long. What it started ends, too."""
    child = subprocess.Popen(
        command, cwd=ROOT, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        child.wait(RANDOM.uniform(0, longest))
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
        assert eventually(lambda: running_in(place) == [], 30), running_in(place)
        return True
    return False


def installing(plan: Plan, prefix: Path, manager: str) -> list[str]:
    path = prefix.parent / f"{len(list(prefix.parent.glob('*.json')))}.plan.json"
    path.write_bytes(msgspec.json.encode(plan))
    return [sys.executable, "-m", "tests.install.child", str(path), str(prefix), manager]


def timed(command: Sequence[str], environ: Mapping[str, str] = os.environ) -> float:
    start = time.monotonic()
    done = subprocess.run(command, cwd=ROOT, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return time.monotonic() - start


@pytest.mark.parametrize("manager", ["pip", "uv"])
def test_installs(manager: str, tmp_path: Path) -> None:
    prefix = tmp_path / "env"
    commands = {
        name: installing(plan_of(planned(make_wheel(tmp_path, "demo", name))), prefix, manager)
        for name in ("1.0", "2.0")
    }
    timed(commands["1.0"])
    longest = timed(commands["2.0"])
    old, new, kills = "2.0", "1.0", 0
    while kills < MANY:
        kills += killed(commands[new], prefix, longest)
        assert version(prefix) in (old, new)
        timed(commands[new])
        assert (version(prefix), beside(prefix)) == (new, [])
        old, new = new, old


def test_installs_of_conda_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("rattler")
    monkeypatch.setenv("RATTLER_CACHE_DIR", str(tmp_path / "cache"))
    prefix = tmp_path / "place" / "env"
    prefix.parent.mkdir()
    with CondaChannel(tmp_path / "served") as channel:
        channel.add(python_package(), Package("python_abi", "3.12", "0_cp312", subdir="noarch"))
        for number in "12":
            channel.add(Package("hello", f"{number}.0", "h0_0", ("python",), files={"share/hello.txt": number}))
        channel.fill()
        target = [envsolve.describe_target(GPU)]
        plans = {
            number: envsolve.plan(
                envsolve.Request([f"hello={number}.0"], manager="conda", channels=[channel.url]), target
            )
            for number in "12"
        }
        commands = {number: installing(plan, prefix, "conda") for number, plan in plans.items()}
        timed(commands["1"])
        longest = timed(commands["2"])
        old, new, kills = "2", "1", 0
        while kills < MANY:
            kills += killed(commands[new], prefix, longest)
            assert (prefix / "share/hello.txt").read_text() in (old, new)
            timed(commands[new])
            assert ((prefix / "share/hello.txt").read_text(), beside(prefix)) == (new, [])
            old, new = new, old


def test_plans(tmp_path: Path) -> None:
    lock, cache = tmp_path / "pylock.toml", tmp_path / "cache"
    with IndexServer() as server:
        index = server.index()
        for number in range(40):
            index.wheel(f"p{number}", "1.0", requires=[f"p{number + 1}"] if number < 39 else [])
        environ = {**os.environ, "ENVSOLVE_CACHE_DIR": str(cache)}
        words = [program("envsolve"), "plan", "--index-url", index.url, "--target", GPU, "--upgrade", "-o", str(lock)]
        answers = []
        for name in ("p0", "p20"):
            longest = timed([*words, name], environ)
            answers.append(lock.read_bytes())
        kills = 0
        while kills < MANY:
            name = ("p0", "p20")[kills % 2]
            kills += killed([*words, name], lock, longest, environ)
            assert lock.read_bytes() in answers
            timed([*words, name], environ)
            assert lock.read_bytes() == answers[("p0", "p20").index(name)]
        assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_fixes(shop: Workshop) -> None:
    before = shop.freeze()
    words = [program("envsolve"), "diagnose", "--prefix", str(shop.prefix), "--target", OLD_DRIVER]
    longest = timed([*words, "--fix", "--yes"], shop.environ)
    timed([*words, "--restore", "--yes"], shop.environ)
    kills = 0
    while kills < MANY:
        kills += killed([*words, "--fix", "--yes"], shop.prefix, longest, shop.environ)
        done = subprocess.run([*words, "--restore", "--yes"], env=shop.environ, capture_output=True, text=True)
        assert done.returncode == 0 or "no earlier state" in done.stderr, done.stderr
        assert shop.freeze() == before


def test_restores(shop: Workshop) -> None:
    before = shop.freeze()
    words = [program("envsolve"), "diagnose", "--prefix", str(shop.prefix), "--target", OLD_DRIVER]
    timed([*words, "--fix", "--yes"], shop.environ)
    longest = timed([*words, "--restore", "--yes"], shop.environ)
    kills = 0
    while kills < MANY:
        timed([*words, "--fix", "--yes"], shop.environ)
        kills += killed([*words, "--restore", "--yes"], shop.prefix, longest, shop.environ)
        done = subprocess.run([*words, "--restore", "--yes"], env=shop.environ, capture_output=True, text=True)
        assert done.returncode == 0 or "no earlier state" in done.stderr, done.stderr
        assert shop.freeze() == before


def test_updates(tmp_path: Path) -> None:
    lock, cache = tmp_path / "pylock.toml", tmp_path / "cache"
    with IndexServer() as server:
        index = server.index()
        for number in range(20):
            index.wheel(f"p{number}", "1.0", requires=[f"p{number + 1}"] if number < 19 else [])
        environ = {**os.environ, "ENVSOLVE_CACHE_DIR": str(cache)}
        made = [program("envsolve"), "plan", "p0", "--index-url", index.url, "--target", GPU, "-o", str(lock)]
        timed(made, environ)
        old = lock.read_bytes()
        index.wheel("p10", "2.0", requires=["p11"])
        words = [program("envsolve"), "update", str(lock)]
        environ["ENVSOLVE_CACHE_DIR"] = str(tmp_path / "later")  # pages stay fresh for ten minutes
        longest = timed(words, environ)
        new, kills = lock.read_bytes(), 0
        assert old != new
        while kills < MANY:
            lock.write_bytes(old)
            kills += killed(words, lock, longest, environ)
            assert lock.read_bytes() in (old, new)
            timed(words, environ)
            assert lock.read_bytes() == new
        assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize("place", ["made", "made.tar"])
def test_bundles(place: str, tmp_path: Path) -> None:
    lock, made, partial = tmp_path / "pylock.toml", tmp_path / place, tmp_path / f"{place}.partial"
    with IndexServer() as server:
        index = server.index()
        for number in range(30):
            index.wheel(f"p{number}", "1.0", requires=[f"p{number + 1}"] if number < 29 else [])
        environ = {**os.environ, "ENVSOLVE_CACHE_DIR": str(tmp_path / "cache")}
        timed([program("envsolve"), "plan", "p0", "--index-url", index.url, "--target", GPU, "-o", str(lock)], environ)
        words = [program("envsolve"), "bundle", str(lock), "-o", str(made)]
        longest = timed(words, environ)
        whole, kills = contents(made), 0
        while kills < MANY:
            if kills % 2:  # a bundle that is there stays whole, and a new one goes on where it ended
                shutil.rmtree(made) if made.is_dir() else made.unlink()
            before = contents(made)
            kills += killed(words, made, longest, environ)
            found = contents(made)
            assert not before or found == whole or (made.is_dir() and before.items() <= found.items())
            timed(words, environ)
            assert contents(made) == whole
            assert not partial.exists()


def contents(place: Path) -> dict[str, bytes]:
    """The files of a directory, or the archive itself."""
    if not place.is_dir():
        return {"": place.read_bytes()} if place.exists() else {}
    return {str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*") if path.is_file()}


def test_installs_of_a_fleet(tmp_path: Path) -> None:
    fleet, manager = tmp_path / "fleet", "uv"
    (fleet / "locks").mkdir(parents=True)
    groups: list[Group] = []
    for name in ("one", "two"):
        text = plan_of(planned(make_wheel(tmp_path, "demo", f"1.{len(groups)}"))).to_pylock()
        assumes = Assumptions(python=PYTHON)
        groups.append(Group(name, (name,), (f"{name}1",), f"abc{len(groups)}", "ok", assumes, {}))
        groups[-1].lock(fleet).write_text(text)
    (fleet / "plan.json").write_text(dump(FleetPlan(groups=tuple(groups))))
    words = [program("envsolve"), "fleet", "install", "--fleet", str(fleet), "--manager", manager]
    longest, kills = timed(words), 0
    versions = [version(group.environment(fleet)) for group in groups]
    assert versions == ["1.0", "1.1"]
    while kills < MANY:
        victim = groups[kills % 2].environment(fleet)
        shutil.rmtree(victim)
        kept = groups[1 - kills % 2].environment(fleet)
        before = version(kept)
        kills += killed(words, fleet, longest)
        assert version(kept) == before
        timed(words)
        assert [version(group.environment(fleet)) for group in groups] == versions
        assert beside(victim) == []

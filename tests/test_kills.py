"""A hundred ``kill -9`` at random moments: of installs by pip, uv and conda, of plans, of ``--fix`` and ``--restore``.

What was there before is there afterwards, or what was to come is, and the same command finishes the work.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import pytest

import envsolve
from envsolve.planning.plan import Plan
from tests.condachannel import CondaChannel, Package, python_package
from tests.indexserver import IndexServer
from tests.install.test_interrupted import ROOT, beside, eventually, running_in, version
from tests.install.wheels import make_wheel, plan_of, planned
from tests.network.tools import program
from tests.protect.test_fix import OLD_DRIVER, Workshop, served, shop

pytestmark = pytest.mark.slow
__all__ = ["served", "shop"]  # fixtures
RANDOM = random.Random(os.environ.get("ENVSOLVE_KILLS", "1"))
MANY = 17
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

"""The hashed formats and the commands, put before real pip and real uv over a loopback index."""

from __future__ import annotations

import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from importlib.metadata import distributions
from pathlib import Path

import pytest
from msgspec.structs import replace

from envsolve.formats import pip, render, uv
from envsolve.machine.model import Machine, Platform
from envsolve.planning.plan import Plan
from envsolve.solve.outcome import PlannedPackage
from tests.indexcontent import Index
from tests.indexserver import IndexServer

_SCRIPTS = os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", "")])
UV = shutil.which("uv", path=_SCRIPTS) or "uv"
PIP = (sys.executable, "-m", "pip")
PINNED = {"es-direct": "0.5", "es-lock": "1.0", "es-other": "1.1", "es-torch": "2.9.0+cu126"}


def published(index: Index, name: str, version: str, requires: tuple[str, ...] = ()) -> PlannedPackage:
    """Put a wheel on an index and give it as a plan has it."""
    entry = index.wheel(name, version, requires=requires)
    return PlannedPackage(
        name=name,
        version=version,
        variant=version.partition("+")[2] or None,
        index=index.url,
        filename=entry.filename,
        url=index.address(entry),
        hashes={"sha256": entry.sha256},
        kind="wheel",
        requires=requires,
        size=len(entry.content),
    )


@pytest.fixture
def plan() -> Iterator[Plan]:
    """torch of one index, its dependency of another; each index also has a newer look-alike of the other's package."""
    with IndexServer() as server:
        default, cu126 = server.index("/simple/"), server.index("/whl/cu126/", style="pytorch")
        published(default, "es-torch", "9.9")
        published(cu126, "es-lock", "9.9")
        packages = (
            replace(published(server.index("/files/"), "es-direct", "0.5"), index=None),
            published(default, "es-lock", "1.0"),
            published(default, "es-other", "1.1"),
            published(cu126, "es-torch", "2.9.0+cu126", ("es-lock",)),
        )
        machine = Machine(platform=Platform(os=sys.platform.replace("win32", "windows"), arch=platform.machine()))
        python = f"{sys.version_info[0]}.{sys.version_info[1]}"
        yield Plan(machines=(machine,), python=python, cuda="cu126", packages=packages)


Run = Callable[..., str]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run a command; gives all that it prints."""

    def call(*command: str) -> str:
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    return call


def installed(target: Path) -> dict[str, str]:
    return {found.metadata["Name"]: found.version for found in distributions(path=[str(target)])}


@pytest.fixture(params=["pylock.toml", "requirements.txt"])
def written(request: pytest.FixtureRequest, plan: Plan, tmp_path: Path) -> str:
    name: str = request.param
    (tmp_path / name).write_text(render(plan, name.partition(".")[0]))
    return name


def test_pip_takes_the_file(written: str, run: Run, tmp_path: Path) -> None:
    hashes = ["--require-hashes"] if written == "requirements.txt" else []
    run(*PIP, "install", "--target", "target", *hashes, "-r", written)
    assert installed(tmp_path / "target") == PINNED


def test_uv_takes_the_file(written: str, run: Run, tmp_path: Path) -> None:
    for command in ("sync", "install"):
        hashes = ["--require-hashes"] if written == "requirements.txt" else []
        would = run(UV, "pip", command, "--dry-run", "--python", sys.executable, *hashes, *_file(command, written))
        assert set(re.findall(r"^ \+ ([\w-]+)(?:==| @ )", would, re.MULTILINE)) == set(PINNED), would
    run(UV, "pip", "install", "--target", "target", "--python", sys.executable, "-r", written)
    assert installed(tmp_path / "target") == PINNED


@pytest.mark.parametrize("written", ["pylock.toml", "requirements.txt"], indirect=True)
def test_installers_refuse_another_file_than_the_planned_one(
    written: str, run: Run, plan: Plan, tmp_path: Path
) -> None:
    other = replace(plan.packages[1], hashes={"sha256": "0" * 64})
    (tmp_path / written).write_text(render(replace(plan, packages=(other,)), written.partition(".")[0]))
    for command in ((*PIP, "install"), (UV, "pip", "install", "--python", sys.executable)):
        with pytest.raises(AssertionError, match=r"(?i)hash"):
            run(*command, "--target", "target", "-r", written)


@pytest.mark.slow
def test_pip_commands(plan: Plan, run: Run, tmp_path: Path) -> None:
    for command in pip.commands(plan):
        run(sys.executable, *shlex.split(command)[1:], "--target", "target")
    assert installed(tmp_path / "target") == PINNED


def test_uv_commands(plan: Plan, run: Run, tmp_path: Path) -> None:
    for command in uv.commands(plan):
        run(UV, *shlex.split(command)[1:], "--python", sys.executable, "--target", "target")
    assert installed(tmp_path / "target") == PINNED


def _file(command: str, name: str) -> tuple[str, ...]:
    return (name,) if command == "sync" else ("-r", name)

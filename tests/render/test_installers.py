"""The hashed formats and the commands, put before real pip and real uv over a loopback index."""

from __future__ import annotations

import hashlib
import http.server
import io
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import threading
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.metadata import distributions
from pathlib import Path

import pytest

from envsolve.machine.model import Machine, Platform
from envsolve.plan import Plan, PlannedPackage
from envsolve.render import pip, render, uv

_SCRIPTS = os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", "")])
UV = shutil.which("uv", path=_SCRIPTS) or "uv"
PIP = (sys.executable, "-m", "pip")
PINNED = {"es-direct": "0.5", "es-lock": "1.0", "es-other": "1.1", "es-torch": "2.9.0+cu126"}


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


class Indexes:
    """A folder of PEP 503 indexes, served on a loopback port."""

    def __init__(self, folder: Path, address: str) -> None:
        self._folder = folder
        self._address = address

    def add(self, index: str, name: str, version: str, requires: tuple[str, ...] = ()) -> PlannedPackage:
        """Put a wheel on an index and give it as a plan has it."""
        filename = f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
        data = wheel(name, version, requires)
        page = self._folder / index / "simple" / name
        page.mkdir(parents=True, exist_ok=True)
        (page / filename).write_bytes(data)
        links = "".join(f'<a href="{file.name.replace("+", "%2B")}">{file.name}</a>\n' for file in page.glob("*.whl"))
        (page / "index.html").write_text(f"<!DOCTYPE html><html><body>{links}</body></html>")
        address = f"{self._address}/{index}/simple/"
        return PlannedPackage(
            name=name,
            version=version,
            variant=None if "+" not in version else version.partition("+")[2],
            index=address,
            filename=filename,
            url=f"{address}{name}/{filename.replace('+', '%2B')}",
            hashes={"sha256": hashlib.sha256(data).hexdigest()},
            kind="wheel",
            requires=requires,
            size=len(data),
        )


def wheel(name: str, version: str, requires: tuple[str, ...]) -> bytes:
    stem = f"{name.replace('-', '_')}-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {need}\n" for need in requires)
    files = {
        f"{name.replace('-', '_')}.py": "",
        f"{stem}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}",
        f"{stem}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{stem}/RECORD"] = "".join(f"{path},,\n" for path in [*files, f"{stem}/RECORD"])
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return buffer.getvalue()


@pytest.fixture
def plan(tmp_path: Path) -> Iterator[Plan]:
    """torch of one index, its dependency of another; each index also has a newer look-alike of the other's package."""
    folder = tmp_path / "www"
    folder.mkdir()

    def handler(*args: object) -> _Quiet:
        return _Quiet(*args, directory=str(folder))  # type: ignore[arg-type]

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    indexes = Indexes(folder, f"http://127.0.0.1:{server.server_port}")
    indexes.add("default", "es-torch", "9.9")
    indexes.add("cu126", "es-lock", "9.9")
    asked = indexes.add("files", "es-direct", "0.5")
    packages = (
        replace(asked, index=None),
        indexes.add("default", "es-lock", "1.0"),
        indexes.add("default", "es-other", "1.1"),
        indexes.add("cu126", "es-torch", "2.9.0+cu126", ("es-lock",)),
    )
    machine = Machine(platform=Platform(os=sys.platform.replace("win32", "windows"), arch=platform.machine()))
    yield Plan(
        machines=(machine,), python=f"{sys.version_info[0]}.{sys.version_info[1]}", cuda="cu126", packages=packages
    )
    server.shutdown()
    server.server_close()


Run = Callable[..., str]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run a command in an environment without the user's pip and uv settings; gives all that it prints."""
    (tmp_path / "home").mkdir()
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PIP_", "UV_", "XDG_")) and not name.lower().endswith("_proxy")
    }
    environment |= {
        "HOME": str(tmp_path / "home"),
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_NO_CACHE_DIR": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "UV_NO_CONFIG": "1",
        "UV_CACHE_DIR": str(tmp_path / "uv-cache"),
    }

    def call(*command: str) -> str:
        done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=60)
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
    would = run(*PIP, "install", "--dry-run", *hashes, "-r", written)
    assert all(f"{name}-{version}" in would for name, version in PINNED.items())
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

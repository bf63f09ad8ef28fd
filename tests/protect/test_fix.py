"""Real environments, mended and put back by real uv and pip; PyTorch's own index is on the loopback, too."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest

import envsolve
from envsolve.errors import EnvsolveError
from envsolve.facts.builds import IndexPlace
from envsolve.facts.evidence import Evidence, Source
from envsolve.facts.maintain.update import dump_catalogue_file
from envsolve.protect.fix import Fix
from tests.commandline import answered
from tests.indexserver import IndexServer
from tests.network.tools import program

OLD_DRIVER = "RTX 4090, driver 550.54, linux-x86_64"


def torch(version: str, cuda: str) -> dict[str, bytes]:
    return {
        "torch/__init__.py": b"",
        "torch/version.py": f"__version__ = '{version}'\ncuda = '{cuda}'\n".encode(),
    }


@dataclass
class Workshop:
    """An environment with a torch for CUDA 13 on a driver for 12, and a package of a folder."""

    server: IndexServer
    prefix: Path
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def environ(self) -> dict[str, str]:
        url = f"{self.server.url}/simple/"
        path = os.pathsep.join([str(Path(program("uv")).parent), os.environ["PATH"]])
        return {**os.environ, "UV_INDEX_URL": url, "PIP_INDEX_URL": url, "PATH": path, **self.variables}

    def run(self, *command: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            command, env=self.environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done

    def diagnose(self, *options: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        where = ("--prefix", str(self.prefix), "--target", OLD_DRIVER)
        done = answered("diagnose", *where, *options, environ=self.environ)
        assert done.returncode == code, done.stdout + done.stderr
        return done

    def causes(self) -> list[str]:
        found: dict[str, Any] = json.loads(self.diagnose("--format", "json").stdout)
        return [diagnosis["cause"] for diagnosis in found["diagnoses"]]

    def freeze(self) -> str:
        return self.run("uv", "pip", "freeze", "--python", str(self.prefix)).stdout


@pytest.fixture
def served() -> Iterator[IndexServer]:
    with IndexServer() as server:
        default = server.index()
        default.wheel("torch", "2.15.0", files=torch("2.15.0+cu132", "13.2"), requires=["helper==2"])
        for version in ("1", "2"):
            default.wheel("helper", version)
        own = server.index("/whl/cu126/", style="pytorch")
        own.wheel("torch", "2.14.1+cu126", files=torch("2.14.1+cu126", "12.6"), requires=["helper==1"])
        own.wheel("helper", "1")
        yield server


@pytest.fixture
def shop(request: pytest.FixtureRequest, served: IndexServer, tmp_path: Path) -> Workshop:
    made = Workshop(served, tmp_path / "an env")
    overlay = tmp_path / "catalogue"
    overlay.mkdir()
    place = IndexPlace("pytorch", served.url + "/whl/{variant}/", Evidence.DOCUMENTED, "here")
    (overlay / "indexes.json").write_text(dump_catalogue_file({"here": Source("a test", "2099-01-01")}, [place]))
    made.variables["ENVSOLVE_CATALOGUE"] = str(overlay)
    if getattr(request, "param", "uv") == "uv":
        made.run("uv", "venv", "-q", "--python", sys.executable, str(made.prefix))
    else:
        with_pip(made.prefix)
    made.run("uv", "pip", "install", "-q", "--python", str(made.prefix), "torch==2.15.0")
    return made


def with_pip(prefix: Path) -> None:
    """An environment with the pip of this one, linked: ``python -m venv`` installs and compiles one, for 3 s."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", prefix], check=True)
    ours = distribution("pip")
    (site,) = prefix.glob("lib/python*/site-packages")
    for folder in ("pip", f"pip-{ours.version}.dist-info"):
        shutil.copytree(str(ours.locate_file(folder)), site / folder, copy_function=_link)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy2(source, target)


@pytest.mark.parametrize("shop", ["uv", pytest.param("pip", marks=pytest.mark.slow)], indirect=True)
def test_mended_and_put_back(shop: Workshop) -> None:
    before = shop.freeze()
    assert shop.causes() == ["driver-too-old"]
    done = shop.diagnose("--fix", "--yes")
    assert "torch 2.15.0 -> 2.14.1+cu126" in done.stdout
    assert shop.causes() == []
    assert "torch==2.14.1+cu126" in shop.freeze()
    assert "helper==1" in shop.freeze()
    fixed = shop.freeze()
    asked = shop.diagnose("--restore", code=2)
    assert "--force-reinstall --no-deps helper==2 torch==2.15.0" in asked.stdout
    assert "add --yes" in asked.stderr
    assert shop.freeze() == fixed
    back = shop.diagnose("--restore", "--yes")
    assert back.stdout.endswith("As before: helper, torch\n")
    assert shop.freeze() == before
    assert "no earlier state" in shop.diagnose("--restore", "--yes", code=2).stderr


def _saved(shop: Workshop, **changes: object) -> None:
    (shop.prefix / ".envsolve").mkdir()
    state = {"schema": "envsolve.state/1", "prefix": str(shop.prefix), "cause": "x", "commands": [], "packages": []}
    (shop.prefix / ".envsolve" / "state-1.json").write_text(json.dumps({**state, **changes}))


def test_the_state_of_another_environment_is_refused(shop: Workshop, tmp_path: Path) -> None:
    """`cp -a` copies the saved state, which names the environment that it was saved in."""
    _saved(shop, prefix=str(tmp_path / "original"))
    before = shop.freeze()
    done = shop.diagnose("--restore", "--yes", code=2)
    assert "was saved in" in done.stderr
    assert shop.freeze() == before


@pytest.mark.parametrize(
    "package",
    [
        {"name": "../x", "version": "1", "files": None},
        {"name": "x", "version": "1 --index-url http://127.0.0.1", "files": None},
        {"name": "x", "version": "1", "files": None, "source": "--index-url=http://127.0.0.1"},
    ],
)
def test_a_state_that_names_no_package_is_refused(shop: Workshop, package: dict[str, object]) -> None:
    _saved(shop, packages=[package])
    assert "cannot be restored" in shop.diagnose("--restore", "--yes", code=2).stderr


@pytest.mark.parametrize("shop", ["pip"], indirect=True)
def test_the_pip_that_restores_is_kept(shop: Workshop) -> None:
    """In an environment of uv, the state was saved before pip was installed."""
    _saved(shop)
    shop.diagnose("--restore", "--yes")
    assert "torch" not in shop.freeze()
    shop.run(str(shop.prefix / "bin" / "python"), "-m", "pip", "--version")


def test_nothing_is_done_unless_it_is_confirmed(shop: Workshop) -> None:
    before = shop.freeze()
    done = shop.diagnose("--fix", code=2)
    assert "->" in done.stdout
    assert "--yes" in done.stderr
    assert shop.freeze() == before
    assert not (shop.prefix / ".envsolve").exists()


def test_a_whole_environment_needs_nothing(shop: Workshop) -> None:
    shop.diagnose("--fix", "--yes")
    assert "No fault was found" in shop.diagnose("--fix", "--yes").stdout


def test_an_installer_that_fails_leaves_what_was_there(shop: Workshop) -> None:
    before = shop.freeze()
    # The metadata is as it should be, so that the dry run is content.
    own = next(index for index in shop.server.indexes if index.path == "/whl/cu126/")
    entry = own.projects["torch"][0]
    entry.content = entry.content[:100]
    shop.variables["UV_NO_CACHE"] = "1"
    done = shop.diagnose("--fix", "--yes", code=4)
    assert "The environment is as it was before." in done.stderr
    assert shop.freeze() == before


def test_a_remedy_that_does_not_help_is_taken_back(shop: Workshop) -> None:
    """What the index serves as torch 2.14.1+cu126 is for CUDA 13 in truth."""
    before = shop.freeze()
    own = next(index for index in shop.server.indexes if index.path == "/whl/cu126/")
    own.projects["torch"].clear()
    own.wheel("torch", "2.14.1+cu126", files=torch("2.14.1+cu126", "13.2"), requires=["helper==1"])
    done = shop.diagnose("--fix", "--yes", code=4)
    assert "driver-too-old remained" in done.stderr
    assert shop.freeze() == before


def test_what_cannot_be_put_back_is_said_with_what_to_run(shop: Workshop) -> None:
    shop.diagnose("--fix", "--yes")
    default = next(index for index in shop.server.indexes if index.path == "/simple/")
    default.projects["torch"].clear()
    shop.variables["UV_NO_CACHE"] = "1"
    done = shop.diagnose("--restore", "--yes", code=4)
    assert "could not be restored" in done.stderr
    assert "--force-reinstall --no-deps helper==2 torch==2.15.0" in done.stderr
    assert list((shop.prefix / ".envsolve").glob("state-*.json"))


def test_what_is_no_installers_work_is_left_to_its_user(shop: Workshop) -> None:
    """A CPU build where the environment has another torch before it on PYTHONPATH: the remedy is the shell's."""
    other = shop.prefix.parent / "other/torch"
    other.mkdir(parents=True)
    (other / "__init__.py").touch()
    (other / "version.py").write_text("__version__ = '2.5.1+cu124'\ncuda = '12.4'\n")
    shop.variables["PYTHONPATH"] = str(other.parent)
    done = shop.diagnose("--fix", "--yes", code=3)
    assert "run it yourself: unset PYTHONPATH" in done.stderr


def test_a_second_step_that_fails_takes_the_first_back(shop: Workshop) -> None:
    before = shop.freeze()
    place = f"--python '{shop.prefix}'"
    command = f"uv pip uninstall {place} torch && uv pip install {place} no-such-project"
    fix = Fix(str(shop.prefix), "driver-too-old", "", command, ())
    with pytest.raises(EnvsolveError, match="as it was before"):
        envsolve.apply_fix(fix, [envsolve.describe_target(OLD_DRIVER)], environ=shop.environ)
    assert shop.freeze() == before

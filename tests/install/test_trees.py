"""Source trees installed: a commit by its id, a folder as it is, neither touched by its build."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from envsolve.formats import render
from envsolve.install.environment import Installed, install
from envsolve.packages.urls import Tree
from envsolve.planning.plan import Plan
from envsolve.solve.outcome import PlannedPackage
from envsolve.toolchain.model import Toolchain
from tests import distributions
from tests.install.conftest import ONE
from tests.install.wheels import make_wheel, plan_of, planned
from tests.packages.repositories import repository

pytestmark = pytest.mark.skipif(not (shutil.which("git") and shutil.which("gcc")), reason="needs git and gcc")
PYPROJECT = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
# Leaves a file behind, as setuptools does, and takes what an earlier build left.
BACKEND = (
    distributions.BACKEND.decode()
    + """
copy_wheel = build_wheel

def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    import json, zipfile
    left = os.path.exists("build/lib/old.so")
    os.makedirs("build/lib", exist_ok=True)
    open("build/lib/old.so", "w").close()
    name = copy_wheel(wheel_directory)
    with zipfile.ZipFile(os.path.join(wheel_directory, name), "a") as wheel:
        told = {"left": left, "archs": os.environ.get("TORCH_CUDA_ARCH_LIST"), "word": open("word.txt").read()}
        wheel.writestr("told.json", json.dumps(told))
    return name
"""
)


def tree_files(word: str = "one") -> dict[str, str | bytes]:
    wheel = distributions.make_wheel("kernels", "1.0", requires=["absent>=2", "buildtool"])
    name = distributions.wheel_filename("kernels", "1.0")
    return {"pyproject.toml": PYPROJECT, "backend.py": BACKEND, f"built/{name}": wheel, "word.txt": word}


def kernels(tree: Tree) -> PlannedPackage:
    return PlannedPackage("kernels", "0+unread", None, None, None, tree.address, {}, "sdist", tree=tree)


def plan(tree: Tree, tmp_path: Path, home: Path | None = None) -> Plan:
    tool = planned(make_wheel(tmp_path, "buildtool", "1.0"))
    chain = Toolchain(
        "12.6",
        "gcc 12",
        "9.0",
        compiles=("kernels",),
        nvcc_from="machine",
        CUDA_HOME=str(home),
        environment={"TORCH_CUDA_ARCH_LIST": "9.0"},
    )
    return plan_of(kernels(tree), tool, toolchain=chain if home else None)


def told(done: Installed) -> dict[str, object]:
    (path,) = done.prefix.glob("lib/python3*/site-packages/told.json")
    found: dict[str, object] = json.loads(path.read_text())
    return found


@pytest.mark.parametrize("manager", ONE)
def test_a_commit_is_built_and_cited(tmp_path: Path, manager: str) -> None:
    source, prefix = tmp_path / "source", tmp_path / "env"
    commit = repository(source, tree_files())
    repository(source, {"word.txt": "two"})
    tree = Tree(repository=source.as_uri(), revision=commit, commit=commit, needs_torch=True)
    lock = tmp_path / "pylock.toml"
    lock.write_text(render(plan(tree, tmp_path), "pylock"))
    done = install(lock, prefix, manager=manager)
    assert done.changed and told(done) == {"left": False, "archs": None, "word": "one"}
    assert (
        done.warnings[0] == "kernels requires absent>=2, but the environment has none; "
        "request absent together with kernels"
    )
    (cited,) = prefix.glob("lib/python3*/site-packages/kernels-1.0.dist-info/direct_url.json")
    assert json.loads(cited.read_text())["vcs_info"]["commit_id"] == commit
    assert not install(lock, prefix, manager=manager).changed


@pytest.mark.slow
def test_a_folder_is_compiled_from_a_copy_and_again_when_it_changes(tmp_path: Path) -> None:
    source, prefix, home = tmp_path / "source", tmp_path / "env", tmp_path / "cuda"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "nvcc").touch()
    for name, text in tree_files().items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes(text.encode() if isinstance(text, str) else text)
    made = plan(Tree(folder=str(source)), tmp_path, home)
    done = install(made, prefix, manager="uv")
    assert told(done) == {"left": False, "archs": "9.0", "word": "one"}
    assert not (source / "build").exists()
    assert not list(prefix.glob("lib/python3*/site-packages/kernels-1.0.dist-info/direct_url.json"))
    assert not install(made, prefix, manager="uv").changed
    (source / "word.txt").write_text("two")
    done = install(made, prefix, manager="uv")
    assert done.changed and told(done)["word"] == "two"


@pytest.mark.slow
def test_a_commit_that_is_gone_changes_nothing(tmp_path: Path) -> None:
    source, prefix = tmp_path / "source", tmp_path / "env"
    repository(source, tree_files())
    tree = Tree(repository=source.as_uri(), commit="1" * 40)
    with pytest.raises(Exception, match="uv said") as caught:
        install(plan(tree, tmp_path), prefix, manager="uv")
    assert "1111111" in str(caught.value)
    assert not prefix.exists()
    assert subprocess.run(["git", "-C", str(source), "status", "-s"], capture_output=True).stdout == b""

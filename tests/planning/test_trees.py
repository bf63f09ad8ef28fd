"""Plans of source trees: pinned to a commit, and compiled with the toolchain where their builds import torch."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from envsolve.errors import IndexUnavailableError, UsageError
from envsolve.formats import render
from envsolve.install.files import read_lock, wanted
from envsolve.install.interpreters import Target, probe
from envsolve.planning.plan import Plan
from envsolve.toolchain.model import compiled_packages
from tests import distributions
from tests.packages.repositories import repository
from tests.planning.worlds import chosen, codes, package
from tests.smallworld import World

pytestmark = pytest.mark.skipif(not shutil.which("git"), reason="needs git")
PURE = '[project]\nname = "pure"\nversion = "2.0"\ndependencies = ["dep>=1"]\n'
KERNELS = "from torch.utils.cpp_extension import CUDAExtension\n"


@pytest.fixture(scope="module")
def target() -> Target:
    found = probe(sys.executable)
    assert found is not None
    return found


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return tmp_path / "source"


def test_what_a_tree_says_it_needs_is_in_the_plan(world: World, source: Path) -> None:
    world.default.wheel("dep", "1.0")
    commit = repository(source, {"pyproject.toml": PURE})
    plan = world.plan(f"pure @ git+{source.as_uri()}@main")
    assert chosen(plan) == {"pure": "2.0", "dep": "1.0"}
    assert package(plan, "pure").url == f"git+{source.as_uri()}@{commit}"
    assert plan.toolchain is None and plan.status == "ok"
    assert not {"source-build", "dependencies-unknown", "tree-unread"} & set(codes(plan))
    assert "pip install --no-deps 'pure @ git+file://" in render(plan, "pip").replace("python -m ", "")


def test_a_tree_of_another_name_is_refused(world: World, source: Path) -> None:
    repository(source, {"pyproject.toml": PURE})
    with pytest.raises(UsageError, match="is pure, not other"):
        world.plan(f"other @ git+{source.as_uri()}")


def test_kernels_of_a_repository_are_compiled_against_the_torch_that_they_bring_in(
    torch_world: World, source: Path
) -> None:
    commit = repository(source, {"setup.py": KERNELS}, tag="v1")
    for name in ("setuptools", "wheel", "ninja"):
        torch_world.default.wheel(name, "1.0")
    plan = torch_world.plan(f"kernels @ git+{source.as_uri()}@v1")
    assert {"torch", "kernels", "setuptools", "ninja"} <= set(chosen(plan))
    assert plan.toolchain is not None and plan.toolchain.compiles == ("kernels",)
    assert plan.toolchain.TORCH_CUDA_ARCH_LIST == "9.0"
    assert plan.status == "unknown" and "dependencies-unknown" in codes(plan)
    tree = package(plan, "kernels").tree
    assert tree is not None and (tree.commit, tree.revision) == (commit, "v1")
    assert "--no-deps" not in render(plan, "pip").splitlines()[-1]


def test_a_lock_has_the_commit_and_no_version_that_nobody_knows(
    world: World, source: Path, tmp_path: Path, target: Target
) -> None:
    commit = repository(source, {"a/setup.py": "", "b/pyproject.toml": PURE})
    world.default.wheel("dep", "1.0")
    folder = tmp_path / "folder"
    repository(folder, {"setup.py": ""})
    plan = world.plan(
        f"x @ git+{source.as_uri()}@main#subdirectory=a",
        f"pure @ git+{source.as_uri()}#subdirectory=b",
        f"y @ {folder.as_uri()}",
    )
    path = tmp_path / "pylock.toml"
    path.write_text(render(plan, "pylock"))
    packages = {str(p.name): p for p in read_lock(path).pylock.packages}
    assert packages["x"].vcs is not None and packages["x"].version is None
    assert (packages["x"].vcs.requested_revision, packages["x"].vcs.commit_id) == ("main", commit)
    assert packages["x"].vcs.subdirectory == "a"
    assert str(packages["pure"].version) == "2.0"
    assert packages["y"].directory is not None and packages["y"].directory.path == str(folder)
    assert {f.name: f.kind for f in wanted(plan, target).files}["y"] == "tree"
    assert "folder" in codes(plan)
    with pytest.raises(UsageError, match="no hash for a source tree"):
        render(plan, "requirements")


def test_a_repository_that_is_out_of_reach_leaves_a_plan_that_is_not_called_good(world: World) -> None:
    plan = world.plan("kernels @ git+https://example.org/kernels")
    assert plan.status == "unknown" and "tree-unread" in codes(plan)
    with pytest.raises(IndexUnavailableError, match="the commit of kernels is not known"):
        render(plan, "pylock")
    assert "kernels @ git+https://example.org/kernels" in render(plan, "uv")


@pytest.mark.parametrize(("tags", "compiled"), [("py3-none-any", False), ("cp312-cp312-linux_x86_64", True)])
def test_an_unread_tree_is_compiled_unless_its_releases_are_pure(
    torch_world: World, tmp_path: Path, tags: str, compiled: bool
) -> None:
    torch_world.default.wheel("app", "1.0", tags=tags)
    plan = torch_world.plan("torch", "app @ git+http://127.0.0.1:9/app")
    assert plan.status == "unknown"
    assert ("compiles" in codes(plan)) == compiled


def test_an_archive_of_this_computer_gets_its_hash(world: World, tmp_path: Path) -> None:
    path = tmp_path / "lib-1.0.tar.gz"
    path.write_bytes(distributions.make_sdist("lib", "1.0"))
    plan = world.plan(f"lib @ {path.as_uri()}")
    assert len(package(plan, "lib").hashes["sha256"]) == 64
    assert "archive" in render(plan, "pylock")


def test_a_tree_whose_build_imports_no_torch_is_built_like_any_other(torch_world: World, source: Path) -> None:
    repository(source, {"setup.py": "from setuptools import setup; setup(install_requires=['torch'])"})
    plan = torch_world.plan("torch", f"plain @ git+{source.as_uri()}")
    assert compiled_packages(plan.packages, torch_world.catalogue()) == ()


def test_the_literal_requirements_of_a_setup_py_limit_torch(torch_world: World, source: Path) -> None:
    """A project for torch below 2.6 had a plan of status ok on a GPU that no such torch has code for."""
    repository(source, {"setup.py": "from setuptools import setup\nsetup(name='seg', install_requires=['torch<2.10'])"})
    plan = torch_world.plan(f"seg @ git+{source.as_uri()}")
    assert chosen(plan)["torch"] == "2.9.1 cu128"
    assert "dependencies-guessed" in codes(plan)


def test_what_only_the_catalogue_knows_of_a_tree_is_in_the_plan(torch_world: World, source: Path) -> None:
    commit = repository(source, {"setup.py": KERNELS})
    for name in ("packaging", "setuptools", "wheel", "ninja"):
        torch_world.default.wheel(name, "26.0")
    plan = torch_world.plan(f"apex @ git+{source.as_uri()}@{commit[:10]}")
    assert chosen(plan)["packaging"] == "26.0" and "dependencies-guessed" in codes(plan)
    assert "asked: packaging>20.6 (apex requires it)" in package(plan, "packaging").why
    assert plan.toolchain is not None and plan.toolchain.environment["APEX_CUDA_EXT"] == "1"


def ways(plan: Plan) -> list[str]:
    assert plan.status == "impossible"
    return [remedy.text for remedy in plan.remedies]


def test_two_trees_of_one_name(world: World, source: Path, tmp_path: Path) -> None:
    for folder in (source, tmp_path / "other"):
        repository(folder, {"pyproject.toml": '[project]\nname = "pure"\nversion = "2.0"\n'})
    asked = [f"pure @ {folder.as_uri()}" for folder in (source, tmp_path / "other")]
    assert sorted(ways(world.plan(*asked))) == sorted(f"leave out '{text}'" for text in asked)


def test_the_version_of_a_tree_counts_where_it_is_known(world: World, source: Path) -> None:
    repository(source, {"pyproject.toml": PURE.replace('["dep>=1"]', "[]")})
    world.default.wheel("user", "1.0", requires=["pure>=3"])
    plan = world.plan(f"pure @ {source.as_uri()}", "user")
    assert plan.conflict[-1].fact == f"the pure at {source.as_uri()} does not satisfy >=3"
    assert ways(plan) == ["request pure by name, without the URL"]
    (source / "pyproject.toml").write_text('[project]\nname = "pure"\ndynamic = ["version"]\n')
    assert chosen(world.plan(f"pure @ {source.as_uri()}", "user")) == {"pure": "0+unread", "user": "1.0"}


def test_a_tree_in_the_place_of_torch_beside_what_is_compiled_against_published_ones(
    torch_world: World, source: Path
) -> None:
    repository(source, {"pyproject.toml": '[project]\nname = "torch"\nversion = "2.9.1"\n'})
    plan = torch_world.plan(f"torch @ {source.as_uri()}", "torchvision")
    assert ways(plan) == ["request torch by name, without the URL"]
    assert "and it is not known which packages that build is compatible with" in plan.conflict[-1].fact


def test_a_tree_that_pins_a_torch_that_is_not_there(torch_world: World, source: Path) -> None:
    torch_world.build("torch", "2.0.0", "cu118", code=("sm_90",), pythons=("cp310", "cp311"))
    repository(source, {"pyproject.toml": '[project]\nname = "pins"\nversion = "1"\ndependencies = ["torch==2.0"]\n'})
    plan = torch_world.plan(f"pins @ {source.as_uri()}")
    assert ways(plan) == ["use another Python: 3.10, 3.11"]
    assert plan.conflict[-1].fact == "torch 2.0.0 [cu118]: no wheel for cp312 (only cp310, cp311)"
    torch_world.build("torch", "2.0.0", "cu117", code=("sm_80",))
    new_card = torch_world.plan(f"pins @ {source.as_uri()}", target="RTX 5090, driver 580.95.05")
    assert ways(new_card)[0] == "relax torch==2.0"


def test_nothing_is_promised_of_what_is_compiled_on_windows(torch_world: World, source: Path) -> None:
    torch_world.build("torch", "2.9.1", "cu128", code=("sm_89",), platform="win_amd64")
    for name in ("setuptools", "wheel", "ninja"):
        torch_world.default.wheel(name, "1.0")
    repository(source, {"setup.py": KERNELS})
    plan = torch_world.plan(f"kernels @ {source.as_uri()}", target="RTX 4090, driver 580.95, python 3.12, win-amd64")
    assert plan.status == "unknown"
    assert plan.toolchain is not None and (plan.toolchain.host_compilers, plan.toolchain.get_nvcc) == (None, None)
    (compiles,) = (caution for caution in plan.warnings if caution.code == "compiles")
    assert "Microsoft's C++ compiler" in compiles.message and "WSL 2" in (compiles.remedy or "")
    assert not {"nvcc", "host-compiler"} & set(codes(plan))

"""Source trees read without their builds: which commit they are, and what they say of themselves."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envsolve.errors import UsageError
from envsolve.packages.model import CoreMetadata
from envsolve.packages.source_trees import described, read_tree
from envsolve.packages.urls import Tree, read_address
from tests.packages.repositories import git, repository

needs_git = pytest.mark.skipif(not shutil.which("git"), reason="needs git")
PROJECT = """
[build-system]
requires = ["setuptools>=64", "torch"]
[project]
name = "My_Kernels"
version = "1.2"
requires-python = ">=3.10"
dependencies = ["numpy>=1"]
optional-dependencies.fast = ["numba ; python_version < '3.14'"]
"""


@pytest.mark.parametrize(
    ("url", "tree"),
    [
        ("git+https://h/o/r.git", Tree(repository="https://h/o/r.git")),
        ("git+https://h/o/r.git@v1", Tree(repository="https://h/o/r.git", revision="v1")),
        ("git+ssh://git@h/o/r@a/b#egg=x", Tree(repository="ssh://git@h/o/r", revision="a/b")),
        ("git+file:///r@v1#subdirectory=a/b", Tree(repository="file:///r", revision="v1", subdirectory="a/b")),
        ("file:///some%20folder", Tree(folder="/some folder")),
    ],
)
def test_addresses(url: str, tree: Tree) -> None:
    assert read_address(url) == tree


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("hg+https://h/r", "only git repositories are read, not hg"),
        ("git+ext::sh -c true", "git does not support this kind of URL"),
        ("git+https://h/r@--upload-pack=x", "git does not support this kind of URL"),
        ("git+https://h/r#subdirectory=../x", "is not in it"),
        ("git+https://[h/r", "it is not a valid URL"),
    ],
)
def test_addresses_that_are_not_followed(url: str, says: str) -> None:
    assert says in (read_address(url).unread or "")


@given(st.text(max_size=40))
def test_any_text_is_an_address_or_told_why_not(text: str) -> None:
    tree = read_address(f"git+{text}")
    assert tree.unread or (tree.repository and not (tree.revision or "").startswith("-"))


@pytest.mark.parametrize("base", ["git+https://h/o/r", "git+https://h/o/r@v1", "git+file:///r@v1#subdirectory=a"])
def test_an_address_is_written_as_it_is_read(base: str) -> None:
    assert read_address(base).address == base


def say(**files: str) -> tuple[CoreMetadata, Tree]:
    content = {name.replace("_", "."): text.encode() for name, text in files.items()}
    content |= {"PKG-INFO": content.pop("PKG.INFO")} if "PKG.INFO" in content else {}
    read = described("asked", Tree(folder="/t"), content.get)
    return read.metadata, read.tree


def test_a_project_table_is_exact() -> None:
    metadata, tree = say(pyproject_toml=PROJECT)
    assert (metadata.name, metadata.version, metadata.requires_python) == ("My_Kernels", "1.2", ">=3.10")
    assert metadata.requires_dist[0] == "numpy>=1"
    assert metadata.requires_dist[1].endswith("""(python_version < '3.14') and extra == "fast\"""")
    assert tree.exact and tree.needs_torch and tree.build_requires == ("setuptools>=64", "torch")


@pytest.mark.parametrize(
    ("files", "exact", "torch", "version"),
    [
        ({"setup_py": "import torch\nsetup(name='x')"}, True, True, ""),
        ({"setup_py": "import torch\nsetup(**more())"}, False, True, ""),
        ({"setup_py": "setup(install_requires=['torch'])"}, False, False, ""),
        ({"setup_py": "try:\n    from torch.utils.cpp_extension import CUDAExtension\nexcept: 0"}, False, True, ""),
        ({"setup_py": "try:\n    import torch\nexcept: 0\nsetup(install_requires=['a'])"}, False, False, ""),
        ({"pyproject_toml": '[project]\nname = "x"\ndynamic = ["version"]'}, True, False, ""),
        ({"pyproject_toml": '[project]\nname = "x"\nversion = "1"\ndynamic = ["dependencies"]'}, False, False, "1"),
        ({"pyproject_toml": "[project]\nname = 3"}, False, False, ""),
        (
            {"setup_py": "", "PKG_INFO": "Metadata-Version: 2.4\nName: x\nVersion: 3\nRequires-Dist: y\n"},
            True,
            False,
            "3",
        ),
        ({"setup_py": ""}, False, False, ""),
    ],
)
def test_what_only_the_build_knows_is_not_known(files: dict[str, str], exact: bool, torch: bool, version: str) -> None:
    metadata, tree = say(**files)
    assert (metadata.exact, tree.exact, tree.needs_torch, metadata.version) == (exact, exact, torch, version)


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({}, "file:///t has neither a pyproject.toml nor a setup.py"),
        ({"setup_cfg": "[metadata]"}, "neither a pyproject.toml nor a setup.py"),
        ({"pyproject_toml": "]["}, "is not TOML: "),
        ({"pyproject_toml": "[project", "setup_py": ""}, "is not TOML: "),
    ],
)
def test_what_no_installer_could_build_is_refused(files: dict[str, str], says: str) -> None:
    with pytest.raises(UsageError, match=re.escape(says)) as caught:
        say(**files)
    assert caught.value.hint


@needs_git
def test_a_branch_a_tag_and_a_commit_are_one_commit(tmp_path: Path) -> None:
    folder = tmp_path / "repository"
    first = repository(folder, {"pyproject.toml": PROJECT}, tag="v1")
    second = repository(folder, {"sub/pyproject.toml": PROJECT.replace("1.2", "1.3")})
    address = f"git+{folder.as_uri()}"
    asked = {"": second, "@main": second, "@v1": first, f"@{first}": first, f"@{first[:9]}": first}
    for revision, commit in asked.items():
        read = read_tree("my-kernels", address + revision, offline=True)
        assert (read.tree.commit, read.metadata.version) == (commit, "1.2")
    assert read_tree("my-kernels", f"{address}#subdirectory=sub", offline=False).metadata.version == "1.3"
    assert git(folder, "status", "--porcelain") == ""


@needs_git
def test_a_file_of_a_repository_that_is_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("envsolve.packages.source_trees.MAX_BYTES", 10)
    folder = tmp_path / "repository"
    repository(folder, {"pyproject.toml": PROJECT})
    with pytest.raises(UsageError, match=r"pyproject\.toml in it is larger than"):
        read_tree("my-kernels", f"git+{folder.as_uri()}", offline=True)


@needs_git
def test_what_cannot_be_reached_is_told() -> None:
    read = read_tree("x", "git+https://me:s3cret@example.org/r", offline=False)
    assert "transport 'https' not allowed" in (read.tree.unread or "") and "s3cret" not in (read.tree.unread or "")
    assert read.tree.commit is None and not read.metadata.exact


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("git+file:///nowhere/r", "does not appear to be a git repository"),
        (
            "git+https://me:s3cret@h/r#subdirectory=../x",
            r"git\+https://\*{4}@h/r.* is not the URL .*: its subdirectory",
        ),
        ("git+https://h/r@--upload-pack=x", "git does not support this kind of URL"),
        ("file:///nowhere/r", "there is no directory /nowhere/r to build x from"),
    ],
)
@needs_git
def test_what_is_nowhere_is_wrong_usage(address: str, says: str) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        read_tree("x", address, offline=True)
    assert caught.value.hint


@needs_git
def test_a_revision_that_is_not_there_and_those_that_are(tmp_path: Path) -> None:
    repository(tmp_path / "r", {"setup.py": ""}, tag="v1.9")
    with pytest.raises(UsageError, match=r"file://.*/r has no revision v9") as caught:
        read_tree("x", f"git+{(tmp_path / 'r').as_uri()}@v9", offline=False)
    assert caught.value.hint == "it has v1.9, main, ..."


def test_without_git_or_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    offline = read_tree("x", "git+https://example.org/r", offline=True)
    assert "offline" in (offline.tree.unread or "")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert read_tree("x", "git+file:///r", offline=False).tree.unread == "git is not installed on this machine"


def test_a_folder_is_read_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    read = read_tree("my-kernels", tmp_path.as_uri(), offline=True)
    assert read.tree.folder == str(tmp_path) and read.metadata.version == "1.2"

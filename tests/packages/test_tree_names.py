"""Names of projects that a requirement does not say."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from envsolve.errors import UsageError
from envsolve.packages.requirement_files import read_requirements
from envsolve.packages.requirements import read_requirement
from envsolve.packages.tree_names import stated_name

SETUP = 'from setuptools import setup\nNAME = "My_Lib"\nsetup(name=NAME, version="1")\n'


@pytest.mark.parametrize(
    ("files", "name"),
    [
        ({"setup.py": 'from setuptools import setup\nsetup(name="library")\n'}, "library"),
        ({"setup.py": SETUP}, "my-lib"),
        ({"setup.py": "import setuptools\nsetuptools.setup()\n", "setup.cfg": "[metadata]\nname = lib\n"}, "lib"),
        ({"pyproject.toml": '[tool.poetry]\nname = "poem"\n'}, "poem"),
        ({"pyproject.toml": '[project]\nname = "one"\n', "setup.py": SETUP}, "one"),
        ({"setup.py": "setup(name=read())\n"}, None),
        ({"setup.py": "this is no Python", "setup.cfg": "nor this", "pyproject.toml": "nor this"}, None),
        ({}, None),
    ],
)
def test_the_name_is_what_the_files_state(files: dict[str, str], name: str | None) -> None:
    assert stated_name(files.get) == name


@pytest.mark.parametrize("editable", ["-e .", "-e ./", "."])
def test_a_directory_with_only_a_setup_py_is_a_tree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, editable: str
) -> None:
    (tmp_path / "setup.py").write_text(SETUP)
    (tmp_path / "requirements.txt").write_text(f"{editable}\n")
    monkeypatch.chdir(tmp_path)
    (need,) = read_requirements([], [Path("requirements.txt")]).needs
    assert (need.requirement.name, need.requirement.url) == ("my-lib", tmp_path.as_uri())
    (asked,) = read_requirements(["."]).needs
    assert asked.requirement.url == need.requirement.url


def test_a_repository_without_a_name_is_asked_for_it(tmp_path: Path) -> None:
    repository = tmp_path / "Other"
    repository.mkdir()
    (repository / "setup.py").write_text(SETUP)
    git = ["git", "-C", str(repository), "-c", "user.name=a", "-c", "user.email=a@b.c"]
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "first"]):
        subprocess.run([*git, *command], check=True)
    (need,) = read_requirements([f"git+{repository.as_uri()}"]).needs
    assert (need.requirement.name, need.requirement.url) == ("my-lib", f"git+{repository.as_uri()}")


def test_a_repository_that_cannot_be_read_has_its_own_name(tmp_path: Path) -> None:
    (need,) = read_requirements([f"git+{(tmp_path / 'CLIP.git').as_uri()}@main"]).needs
    assert need.requirement.name == "clip"


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("tiny-cuda-nn/#subdirectory=bindings/torch", "tiny-cuda-nn-torch"),
        ("lib.git@v1#subdirectory=python", "lib-python"),
        ("Some%2BLib.git@main", "some-lib"),
    ],
)
def test_a_guessed_name_is_that_of_no_other_project(tmp_path: Path, url: str, name: str) -> None:
    (need,) = read_requirements([f"git+{tmp_path.as_uri()}/{url}"]).needs
    assert need.requirement.name == name


def test_a_directory_name_becomes_a_project_name(tmp_path: Path) -> None:
    directory = tmp_path / "Some+Lib @home"
    directory.mkdir()
    (directory / "setup.py").write_text("setup(name=read())\n")
    (need,) = read_requirements([str(directory)]).needs
    assert (need.requirement.name, need.requirement.url) == ("some-lib-home", directory.as_uri())


@pytest.mark.parametrize("login", ["", "me:s3cret@"])
def test_where_nothing_may_be_fetched_a_repository_must_have_a_name(login: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_requirement(f"git+https://{login}example.org/foo.git", "command line")
    shown = "****@" if login else ""
    assert caught.value.message.endswith(
        f"git+https://{shown}example.org/foo.git does not contain the name of the package"
    )


def test_a_directory_takes_the_extras_that_its_files_name(tmp_path: Path) -> None:
    script = (
        "from setuptools import setup\nsetup(name='app', extras_require={'cu118': ['torch==2.6.0'], 'Dev_X': []})\n"
    )
    (tmp_path / "setup.py").write_text(script)

    def extras(*asked: str) -> set[str]:
        (need,) = read_requirements([str(tmp_path)], extras=asked).needs
        return need.requirement.extras

    assert (extras("cu118"), extras("cu118", "dev-x"), extras()) == ({"cu118"}, {"cu118", "dev-x"}, set())
    with pytest.raises(UsageError, match="no project has an extra 'cu999'"):
        extras("cu999")

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from envsolve.errors import UsageError
from envsolve.install import environment


def _file(path: Path) -> None:
    path.write_text("")


def _folder(path: Path) -> None:
    path.mkdir()
    (path / "thesis.tex").touch()


def _environment(path: Path) -> None:
    path.mkdir()
    (path / "pyvenv.cfg").touch()
    (path / "lib").mkdir()


def _link(path: Path) -> None:
    _environment(path.with_name("real"))
    path.symlink_to(path.with_name("real"))


def _broken_link(path: Path) -> None:
    path.symlink_to("nowhere")


def _conda(path: Path) -> None:
    _environment(path)
    (path / "conda-meta").mkdir()


@pytest.mark.parametrize("make", [lambda path: None, Path.mkdir])
def test_may_be_taken(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "env")
    before = list(tmp_path.iterdir())
    environment.claim(tmp_path / "env")
    assert list(tmp_path.iterdir()) == before, "only the install itself writes"


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (_file, "is a file"),
        (_folder, "contains other files and is not an environment"),
        (_environment, "envsolve did not create"),
        (_link, "is a symbolic link"),
        (_broken_link, "is a symbolic link"),
        (_conda, "is a conda environment that envsolve did not create"),
    ],
)
def test_is_refused(tmp_path: Path, make: Callable[[Path], None], reason: str) -> None:
    make(tmp_path / "env")
    with pytest.raises(UsageError, match=reason):
        environment.claim(tmp_path / "env")


def test_a_mount_point_is_refused() -> None:
    with pytest.raises(UsageError, match="is a mount point"):
        environment.claim(Path("/proc"))


def test_the_inside_of_another_environment_is_refused(tmp_path: Path) -> None:
    _environment(tmp_path / "outer")
    with pytest.raises(UsageError, match="lies inside the environment"):
        environment.claim(tmp_path / "outer" / "share" / "env")


@pytest.mark.parametrize("path", ["/", "name\nbreak", "", ".", "..", "a:b", 'a"b', "a$b", "a`b", "a\\b", "n" * 256])
def test_names_that_cannot_hold_an_environment(path: str) -> None:
    with pytest.raises(UsageError) as caught:
        environment.resolved(Path(path))
    assert caught.value.hint or path in ("/", "name\nbreak")


def test_folders_above_are_resolved_and_the_last_part_is_not(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert environment.resolved(tmp_path / "link" / "env") == tmp_path.resolve() / "real" / "env"
    assert environment.resolved(tmp_path / "link") == tmp_path.resolve() / "link"

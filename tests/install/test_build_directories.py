"""Folders that are built: what of them is copied, and what tells one content from another."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from envsolve.install.building import copy_sources, source_digest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "project"
    for name in ("setup.py", "csrc/a.cu", "build/tools.py", "library/b.py", ".git/HEAD"):
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (place / "link").symlink_to("csrc")
    return place


LEFT = (
    "build/lib.linux-x86_64-cpython-312/k.so",
    "build/temp.linux-x86_64-cpython-312/a.o",
    "k.egg-info/PKG-INFO",
    "csrc/__pycache__/x.pyc",
    "env/pyvenv.cfg",
    ".env.envsolve/env/bin/python",
)


def test_what_builds_left_and_environments_are_no_part_of_it(folder: Path, tmp_path: Path) -> None:
    before = source_digest(folder)
    for name in LEFT:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("left")
    assert source_digest(folder) == before
    copy_sources(folder, folder / ".env.envsolve" / "trees" / "x")
    copy_sources(folder, tmp_path / "copy")
    there = {str(path.relative_to(tmp_path / "copy")) for path in (tmp_path / "copy").rglob("*")}
    assert {"build/tools.py", ".git/HEAD", "link", "library/b.py"} <= there
    assert not there & set(LEFT)
    assert source_digest(tmp_path / "copy") == before


def test_pipes_and_sockets_are_no_part_of_it(folder: Path, tmp_path: Path) -> None:
    before = source_digest(folder)
    os.mkfifo(folder / "csrc" / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(folder / "s"))
        assert source_digest(folder) == before
        copy_sources(folder, tmp_path / "copy")
    assert not {"pipe", "s"} & {path.name for path in (tmp_path / "copy").rglob("*")}


@pytest.mark.parametrize("change", ["content", "name", "mode", "link", "more"])
def test_every_change_of_its_sources_is_seen(folder: Path, change: str) -> None:
    before = source_digest(folder)
    if change == "content":
        (folder / "csrc/a.cu").write_text("other")
    elif change == "name":
        (folder / "csrc/a.cu").rename(folder / "csrc/c.cu")
    elif change == "mode":
        (folder / "setup.py").chmod(0o755)
    elif change == "link":
        (folder / "link").unlink()
        (folder / "link").symlink_to("library")
    else:
        (folder / "csrc/empty.h").touch()
    assert source_digest(folder) != before

"""Files that somebody else names, the directories of a user, and values as JSON text."""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path
from types import MappingProxyType
from typing import NoReturn

import pytest

from envsolve.errors import EnvsolveError
from envsolve.machine.model import Gpu, Machine
from envsolve.system.files import dump, open_regular, replace_file, user_folder


@pytest.mark.skipif(sys.platform != "linux", reason="platformdirs answers elsewhere")
def test_a_user_without_a_home_is_told_what_to_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> NoReturn:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", none)
    with pytest.raises(EnvsolveError, match="HOME is not set") as caught:
        user_folder("data", {})
    assert "XDG_DATA_HOME" in (caught.value.hint or "")
    assert user_folder("data", {"XDG_DATA_HOME": str(tmp_path)}) == tmp_path / "envsolve"


@pytest.mark.parametrize("value", [{}, {"b": [], "a": {}}, "\x00\x1f\x7f\u2028é😀", [1, 0.25, None, True]])
def test_it_is_written_as_the_standard_library_does(value: object) -> None:
    assert dump(value) == json.dumps(value, indent=2, ensure_ascii=False, sort_keys=True) + "\n"


def test_fields_keep_their_order_and_mappings_are_sorted() -> None:
    text = dump(Machine(gpus=(Gpu("H100"),), environment=MappingProxyType({"b": "2", "a": "1"})))
    assert text.index('"gpus"') < text.index('"environment"')
    assert text.index('"a"') < text.index('"b"')


def test_a_path_that_is_no_utf_8_can_be_written_to_a_file() -> None:
    text = dump({"path": "/é/\udcff"})
    assert json.loads(text.encode("utf-8")) == {"path": "/é/\udcff"}


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes on disk")
def test_a_pipe_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path):
        with pytest.raises(OSError, match="regular file"):
            open_regular(path)


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o755])
def test_a_file_that_is_replaced_keeps_its_mode(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "pip.conf"
    file.write_text("old")
    file.chmod(mode)
    replace_file(file, "new")
    assert (file.read_text(), stat.S_IMODE(file.stat().st_mode)) == ("new", mode)
    assert not list(tmp_path.glob(".pip*"))


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root gives files away")
def test_root_leaves_a_file_its_owner(tmp_path: Path) -> None:
    file = tmp_path / "pyproject.toml"
    file.write_text("old")
    os.chown(file, 65534, 65534)
    replace_file(file, "new")
    assert (file.stat().st_uid, file.stat().st_gid) == (65534, 65534)

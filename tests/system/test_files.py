"""Files that somebody else names, the directories of a user, and values as JSON text."""

from __future__ import annotations

import json
import os
import stat
import sys
import warnings
from pathlib import Path
from types import MappingProxyType
from typing import NoReturn

import msgspec
import pytest

from envsolve.errors import EnvsolveError
from envsolve.machine.model import Gpu, Machine
from envsolve.system.files import (
    dump,
    from_json,
    home_path,
    open_regular,
    read_regular,
    replace_file,
    user_folder,
    without_warnings,
)


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


def test_a_file_with_a_number_that_python_does_not_convert_is_refused(tmp_path: Path) -> None:
    (path := tmp_path / "requirements.txt").write_text("torch==" + "9" * 5000)
    with pytest.raises(OSError, match="a number of more than 4300 digits"):
        read_regular(path)
    with pytest.raises(msgspec.DecodeError, match="a number of more than 4300 digits"):
        from_json(b'"' + b"9" * 5000 + b'"', str)


def test_an_unknown_user_is_no_home() -> None:
    assert home_path("~nobody-of-that-name/x") == Path("~nobody-of-that-name/x")


def test_a_parser_of_foreign_text_warns_nobody() -> None:
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        with without_warnings():
            warnings.warn("odd", SyntaxWarning, stacklevel=1)
        assert heard == []
        warnings.warn("heard again", SyntaxWarning, stacklevel=1)
    assert [str(one.message) for one in heard] == ["heard again"]

"""Files that somebody else names, and the folders of a user."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NoReturn

import pytest

from envsolve.errors import EnvsolveError
from envsolve.system.files import user_folder


@pytest.mark.skipif(sys.platform != "linux", reason="platformdirs answers elsewhere")
def test_a_user_without_a_home_is_told_what_to_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> NoReturn:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", none)
    with pytest.raises(EnvsolveError, match="HOME is not set") as caught:
        user_folder("data", {})
    assert "XDG_DATA_HOME" in (caught.value.hint or "")
    assert user_folder("data", {"XDG_DATA_HOME": str(tmp_path)}) == tmp_path / "envsolve"

"""Files beside a prefix while an environment is made there."""

from __future__ import annotations

from pathlib import Path

import pytest

from envsolve.errors import UsageError
from envsolve.install.errors import InstallError
from envsolve.install.sources import logged
from envsolve.install.staging import Staging, opened


def test_a_link_in_the_place_of_the_working_directory_is_refused(tmp_path: Path) -> None:
    """A cloned repository may contain such a link; deleting the working directory would follow it."""
    victim = tmp_path / "victim"
    victim.mkdir()
    victim.chmod(0o755)
    (victim / "kept").write_text("kept")
    (tmp_path / ".env.envsolve").symlink_to("victim")
    with (
        pytest.raises(UsageError, match="is a link"),
        opened(tmp_path / "env", wait=0, progress=lambda step: None),
    ):
        pass
    assert victim.stat().st_mode & 0o777 == 0o755
    assert (victim / "kept").read_text() == "kept"


def test_the_log_of_a_failed_build_replaces_a_link(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("precious")
    (tmp_path / "env.build.log").symlink_to("precious")
    (tmp_path / "stage").mkdir()
    stage = Staging(tmp_path / "env", tmp_path / "stage")
    with pytest.raises(InstallError, match="broken"), logged(stage, lambda step: None):
        raise InstallError("broken")
    assert precious.read_text() == "precious"
    assert (tmp_path / "env.build.log").is_file()
    assert not (tmp_path / "env.build.log").is_symlink()

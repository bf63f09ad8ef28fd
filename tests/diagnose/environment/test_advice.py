"""Commands rewritten for an environment: which of them, and how."""

from __future__ import annotations

from pathlib import Path

import pytest

from envsolve.diagnose.fixes import in_environment
from envsolve.environment.read import read_outline


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    root = tmp_path / "an env"
    (root / "lib/python3.12/site-packages").mkdir(parents=True)
    (root / "bin").mkdir()
    (root / "bin/python").touch()
    (root / "pyvenv.cfg").write_text("home = /usr/bin\nversion_info = 3.12.3\n")
    return root


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ('pip install "numpy<2"', "uv pip install --python 'DIR' \"numpy<2\""),
        ("pip uninstall -y a && pip install --index-url URL b", "uv pip uninstall --python 'DIR' a && "
         "uv pip install --python 'DIR' --index URL b"),
        ('X="8.9" pip install a', "X=\"8.9\" uv pip install --python 'DIR' a"),
        ("conda install a", "conda install -p 'DIR' a"),
        ("envsolve plan --prefix DIR", "envsolve plan --prefix 'DIR'"),
        # These name another environment, or are not installs.
        ("uv venv v && VIRTUAL_ENV=v uv pip install a", "uv venv v && VIRTUAL_ENV=v uv pip install a"),
        ("conda install -n other a", "conda install -n other a"),
        ("sudo apt-get install gcc; pip list", "sudo apt-get install gcc; pip list"),
    ],
)  # fmt: skip
def test_commands_name_the_environment(prefix: Path, command: str, expected: str) -> None:
    assert in_environment(command, read_outline(prefix, {})) == expected.replace("DIR", str(prefix))


def test_an_environment_with_a_pip_of_its_own_is_changed_by_that(prefix: Path) -> None:
    info = prefix / "lib/python3.12/site-packages/pip-26.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: pip\nVersion: 26.0\n")
    command = in_environment("uv pip install --index URL a", read_outline(prefix, {}))
    assert command == f"'{prefix}/bin/python' -m pip install --index-url URL a"

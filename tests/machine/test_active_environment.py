"""Reading the machine runs nothing of the active environment."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from envsolve.machine import tools


@pytest.mark.skipif(sys.platform == "win32", reason="programs are shell scripts")
@pytest.mark.parametrize("variable", ["VIRTUAL_ENV", "CONDA_PREFIX"])
def test_programs_of_the_active_environment_do_not_run(variable: str, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    for name in ("nvcc", "gcc", "python3", "pip", "uv"):
        program = tmp_path / "bin" / name
        program.write_text(f"#!/bin/sh\necho {name} >> {tmp_path}/RAN\necho 12.4.0\n")
        program.chmod(0o755)
    environ = {variable: str(tmp_path), "PATH": f"{tmp_path}/bin{os.pathsep}/usr/bin{os.pathsep}/bin"}
    tools.find_toolkits(environ)
    for path in tools.find_compilers(environ):
        tools.read_compiler(path, environ)
    for path in tools.find_interpreters(environ):
        tools.read_interpreter(path, environ)
    for name, path in tools.find_installers([tmp_path / "bin"]).items():
        assert tools.read_installer(name, path, environ).version is None
    assert not (tmp_path / "RAN").exists()

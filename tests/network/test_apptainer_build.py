"""A definition file of a plan, built by Apptainer for real in a root file system of Debian, from nothing but packages.

No registry is asked: where the file names an image of Docker's, the test puts a folder with Debian 12 in it, whose own
Python is 3.11.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.network.roots import ENVSOLVE, NEEDS_ROOT, PIVOT, TARGET, python, ran, with_builder

pytestmark = [pytest.mark.network, NEEDS_ROOT]

# Apptainer wants every capability, which root has in a user namespace of its own even where it is confined outside.
ENTER = """\
import ctypes, os, sys
there, here = os.pipe(), os.pipe()
child = os.fork()
if child == 0:
    failed = ctypes.CDLL(None, use_errno=True).unshare(0x10000000 | 0x00020000)
    os.write(there[1], b"x"), os.read(here[0], 1)
    os.setresgid(0, 0, 0), os.setresuid(0, 0, 0)
    sys.exit(1) if failed else os.execvp(sys.argv[1], sys.argv[1:])
os.read(there[0], 1)
for name in ("gid_map", "uid_map"):
    open(f"/proc/{child}/{name}", "w").write("0 0 65536\\n")
os.write(here[1], b"x")
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_the_definition_of_a_plan_builds_and_proves_itself(tmp_path: Path) -> None:
    root = with_builder("sid", "apptainer", tmp_path / "root")
    work = root / "work"
    base = python(work / "base")
    shutil.rmtree(base / "dev")  # devices, which nobody may make in a user namespace
    (base / "dev").mkdir()
    ran(*ENVSOLVE, "plan", "triton", "numpy", *TARGET, "--for", "apptainer", "-o", work / "made.def")
    text = (work / "made.def").read_text()
    local = re.sub(r"^Bootstrap: docker\nFrom: python:.*$", "Bootstrap: localimage\nFrom: /work/base", text, flags=re.M)
    assert local.count("localimage") == 2
    (work / "made.def").write_text(local)
    wheel = next(work.glob("envsolve-*.whl")).name
    build = f"apptainer build --bind /work:/mnt --build-arg ENVSOLVE=/mnt/{wheel} --sandbox made made.def"
    proof = "apptainer exec made env && apptainer exec made gcc --version && apptainer test made"
    said = ran(sys.executable, "-c", ENTER, "bash", "-c", PIVOT, root, f"{build} && {proof}")
    assert "cubins for sm_90" in said, "the kernels were compiled as it was built"
    assert "PIP_CONSTRAINT=/opt/env/constraints.txt" in said
    assert said.count("No broken requirements found") == 3, "as it is built, as it is made, and as it is run"

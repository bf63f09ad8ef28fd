"""Locks of real packages, read by other tools than pip and uv: PDM installs them, pip-audit lists what is in them.

Poetry 2.5 writes such locks with a plug-in, and reads none.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from tests.network.tools import Tools

pytestmark = [
    pytest.mark.network,
    pytest.mark.skipif(sys.platform != "linux", reason="the locks are made for this machine's Python on Linux"),
]

_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
_ASKED = ("six", "requests")
_HERE = f"H100, driver 580.95.05, python {_PYTHON}, linux-{platform.machine()}, glibc 2.28"
_OTHER = f"H100, driver 580.95.05, python {_PYTHON}, win-amd64"


def tool(tools: Tools, requirement: str, name: str) -> str:
    """A program in an environment of its own, from the default index."""
    folder = tools.folder / f"tool-{name}"
    if not folder.is_dir():
        tools.run(sys.executable, "-m", "venv", str(folder))
        tools.uv("install", "--python", str(folder), requirement)
    return str(folder / "bin" / name)


def project(tools: Tools, name: str, *targets: str) -> Path:
    """A project with a lock of what it requires."""
    folder = tools.folder / name
    folder.mkdir()
    dependencies = json.dumps(list(_ASKED))
    (folder / "pyproject.toml").write_text(
        f'[project]\nname = "p"\nversion = "1"\nrequires-python = "=={_PYTHON}.*"\ndependencies = {dependencies}\n'
    )
    options = [word for target in targets for word in ("--target", target)]
    tools.envsolve(*_ASKED, *options, "-o", str(folder / "pylock.toml"))
    return folder


@pytest.mark.parametrize("targets", [(_HERE,), (_HERE, _OTHER)], ids=["one", "two"])
def test_pdm_installs_a_lock(tools: Tools, targets: tuple[str, ...]) -> None:
    # PDM's own "locked" extra: without it, today's hishel 2.0 keeps pdm 2.29 from starting a download.
    pdm = tool(tools, "pdm[locked]", "pdm")
    folder = project(tools, f"pdm-{len(targets)}", *targets)
    tools.run(sys.executable, "-m", "venv", "--without-pip", str(folder / ".venv"))
    tools.run(pdm, "config", "--project", str(folder), "--local", "lock.format", "pylock")
    tools.run(pdm, "use", "--project", str(folder), "-f", str(folder / ".venv/bin/python"))
    tools.run(pdm, "sync", "--project", str(folder), "--no-self")
    code = "import importlib.metadata as m; print(m.version('six'), m.version('requests'))"
    found = tools.run(str(folder / ".venv/bin/python"), "-c", code).stdout.split()
    planned = {p["name"]: p["version"] for p in tools.plan(*_ASKED, "--target", _HERE)["packages"]}
    assert found == [planned[name] for name in _ASKED]


def test_pip_audit_lists_a_lock(tools: Tools) -> None:
    audit = tool(tools, "pip-audit", "pip-audit")
    folder = project(tools, "audit", _HERE)
    # Its exit status says whether something is vulnerable; here the service may not be reachable at all.
    done = subprocess.run(
        [audit, "--locked", "--format", "json", str(folder)],
        env=tools.environment,
        capture_output=True,
        text=True,
        timeout=150,
    )
    listed = {entry["name"] for entry in json.loads(done.stdout)["dependencies"]}
    assert listed == {p["name"] for p in tools.plan(*_ASKED, "--target", _HERE)["packages"]}

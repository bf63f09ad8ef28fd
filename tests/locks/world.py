"""A loopback index with torch 2.9.0 as it is published, and projects that real uv locks against it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from envsolve.facts.builds import Build
from envsolve.facts.catalogue import Catalogue
from tests.indexserver import Index, IndexServer

UV = shutil.which("uv", path=str(Path(sys.executable).parent)) or shutil.which("uv")
_SHOWN = ("default", "cpu", "cu126", "cu130")


def _serve(index: Index, default: Index, build: Build, known: set[str]) -> None:
    for tag in build.pythons:
        if not tag.endswith("t"):
            tags = build.filename(tag)[:-4].split("-", 2)[2]
            index.wheel(build.package, f"{build.version}{build.local}", requires=build.requires or (), tags=tags)
    for line in build.requires or ():
        requirement = Requirement(line)
        pins = [one.version for one in requirement.specifier if one.operator in ("==", ">=") and "*" not in one.version]
        text = f"{requirement.name} {pins[0] if pins else '9.0'}"
        if "extra" not in str(requirement.marker) and requirement.name not in ("torch", "triton") and text not in known:
            known.add(text)
            default.wheel(requirement.name, text.split()[1])


def serve(server: IndexServer, catalogue: Catalogue) -> Index:
    """Serve torch 2.9.0 with its companions and requirements; the variants under ``/whl/``."""
    default = server.index()
    variants = {name: server.index(f"/whl/{name}/", style="pytorch") for name in _SHOWN[1:]}
    known: set[str] = set()
    for package, version in (("torch", "2.9.0"), ("torchvision", "0.24.0"), ("triton", "3.5.0")):
        for build in catalogue.builds(package):
            if build.version == version and (build.index == "default" or build.variant in variants):
                _serve(default if build.index == "default" else variants[build.variant], default, build, known)
    return default


def lock(folder: Path, project: str, index: Index) -> Path:
    """Let real uv lock a project."""
    if UV is None:
        pytest.skip("uv is not installed")
    (folder / "pyproject.toml").write_text(project)
    environ = {**os.environ, "UV_DEFAULT_INDEX": index.url, "UV_CACHE_DIR": str(folder / "cache")}
    command = [UV, "lock", "--python", sys.executable, "--project", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, env=environ, check=False)
    assert done.returncode == 0, done.stderr
    return folder / "uv.lock"

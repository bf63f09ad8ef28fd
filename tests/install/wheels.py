"""Tiny wheels and source distributions, and plans of them."""

from __future__ import annotations

import hashlib
import io
import sys
import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from envsolve.plan import Plan, PlannedPackage

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


def make_wheel(folder: Path, name: str, version: str, *, requires: Sequence[str] = (), padding: int = 0) -> Path:
    """A wheel with a module, a console script of the same name, and a ``#!python`` script ``NAME-raw``."""
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}/__init__.py": f"VERSION = {version!r}\n\n\ndef main():\n    print({name!r}, VERSION)\n",
        f"{name}-{version}.data/scripts/{name}-raw": f"#!python\nimport {name}\n{name}.main()\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        + "".join(f"Requires-Dist: {line}\n" for line in requires),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[console_scripts]\n{name} = {name}:main\n",
    }
    if padding:
        files[f"{name}/padding.txt"] = "x" * padding
    files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in files) + f"{info}/RECORD,,\n"
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, content in files.items():
            entry = zipfile.ZipInfo(path)
            entry.external_attr = (0o100755 if "/scripts/" in path else 0o100644) << 16
            archive.writestr(entry, content)
    return wheel


_BACKEND = """
import pathlib, sys, zipfile

def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    if {fails}:
        raise SystemExit("fatal error: cuda.h: No such file or directory")
    name, info = "{name}-{version}-py3-none-any.whl", "{name}-{version}.dist-info"
    files = {{
        "{name}.py": f"BUILT_BY = {{sys.executable!r}}\\n",
        f"{{info}}/METADATA": "Metadata-Version: 2.1\\nName: {name}\\nVersion: {version}\\n",
        f"{{info}}/WHEEL": "Wheel-Version: 1.0\\nGenerator: tests\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
    }}
    files[f"{{info}}/RECORD"] = "".join(f"{{path}},,\\n" for path in files) + f"{{info}}/RECORD,,\\n"
    with zipfile.ZipFile(pathlib.Path(wheel_directory, name), "w") as archive:
        for path, content in files.items():
            archive.writestr(path, content)
    return name

def build_sdist(sdist_directory, config_settings=None):
    raise NotImplementedError
"""


def make_sdist(folder: Path, name: str, version: str, *, fails: bool = False) -> Path:
    """A source distribution with a build backend of its own, whose wheel records the Python that built it."""
    files = {
        "PKG-INFO": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n',
        "backend.py": _BACKEND.format(name=name, version=version, fails=fails),
    }
    path = folder / f"{name}-{version}.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for file, content in files.items():
            entry = tarfile.TarInfo(f"{name}-{version}/{file}")
            entry.size = len(content.encode())
            archive.addfile(entry, io.BytesIO(content.encode()))
    return path


def planned(path: Path, url: str | None = None) -> PlannedPackage:
    """The plan's entry for a file made here."""
    name, version = path.name.removesuffix(".tar.gz").split("-")[:2]
    kind = "wheel" if path.suffix == ".whl" else "sdist"
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return PlannedPackage(
        name=name,
        version=version,
        variant=None,
        index=None,
        filename=path.name,
        url=url or path.as_uri(),
        hashes={"sha256": digest},
        kind=kind,  # type: ignore[arg-type]
    )


def plan_of(*packages: PlannedPackage, **fields: object) -> Plan:
    """A plan for the Python that runs the tests."""
    return Plan(python=PYTHON, packages=packages, **fields)  # type: ignore[arg-type]

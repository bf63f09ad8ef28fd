"""Wheels and source distributions that show where they were installed and by what, and plans of them."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path

from envsolve.planning.plan import Plan
from envsolve.solve.outcome import PlannedPackage
from tests import distributions

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


def make_wheel(folder: Path, name: str, version: str, *, requires: Sequence[str] = (), padding: int = 0) -> Path:
    """A wheel with a module, a console script of the same name, and a ``#!python`` script ``NAME-raw``."""
    files = {
        f"{name}/__init__.py": f"VERSION = {version!r}\n\n\ndef main():\n    print({name!r}, VERSION)\n",
        f"{name}/padding.txt": "x" * padding,
        f"{name}-{version}.data/scripts/{name}-raw": f"#!python\nimport {name}\n{name}.main()\n",
        f"{name}-{version}.dist-info/entry_points.txt": f"[console_scripts]\n{name} = {name}:main\n",
    }
    contents = {path: text.encode() for path, text in files.items()}
    wheel = folder / distributions.wheel_filename(name, version)
    wheel.write_bytes(distributions.make_wheel(name, version, requires=requires, files=contents))
    return wheel


# Adds to the wheel that lies in the archive a module which names the Python that built it.
_BACKEND = (
    distributions.BACKEND
    + b"""
copy_wheel = build_wheel

def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    import sys, zipfile
    name = copy_wheel(wheel_directory)
    with zipfile.ZipFile(os.path.join(wheel_directory, name), "a") as wheel:
        wheel.writestr("built_by.py", f"PYTHON = {sys.executable!r}\\n")
    return name
"""
)


def failing_backend(words: str) -> bytes:
    """A back end that ends with ``words``."""
    return f"def build_wheel(*arguments, **options):\n    raise SystemExit({words!r})\n".encode()


def stalling_backend(mark: Path) -> bytes:
    """A back end that writes its process number to ``mark``, then works for half a minute unless SIGKILL ends it.

    The file appears complete: a test that reads it between its creation and the write would look at ``/proc//stat``.
    """
    return f"""
import os, pathlib, signal, time

def build_wheel(*arguments, **options):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    fresh = pathlib.Path({str(mark)!r} + ".new")
    fresh.write_text(str(os.getpid()))
    fresh.replace({str(mark)!r})
    for _ in range(600):
        time.sleep(0.05)
        pathlib.Path("busy").mkdir(exist_ok=True)
""".encode()


def make_sdist(folder: Path, name: str, version: str, *, backend: bytes = _BACKEND) -> Path:
    """A source distribution whose wheel names the Python that built it, unless another back end is given."""
    path = folder / distributions.sdist_filename(name, version)
    path.write_bytes(distributions.make_sdist(name, version, backend=backend))
    return path


def small_pip(folder: Path, carried: Path) -> Path:
    """A pip of the carried one's version and file name that does nothing: 2 files in place of 500."""
    version = carried.name.split("-")[1]
    place = folder / carried.name
    place.write_bytes(distributions.make_wheel("pip", version, files={"pip/__init__.py": b"", "pip/__main__.py": b""}))
    return place


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

"""Wheels and source archives made in memory: small, real, and installable by pip and uv."""

from __future__ import annotations

import base64
import hashlib
import io
import tarfile
import zipfile
from collections.abc import Mapping, Sequence


def wheel_filename(name: str, version: str, tags: str = "py3-none-any") -> str:
    return f"{_escaped(name)}-{version}-{tags}.whl"


def sdist_filename(name: str, version: str) -> str:
    return f"{_escaped(name)}-{version}.tar.gz"


def make_metadata(
    name: str,
    version: str,
    *,
    requires: Sequence[str] = (),
    requires_python: str | None = None,
    extras: Sequence[str] = (),
    metadata_version: str = "2.1",
    dynamic: Sequence[str] = (),
) -> bytes:
    lines = [f"Metadata-Version: {metadata_version}", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Python: {requires_python}"] if requires_python else []
    lines += [f"Dynamic: {field}" for field in dynamic]
    lines += [f"Provides-Extra: {extra}" for extra in extras]
    lines += [f"Requires-Dist: {line}" for line in requires]
    return ("\n".join(lines) + "\n\nA description.\n").encode()


def make_wheel(
    name: str,
    version: str,
    *,
    requires: Sequence[str] = (),
    tags: str = "py3-none-any",
    requires_python: str | None = None,
    extras: Sequence[str] = (),
    files: Mapping[str, bytes] | None = None,
    compression: int = zipfile.ZIP_DEFLATED,
) -> bytes:
    """A wheel with one module (or the given files), its metadata at the end as build back ends have it."""
    info = f"{_escaped(name)}-{version}.dist-info"
    contents = dict(files or {f"{_escaped(name)}/__init__.py": f'__version__ = "{version}"\n'.encode()})
    wheel = ["Wheel-Version: 1.0", "Generator: tests", "Root-Is-Purelib: true"]
    python, abi, platforms = tags.split("-")
    wheel += [f"Tag: {p}-{abi}-{platform}" for p in python.split(".") for platform in platforms.split(".")]
    contents[f"{info}/METADATA"] = make_metadata(
        name, version, requires=requires, requires_python=requires_python, extras=extras
    )
    contents[f"{info}/WHEEL"] = ("\n".join(wheel) + "\n").encode()
    record = [f"{path},sha256={_record_digest(content)},{len(content)}" for path, content in contents.items()]
    contents[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,", ""]).encode()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for path, content in contents.items():
            entry = zipfile.ZipInfo(path, (2020, 1, 1, 0, 0, 0))
            entry.external_attr = (0o100755 if ".data/scripts/" in path else 0o100644) << 16
            archive.writestr(entry, content, compression)
    return buffer.getvalue()


BACKEND = b"""
import glob, os, shutil

def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    [wheel] = glob.glob("built/*.whl")
    return os.path.basename(shutil.copy(wheel, wheel_directory))
"""
_PYPROJECT = b'[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'


def make_sdist(
    name: str,
    version: str,
    *,
    requires: Sequence[str] = (),
    requires_python: str | None = None,
    metadata_version: str = "2.2",
    dynamic: Sequence[str] = (),
    requires_txt: str | None = None,
    padding: int = 0,
    backend: bytes = BACKEND,
) -> bytes:
    """A source archive that builds without a network: its back end, unless another is given, copies a wheel within it.

    Args:
        name: Project.
        version: Version.
        requires: ``Requires-Dist`` of PKG-INFO and of the wheel that it builds.
        requires_python: As in METADATA.
        metadata_version: Of PKG-INFO; below 2.2 its fields promise nothing.
        dynamic: PKG-INFO's ``Dynamic`` fields.
        requires_txt: Text of setuptools' ``.egg-info/requires.txt``; none when None.
        padding: Bytes of a member that comes last.
        backend: Source of the module that builds it.
    """
    metadata = make_metadata(
        name,
        version,
        requires=requires if metadata_version >= "2.2" else (),
        requires_python=requires_python,
        metadata_version=metadata_version,
        dynamic=dynamic,
    )
    wheel = make_wheel(name, version, requires=requires, requires_python=requires_python)
    contents = {"PKG-INFO": metadata, "pyproject.toml": _PYPROJECT, "backend.py": backend}
    contents[f"built/{wheel_filename(name, version)}"] = wheel
    if requires_txt is not None:
        contents[f"src/{_escaped(name)}.egg-info/requires.txt"] = requires_txt.encode()
    if padding:
        contents["padding.bin"] = hashlib.shake_128(b"padding").digest(padding)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for path, content in contents.items():
            member = tarfile.TarInfo(f"{_escaped(name)}-{version}/{path}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def _escaped(name: str) -> str:
    return name.replace("-", "_").replace(".", "_").lower()


def _record_digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()

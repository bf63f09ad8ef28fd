"""Environments on disk, small enough to read in a failing test: METADATA, RECORDs, version files and ELF headers."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.binaries.artefacts import elf

ALL = "sm_70 sm_75 sm_80 sm_86 sm_90 sm_100 sm_120"
CXX11 = b"\0_ZN3c106detail14torchCheckFailEPKcS2_jRKNSt7__cxx1112basic_stringIcE\0"
BEFORE_CXX11 = b"\0_ZN3c106detail14torchCheckFailEPKcS2_jRKSs\0"
NUMPY_1 = b"\0numpy.core._multiarray_umath\0"
NUMPY_2 = b"\0numpy._core._multiarray_umath\0numpy.core._multiarray_umath\0"


class Prefix:
    """A virtual environment that is filled file by file."""

    def __init__(
        self, folder: Path, *, python: str = "3.12", base: Path | None = None, settings: Mapping[str, str] = {}
    ) -> None:
        self.folder = folder
        self.python = python
        base = base or folder.parent / "base"
        library = base / f"lib/python{python}"
        (library / "site-packages").mkdir(parents=True, exist_ok=True)
        (library / "os.py").touch()
        header = base / f"include/python{python}/Python.h"
        header.parent.mkdir(parents=True, exist_ok=True)
        header.touch()
        self.base = base
        self.site = folder / f"lib/python{python}/site-packages"
        self.site.mkdir(parents=True)
        (folder / "bin").mkdir()
        (folder / "bin/python").write_bytes(elf())
        lines = {
            "home": f"{base}/bin",
            "version_info": f"{python}.4",
            "include-system-site-packages": "false",
            **settings,
        }
        (folder / "pyvenv.cfg").write_text("".join(f"{key} = {value}\n" for key, value in lines.items()))

    def add(
        self,
        name: str,
        version: str,
        files: Mapping[str, bytes | str] | None = None,
        *,
        requires: Sequence[str] = (),
        installer: str = "pip",
        site: Path | None = None,
    ) -> Path:
        """Install a distribution; its ``.dist-info`` folder."""
        return install(site or self.site, name, version, files or {}, requires=requires, installer=installer)

    def remove(self, name: str) -> None:
        """Uninstall a distribution: its files and its metadata."""
        (info,) = self.site.glob(f"{name.replace('-', '_')}-*.dist-info")
        for line in (info / "RECORD").read_text().splitlines():
            (self.site / line.partition(",")[0]).unlink()
        info.rmdir()

    def add_torch(
        self,
        version: str = "2.8.0+cu128",
        cuda: str | None = "12.8",
        *,
        code: str = ALL,
        abi: bytes = CXX11,
        numpy: bytes = NUMPY_2,
        requires: Sequence[str] = (),
        needed: Sequence[str] = ("libcudart.so.12",),
        init: str = "",
        site: Path | None = None,
        installer: str = "pip",
    ) -> Path:
        """Install a torch that has what real ones have where reading looks."""
        literal = b"\0" + code.encode() + b"\0" if cuda else b""
        libraries = {"torch/lib/libtorch_python.so": elf(("libtorch_cpu.so",), tail=literal + abi + numpy)}
        if cuda:
            path = "$ORIGIN/../../nvidia/cuda_runtime/lib:$ORIGIN/../../nvidia/cudnn/lib:$ORIGIN"
            libraries["torch/lib/libtorch_cuda.so"] = elf(needed, soname="libtorch_cuda.so", rpath=path)
        files: dict[str, bytes | str] = {
            "torch/__init__.py": init,
            "torch/version.py": f"__version__ = '{version}'\ncuda = {cuda!r}\nhip = None\n",
            **libraries,
        }
        return self.add("torch", version, files, requires=requires, site=site, installer=installer)


def install(
    site: Path,
    name: str,
    version: str,
    files: Mapping[str, bytes | str],
    *,
    requires: Sequence[str] = (),
    installer: str = "pip",
) -> Path:
    """Write a distribution into a folder of packages, with METADATA, RECORD and INSTALLER."""
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    metadata += "".join(f"Requires-Dist: {line}\n" for line in requires)
    contents = {**files, f"{info.name}/METADATA": metadata + "\nWords.\n", f"{info.name}/INSTALLER": f"{installer}\n"}
    rows = []
    for path, content in contents.items():
        data = content.encode() if isinstance(content, str) else content
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_bytes(data)
        rows.append(f"{path},sha256=x,{len(data)}")
    (info / "RECORD").write_text("\n".join([*rows, f"{info.name}/RECORD,,"]) + "\n")
    return info


def conda_record(prefix: Path, name: str, version: str, build: str = "0", files: Sequence[str] = ()) -> None:
    """Write a record of ``conda-meta``."""
    record = {"name": name, "version": version, "build": build, "channel": "conda-forge", "files": list(files)}
    path = prefix / "conda-meta" / f"{name}-{version}-{build}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record))


def environ(home: Path, **variables: str) -> dict[str, str]:
    """Variables that lead to nothing of the machine at hand."""
    return {"HOME": str(home), "PATH": os.devnull, **variables}

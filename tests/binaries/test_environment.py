from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest

from envsolve.binaries.measure import measure_path
from envsolve.errors import UsageError
from tests.binaries.artefacts import CUBIN, container, elf, entry, torch_wheel, wheel


def install(data: bytes, site: Path) -> None:
    """Unpack a wheel as installers do, RECORD included."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        archive.extractall(site)
        info = next(name.split("/")[0] for name in archive.namelist() if ".dist-info/" in name)
        (site / info / "RECORD").write_text("".join(f"{name},,\n" for name in archive.namelist()))


@pytest.mark.parametrize("below", ["", "lib/python3.12/site-packages"])
def test_what_carries_cuda_is_listed_and_nothing_else(tmp_path: Path, below: str) -> None:
    site = tmp_path / below
    install(torch_wheel(), site)
    install(wheel("ext", "1.0", {"ext/_C.so": elf(tail=container(entry(CUBIN, 90)))}), site)
    install(wheel("plain", "1.0", {"plain/__init__.py": ""}), site)
    found = measure_path(tmp_path)
    assert {part.package: part.version for part in found.parts} == {"torch": "2.11.0+cu130", "ext": "1.0"}


def test_files_that_are_gone_are_not_missed(tmp_path: Path) -> None:
    install(torch_wheel(extra={"torch/gone.so": b""}), tmp_path)
    (tmp_path / "torch/gone.so").unlink()
    assert measure_path(tmp_path).parts[0].cuda == "13.0"


def test_an_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nothing is installed"):
        measure_path(tmp_path)

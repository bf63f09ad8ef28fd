from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import pytest

from envsolve.binaries.files import WheelFile
from envsolve.binaries.measure import read_metadata
from envsolve.errors import IndexUnavailableError, UsageError
from envsolve.facts.catalogue import Catalogue
from envsolve.facts.evidence import Evidence, Source
from envsolve.facts.hardware import Toolkit
from envsolve.facts.maintain.refresh import (
    canonical_requirement,
    python_key,
    python_order,
    releases,
    toolkits,
    torch_builds,
    triton_releases,
)
from envsolve.facts.maintain.update import dump_catalogue_file, update, update_overlay
from envsolve.packages.model import CoreMetadata
from tests.binaries.artefacts import torch_wheel, wheel
from tests.binaries.test_ptxas import STRINGS
from tests.binaries.test_triton import BUILD, COMPILER, COMPILES, ENVIRONMENT


@dataclass(frozen=True)
class Published:
    filename: str
    data: bytes = b""
    upload_time: str | None = "2026-01-21T16:23:25Z"
    yanked: str | None = None

    @property
    def hashes(self) -> Mapping[str, str]:
        return {"sha256": hashlib.sha256(self.data).hexdigest()}

    @property
    def size(self) -> int | None:
        return len(self.data)


@dataclass
class Memory:
    """An index of wheels made by hand."""

    files: list[Published] = field(default_factory=list)
    opened: list[str] = field(default_factory=list)

    def project(self, name: str) -> list[Published]:
        return [file for file in self.files if file.filename.startswith(name.replace("-", "_") + "-")]

    def open(self, file: Published) -> IO[bytes]:
        self.opened.append(file.filename)
        return io.BytesIO(file.data)

    def metadata(self, file: Published) -> CoreMetadata:
        meta = read_metadata(WheelFile(io.BytesIO(file.data), file.filename))
        return CoreMetadata(meta.package or "", meta.version or "", meta.requires, meta.requires_python)


@pytest.mark.parametrize(
    ("interpreter", "abi", "key"),
    [
        ("cp312", "cp312", "cp312"),
        ("cp313", "cp313t", "cp313t"),
        ("cp37", "cp37m", "cp37"),
        ("cp38", "cp38m", "cp38-cp38m"),
        ("cp312", "abi3", "cp312-abi3"),
        ("py3", "none", "py3-none"),
    ],
)
def test_python_key(interpreter: str, abi: str, key: str) -> None:
    assert python_key(interpreter, abi) == key


def test_python_order() -> None:
    assert sorted(["cp310", "cp39", "cp313t", "cp313"], key=python_order) == ["cp39", "cp310", "cp313", "cp313t"]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("scipy >=1.7.1 ; extra == 'tests'", 'scipy>=1.7.1; extra == "tests"'),
        ("scipy (>=1.7.1)", "scipy>=1.7.1"),
        ("not valid !!", "not valid !!"),
    ],
)
def test_requirements_have_one_spelling(line: str, expected: str) -> None:
    assert canonical_requirement(line) == expected


def test_releases_are_grouped_and_the_highest_build_tag_wins() -> None:
    files = [
        Published("torch-2.10.0-cp310-cp310-manylinux_2_28_x86_64.whl"),
        Published("torch-2.10.0-3-cp310-cp310-manylinux_2_28_x86_64.whl", upload_time="2026-03-11T14:16:39Z"),
        Published("torch-2.9.1-cp39-cp39-win_amd64.whl"),
        Published("torch-2.9.1-cp39-cp39-macosx_11_0_arm64.whl"),
        Published("torch-2.9.1-pp39-pypy39_pp73-win_amd64.whl"),
        Published("torch-2.9.1-cp310-cp310-win_amd64.whl", yanked=""),
        Published("torch-2.3.0-cp310-cp310-win_amd64.whl"),
        Published("torch-2.9.1.tar.gz"),
    ]
    found = releases(files, "2.4")
    assert [(str(r.version), r.platform, r.build_tag, list(r.files)) for r in found] == [
        ("2.9.1", "win_amd64", "", ["cp39"]),
        ("2.10.0", "manylinux_2_28_x86_64", "3", ["cp310"]),
    ]
    assert found[1].representative is files[1]
    assert found[1].released == "2026-01-21"


def torch_file(python: str, platform: str = "manylinux_2_28_x86_64", cuda: str | None = "13.0") -> Published:
    return Published(
        f"torch-2.11.0-{python}-{python}-{platform}.whl", torch_wheel(cuda=cuda, extra={"torch/python.txt": python})
    )


def test_one_wheel_is_measured_for_all_pythons() -> None:
    index = Memory([torch_file("cp311"), torch_file("cp312"), torch_file("cp311", "win_amd64", None)])
    linux, windows = torch_builds(index, "2.4", "s")
    assert index.opened == ["torch-2.11.0-cp312-cp312-manylinux_2_28_x86_64.whl", index.files[2].filename]
    assert (linux.variant, linux.cuda, linux.pythons) == ("cu130", "13.0", ("cp311", "cp312"))
    assert linux.code == ("sm_75", "sm_80", "sm_90", "compute_90")
    assert linux.requires == ("filelock", 'triton==3.6.0; sys_platform == "linux"')
    assert linux.files["cp311"].sha256 == index.files[0].hashes["sha256"]
    assert linux.filename("cp311") == index.files[0].filename
    assert (windows.variant, windows.cuda, windows.code) == ("cpu", None, ())


def test_the_libraries_that_a_torch_build_was_made_with() -> None:
    settings = '  {"CUDNN_VERSION", "8.5.0"}, \\\n'
    inside: dict[str, bytes | str] = {
        "torch/include/caffe2/core/macros.h": settings,
        "torch/lib/libtorch_cuda.so": b"NCCL version 2.14.3+cuda11.7",
    }
    names = ("torch-1.13.1-cp310-cp310-manylinux1_x86_64.whl", "torch-1.13.1-cp310-cp310-win_amd64.whl")
    index = Memory(
        [Published(names[0], torch_wheel(cuda="11.7", extra=inside)), Published(names[1], torch_wheel(cuda=None))]
    )
    linux, windows = torch_builds(index, "1.7", "s")
    assert (linux.cudnn, linux.nccl, linux.cxx11_abi) == ("8.5.0", "2.14.3", True)
    assert (windows.cudnn, windows.nccl) == (None, None)


def test_pythons_whose_metadata_differ_get_records_of_their_own() -> None:
    index = Memory([torch_file("cp311"), torch_file("cp312")])
    members = {"torch/version.py": "__version__ = '2.11.0+cpu'\ncuda = None\n"}
    other = wheel("torch", "2.11.0", members, requires=["setuptools"])
    index.files.append(Published("torch-2.11.0-cp313-cp313-manylinux_2_28_x86_64.whl", other))
    assert [build.pythons for build in torch_builds(index, "2.4", "s")] == [("cp311", "cp312"), ("cp313",)]


TRITON = wheel(
    "triton",
    "3.1.0",
    {"triton/backends/nvidia/bin/ptxas": STRINGS, COMPILER: ENVIRONMENT, BUILD: COMPILES},
    requires=["filelock"],
)


def test_triton_release() -> None:
    index = Memory([Published("triton-3.1.0-cp312-cp312-manylinux_2_17_x86_64.whl", TRITON)])
    (found,) = triton_releases(index, "2.0", "s")
    (ptxas,) = found.ptxas
    assert (found.version, ptxas.cuda, ptxas.override, ptxas.max_cc) == ("3.1.0", "12.8", "TRITON_PTXAS_PATH", None)


HEADER = "#if __GNUC__ > 14\n#if (__clang_major__ >= 20) || x\n#if _MSC_VER < 1910 || _MSC_VER >= 1950\n"
NVCC = wheel(
    "nvidia_cuda_nvcc_cu12", "12.8.93", {"nvidia/bin/ptxas": STRINGS, "nvidia/include/crt/host_config.h": HEADER}
)


def test_toolkits_are_measured_where_a_wheel_exists_and_keep_their_drivers() -> None:
    index = Memory([Published("nvidia_cuda_nvcc_cu12-12.8.93-py3-none-manylinux2014_x86_64.whl", NVCC)])
    known = [
        Toolkit("12.8", "570.26", "570.65", "8.7", (), Evidence.DOCUMENTED, "d"),
        Toolkit("10.2", "440.33", None, "6.5", ("sm_75",), Evidence.DOCUMENTED, "d"),
    ]
    (new,) = toolkits(index, known, "m")
    assert (new.driver_linux, new.ptx_isa, new.archs) == ("570.26", "8.7", ("sm_75", "sm_90", "sm_90a"))
    assert (new.gcc_max, new.clang_below, new.msvc_below, new.evidence) == (14, 20, 1950, Evidence.MEASURED)


def test_update_measures_what_is_new_and_writes_what_changed(tmp_path: Path) -> None:
    (tmp_path / "builds" / "default").mkdir(parents=True)
    source = {"measured-default-index": Source("Wheels", "2026-01-01")}
    for name in ("builds/default/torch", "builds/default/triton", "tritons", "torch_extensions"):
        (tmp_path / f"{name}.json").write_text(dump_catalogue_file(source, []))
    nvcc = {"measured-nvcc-wheels": Source("Wheels", "2026-01-01")}
    (tmp_path / "toolkits.json").write_text(dump_catalogue_file(nvcc, []))
    index = Memory([torch_file("cp311"), Published("triton-3.1.0-cp312-cp312-manylinux_2_17_x86_64.whl", TRITON)])

    first = update(index, tmp_path, "2026-02-02")
    assert {path.name: added for path, added in first.items()} == {
        "torch.json": ("torch 2.11.0 manylinux_2_28_x86_64",),
        "triton.json": ("triton 3.1.0 manylinux_2_17_x86_64",),
        "tritons.json": ("triton 3.1.0",),
        "torch_extensions.json": ("torch-extension 2.11.0",),
    }
    assert update(index, tmp_path, "2026-03-03") == {}

    index.files.append(torch_file("cp314"))
    assert [path.name for path in update(index, tmp_path, "2026-03-03")] == ["torch.json"]
    catalogue = Catalogue(tmp_path)
    (build,) = catalogue.builds("torch")
    assert build.pythons == ("cp311", "cp314")
    assert catalogue.date == "2026-03-03"


def test_a_torch_whose_words_on_compiling_cannot_be_read_is_recorded_without_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = {"measured-default-index": Source("Wheels", "2026-01-01")}
    (tmp_path / "builds" / "default").mkdir(parents=True)
    for name in ("builds/default/torch", "builds/default/triton", "tritons", "torch_extensions"):
        (tmp_path / f"{name}.json").write_text(dump_catalogue_file(source, []))
    (tmp_path / "toolkits.json").write_text(dump_catalogue_file({}, []))
    unreadable = torch_wheel(extra={"torch/utils/cpp_extension.py": "other words"})
    index = Memory([Published("torch-2.12.0-cp312-cp312-manylinux_2_28_x86_64.whl", unreadable)])
    assert [path.name for path in update(index, tmp_path, "2026-02-02")] == ["torch.json"]
    assert "compiling against torch 2.12.0" in caplog.text


def test_an_index_without_torch_does_not_tell_what_is_new(tmp_path: Path) -> None:
    (tmp_path / "builds").mkdir()
    with pytest.raises(IndexUnavailableError, match="has no torch"):
        update(Memory([]), tmp_path, "2026-02-02")
    with pytest.raises(IndexUnavailableError, match="has no torch"):
        update_overlay(Memory([]), tmp_path / "own", tmp_path, "2026-02-02")


def test_a_folder_that_is_no_catalogue_is_wrong_usage(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a catalogue"):
        update(Memory([]), tmp_path, "2026-02-02")

"""Limits on compilers, read out of a torch wheel's headers and cpp_extension."""

from __future__ import annotations

from pathlib import Path

import pytest

from envsolve.binaries.files import FolderFiles
from envsolve.binaries.tools import ExtensionNeeds, read_extension_needs
from envsolve.errors import UsageError
from tests.binaries.artefacts import ATEN, CPP_EXTENSION

CXX17 = '#error "We need GCC 9 or later."\n'


def wheel(folder: Path, **texts: str | bytes) -> FolderFiles:
    places = {
        "cpp_extension": "torch/utils/cpp_extension.py",
        "aten": "torch/include/ATen/ATen.h",
        "cxx17": "torch/include/c10/util/C++17.h",
        "library": "torch/lib/libtorch_python.so",
    }
    for name, text in texts.items():
        path = folder / places[name]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return FolderFiles(folder, "torch-9.9-cp312-cp312-linux_x86_64.whl")


def test_everything_is_read(tmp_path: Path) -> None:
    library = b"\0GCC: (GNU) 4.8.5 20150623\0GCC: (GNU) 13.3.1 20240611 (Red Hat 13.3.1-2)\0"
    found = read_extension_needs(wheel(tmp_path, cpp_extension=CPP_EXTENSION, aten=ATEN, cxx17=CXX17, library=library))
    assert found == ExtensionNeeds(
        cxx_standard=17,
        archs=("3.5", "9.0", "9.0a", "10.0"),
        gcc=13,
        gcc_min=9,
        gcc_below={"11.0": 10, "11.2": 11, "12.8": 15},  # below 10.2.1: the rest of gcc 10 goes, 10.2 itself does not
    )


def test_what_it_passes_counts_where_the_headers_ask_for_less(tmp_path: Path) -> None:
    module = CPP_EXTENSION.replace("-std=c++17", "-std=c++20")
    found = read_extension_needs(wheel(tmp_path, cpp_extension=module, aten=ATEN))
    assert (found.cxx_standard, found.gcc, found.gcc_min) == (20, None, None)


@pytest.mark.parametrize(
    "texts",
    [
        {"cpp_extension": CPP_EXTENSION},
        {"cpp_extension": CPP_EXTENSION, "aten": "nothing"},
        {"cpp_extension": "nothing", "aten": ATEN},
    ],
)
def test_what_cannot_be_read_is_said(tmp_path: Path, texts: dict[str, str]) -> None:
    with pytest.raises(UsageError):
        read_extension_needs(wheel(tmp_path, **texts))

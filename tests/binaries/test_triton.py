from __future__ import annotations

from pathlib import Path

import pytest

from envsolve.binaries.files import FolderFiles
from envsolve.binaries.tools import AssemblerChoice, read_choice, read_host_needs
from envsolve.errors import UsageError

COMPILER = "triton/backends/nvidia/compiler.py"
KNOBS = "triton/knobs.py"
ENVIRONMENT = 'os.environ.get(f"TRITON_{binary.upper()}_PATH")\n'
BUILD, DRIVER = "triton/runtime/build.py", "triton/backends/nvidia/driver.py"
COMPILES = 'py_include_dir = paths["include"]\nraise RuntimeError("Failed to find C compiler. Please specify")\n'
REPLACED = "super().__init__(f\"TRITON_{binary.upper().replace('-', '_')}_PATH\")\n"


def installed(folder: Path, files: dict[str, str]) -> FolderFiles:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return FolderFiles(folder, "triton")


def choice(folder: Path, files: dict[str, str], second: bool) -> AssemblerChoice:
    return read_choice(installed(folder, files), second)


@pytest.mark.parametrize(
    ("files", "second", "expected"),
    [
        ({"triton/common/backend.py": ENVIRONMENT}, False, AssemblerChoice(None, None, None)),
        (
            {COMPILER: ENVIRONMENT + "suffix = 'a ' if capability == 90 else ' '\n"},
            False,
            AssemblerChoice(None, None, "9.0"),
        ),
        (
            {COMPILER: ENVIRONMENT + 'name = "ptxas-blackwell" if arch >= 100 else "ptxas"\n'},
            True,
            AssemblerChoice("10.0", "TRITON_PTXAS-BLACKWELL_PATH", None),
        ),
        (
            {
                COMPILER: "return knobs.nvidia.ptxas_blackwell if arch >= 100 else knobs.nvidia.ptxas\n"
                'suffix = "a" if capability >= 90 else ""\n',
                KNOBS: REPLACED,
            },
            True,
            AssemblerChoice("10.0", "TRITON_PTXAS_BLACKWELL_PATH", "9.0"),
        ),
        (
            {COMPILER: "if arch < 90:\n        return knobs.nvidia.ptxas\n", KNOBS: REPLACED},
            True,
            AssemblerChoice("9.0", "TRITON_PTXAS_BLACKWELL_PATH", None),
        ),
    ],
)
def test_shapes_of_published_releases(
    tmp_path: Path, files: dict[str, str], second: bool, expected: AssemblerChoice
) -> None:
    assert choice(tmp_path, files, second) == expected


@pytest.mark.parametrize(
    ("files", "second"),
    [
        ({}, False),
        ({COMPILER: "ptxas = shutil.which('ptxas')\n"}, False),
        ({COMPILER: ENVIRONMENT + "tool = pick(arch)\n"}, True),
    ],
)
def test_a_new_shape_is_refused_not_guessed(tmp_path: Path, files: dict[str, str], second: bool) -> None:
    with pytest.raises(UsageError):
        choice(tmp_path, files, second)


@pytest.mark.parametrize(
    ("files", "links"),
    [
        ({"triton/compiler.py": COMPILES + 'cc_cmd = [cc, src, "-shared", "-lcuda", "-o", so]\n'}, True),
        ({"triton/common/build.py": COMPILES + '    cc, src, "-shared", "-fPIC", "-lcuda",\n'}, True),
        ({BUILD: COMPILES, DRIVER: "libraries = ['cuda']\n"}, True),
        ({BUILD: COMPILES, DRIVER: "libraries = ['libcuda.so.1']\n"}, False),
    ],
)
def test_what_the_launcher_of_published_releases_needs(tmp_path: Path, files: dict[str, str], links: bool) -> None:
    needs = read_host_needs(installed(tmp_path, files))
    assert needs == ("c-compiler", "python-headers") + (("libcuda-link",) if links else ())


@pytest.mark.parametrize("files", [{}, {BUILD: "import prebuilt\n"}])
def test_a_launcher_that_is_made_in_a_new_way_is_not_guessed_at(tmp_path: Path, files: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="launcher"):
        read_host_needs(installed(tmp_path, files))

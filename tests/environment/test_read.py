from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import envsolve
from envsolve.diagnose.environment import diagnose_environment
from envsolve.diagnose.model import ReportFacts
from envsolve.environment.model import Environment, Kind
from envsolve.environment.read import numpy_major, read_environment, read_outline
from envsolve.errors import UsageError
from envsolve.facts.catalogue import Catalogue
from tests.binaries.artefacts import CUBIN, PTX, container, elf, entry
from tests.environment.prefixes import CXX11, NUMPY_1, NUMPY_2, Prefix, conda_record, environ, install

CATALOGUE = Catalogue()
H100 = envsolve.describe_target("H100, driver 570.86.15, linux-x86_64", CATALOGUE)


def read(prefix: Prefix, **variables: str) -> Environment:
    return read_environment(
        prefix.folder, environ(prefix.folder.parent, **variables), root=prefix.folder.parent / "root"
    )


@pytest.fixture
def prefix(tmp_path: Path) -> Prefix:
    return Prefix(tmp_path / "env")


def test_the_frame(prefix: Prefix) -> None:
    found = read(prefix)
    assert (found.kind, found.python, found.arch) == ("venv", "3.12.4", "x86_64")
    assert found.base == str(prefix.base)
    assert [(site.path, site.origin) for site in found.sites] == [(str(prefix.site), "environment")]
    assert found.tools.python_h == str(prefix.base / "include/python3.12/Python.h")


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        ({"uv": "0.5.1"}, "uv"),
        ({"pipx_metadata.json": ""}, "pipx"),
        ({"uv-receipt.toml": ""}, "uv-tool"),
        ({"conda-meta/history": ""}, "conda"),
        ({"../poetry.lock": ""}, "poetry"),
    ],
)
def test_the_kind_is_told_by_what_each_tool_leaves(tmp_path: Path, make: dict[str, str], kind: Kind) -> None:
    prefix = Prefix(tmp_path / ".venv", settings={key: value for key, value in make.items() if value})
    for name in (name for name, value in make.items() if not value):
        path = prefix.folder / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    assert read(prefix).kind == kind


def test_a_pixi_environment(tmp_path: Path) -> None:
    folder = tmp_path / ".pixi/envs/default"
    conda_record(folder, "python", "3.11.9", "h_0")
    (folder / "lib/python3.11/site-packages").mkdir(parents=True)
    found = read_environment(folder, environ(tmp_path))
    assert (found.kind, found.python) == ("pixi", "3.11.9")
    assert [site.origin for site in found.sites] == ["environment"]


def test_the_program_decides_where_an_environment_says_another_python(prefix: Prefix) -> None:
    other = prefix.base / "bin/python3.13"
    other.parent.mkdir()
    other.write_bytes(elf())
    (prefix.base / "lib/python3.13").mkdir()
    (prefix.base / "lib/python3.13/os.py").touch()
    (prefix.folder / "lib/python3.13/site-packages").mkdir(parents=True)
    (prefix.folder / "bin/python").unlink()
    (prefix.folder / "bin/python").symlink_to(other)
    found = read(prefix)
    assert found.python == "3.13"
    assert [site.path for site in found.sites] == [str(prefix.folder / "lib/python3.13/site-packages")]


def test_the_path_has_pythonpath_first_then_the_environment_the_user_and_the_system(tmp_path: Path) -> None:
    prefix = Prefix(tmp_path / "env", settings={"include-system-site-packages": "true"})
    user = tmp_path / ".local/lib/python3.12/site-packages"
    source, extra = tmp_path / "source", tmp_path / "extra"
    for folder in (user, source, extra):
        folder.mkdir(parents=True)
    (prefix.site / "own.pth").write_text(f"import os; os.system('false')\n# {user}\n{source}\nno such folder\n")
    origins = [(site.origin, site.path) for site in read(prefix, PYTHONPATH=str(extra)).sites]
    assert origins == [
        ("PYTHONPATH", str(extra)),
        ("environment", str(prefix.site)),
        ("pth", str(source)),
        ("user", str(user)),
        ("system", str(prefix.base / "lib/python3.12/site-packages")),
    ]
    assert "user" not in [site.origin for site in read(prefix, PYTHONNOUSERSITE="1").sites]


def test_in_a_conda_environment_the_users_packages_come_first(tmp_path: Path) -> None:
    folder = tmp_path / "conda"
    conda_record(folder, "python", "3.12.1")
    user = tmp_path / ".local/lib/python3.12/site-packages"
    for path in (user, folder / "lib/python3.12/site-packages"):
        path.mkdir(parents=True)
    assert [site.origin for site in read_environment(folder, environ(tmp_path)).sites] == ["user", "environment"]


def test_distributions_with_what_is_missing_and_what_another_wrote(prefix: Prefix) -> None:
    files: dict[str, bytes | str] = {
        "nvidia/cudnn/lib/libcudnn.so.9": elf(),
        "nvidia/cudnn/lib/libcudnn_ops.so.9": elf(),
        "gone.py": "",
    }
    info = prefix.add("nvidia-cudnn-cu12", "9.10.2.21", files, requires=["nvidia-cublas-cu12"], installer="uv")
    (info / "direct_url.json").write_text('{"url": "https://example.org/a.whl", "archive_info": {}}')
    (prefix.site / "gone.py").unlink()
    (prefix.site / "nvidia/cudnn/lib/libcudnn_ops.so.9").write_bytes(elf(tail=b"other"))
    found = read(prefix).distribution("nvidia-cudnn-cu12")
    assert found is not None
    assert (found.version, found.installer, found.direct_url) == ("9.10.2.21", "uv", "https://example.org/a.whl")
    assert found.requires == ("nvidia-cublas-cu12",)
    assert found.missing == ("gone.py",)
    assert found.altered == ("nvidia/cudnn/lib/libcudnn_ops.so.9",)


def test_of_two_torches_the_first_on_the_path_is_imported(tmp_path: Path) -> None:
    prefix = Prefix(tmp_path / "env", settings={"include-system-site-packages": "true"})
    prefix.add_torch("2.8.0+cu128", "12.8")
    install(
        prefix.base / "lib/python3.12/site-packages",
        "torch",
        "2.5.0",
        {"torch/__init__.py": "", "torch/version.py": "__version__ = '2.5.0+cpu'\ncuda = None\n"},
    )
    first, second = read(prefix).torches
    assert (first.version, first.toolkit, first.local, first.cxx11_abi, first.numpy) == (
        "2.8.0+cu128",
        "12.8",
        "cu128",
        True,
        2,
    )
    assert first.code is not None and first.code[0] == "sm_70"
    assert (second.version, second.toolkit, second.local, second.code) == ("2.5.0+cpu", None, "cpu", None)


PRELOADS_TWO = """
        try:
            _preload_cuda_deps("cuda_nvrtc", "libnvrtc.so.*[0-9]")
            _preload_cuda_deps("nvjitlink", "libnvJitLink.so.*[0-9]")
    except OSError as err:
        cuda_libs: dict[str, str] = {
            "cublas": "libcublas.so.*[0-9]",
        }
"""
PRELOADS_ALL = """
    cuda_libs: dict[str, str] = {
        "cublas": "libcublas.so.*[0-9]",
        "nvjitlink": "libnvJitLink.so.*[0-9]",
    }
        _preload_cuda_deps(required=False)
    except OSError as err:
        _preload_cuda_deps(err)
"""


@pytest.mark.parametrize(
    ("init", "preloads"),
    [
        ('    cuda_libs: Dict[str, str] = {\n        "cublas": "libcublas.so.*[0-9]",\n', ()),  # up to 2.5
        (PRELOADS_TWO, ("libnvrtc", "libnvJitLink")),  # 2.6 to 2.10
        (PRELOADS_ALL, ("libcublas", "libnvJitLink")),  # from 2.11 on
    ],
)
def test_what_torch_loads_itself_is_read_from_its_own_words(
    prefix: Prefix, init: str, preloads: tuple[str, ...]
) -> None:
    prefix.add_torch(init=init)
    torch = read(prefix).torch
    assert torch is not None
    assert torch.preloads == preloads


@pytest.mark.parametrize("system", [True, False])
def test_the_path_is_that_of_a_real_interpreter(tmp_path: Path, system: bool) -> None:
    venv.EnvBuilder(system_site_packages=system, symlinks=True).create(tmp_path / "env")
    (site,) = (tmp_path / "env").glob("lib/python3*/site-packages")
    minor = site.parent.name
    for folder in ("pythonpath", "named", f".local/lib/{minor}/site-packages"):
        (tmp_path / folder).mkdir(parents=True)
    (site / "b.pth").write_text(f"{tmp_path}/named\n{tmp_path}/not there\n# {tmp_path}\n")
    variables = environ(tmp_path, PYTHONPATH=str(tmp_path / "pythonpath"))
    command = [str(tmp_path / "env/bin/python"), "-c", "import json, sys; print(json.dumps(sys.path))"]
    said = json.loads(subprocess.run(command, env=variables, capture_output=True, text=True, check=True).stdout)
    library = str(Path(os.__file__).parent)
    packages = [
        path for path in said if Path(path).is_dir() and path and path not in (library, f"{library}/lib-dynload")
    ]
    found = read_environment(tmp_path / "env", variables)
    assert [site.path for site in found.sites] == packages
    assert found.python == ".".join(map(str, sys.version_info[:3]))


def test_libraries_have_their_paths_resolved_and_extensions_their_code(prefix: Prefix) -> None:
    code = container(entry(CUBIN, 80), entry(PTX, 90)) + CXX11 + NUMPY_1
    library = elf(("libcudart.so.12", "libc.so.6"), runpath="$ORIGIN/../nvidia/cuda_runtime/lib", tail=code)
    prefix.add("flash-attn", "2.8.0", {"flash_attn_2_cuda.so": library, "flash_attn/py.so": elf(("libc.so.6",))})
    found = read(prefix)
    (one,) = found.gpu_libraries
    assert (one.owner, one.needed[0], one.runpath) == (
        "flash-attn",
        "libcudart.so.12",
        (f"{prefix.site}/../nvidia/cuda_runtime/lib",),
    )
    assert found.extensions is not None
    (extension,) = found.extensions
    assert (extension.package, extension.every) == ("flash-attn", ("sm_80", "compute_90"))
    assert read_outline(prefix.folder, environ(prefix.folder.parent)).extensions is None


def test_libraries_of_any_package_show_the_numpy_that_they_were_compiled_against(prefix: Prefix) -> None:
    older = b"\0module compiled against ABI version 0x%x but this version of numpy is 0x%x\0"
    for name, words in (("one", NUMPY_1), ("oldest", older), ("both", NUMPY_2), ("numpy", NUMPY_1), ("plain", b"")):
        prefix.add(name, "2.1.0", {f"{name}/core.so": elf(("libc.so.6",), tail=words)})
    library = f"{prefix.site}/one/core.so"
    assert read(prefix).numpy_1 == {"oldest": f"{prefix.site}/oldest/core.so", "one": library}
    prefix.remove("numpy")
    prefix.add("numpy", "1.26.4")
    assert read(prefix).numpy_1 == {}


def test_the_loader_searches_ld_library_path_before_its_configuration(prefix: Prefix, tmp_path: Path) -> None:
    root = tmp_path / "root"
    for folder, library in (("opt/cuda/lib", "libcudart.so.12.1.55"), ("usr/local/cuda/lib64", "libcublas.so.12")):
        (root / folder).mkdir(parents=True)
        (root / folder / library).touch()
    (root / "opt/cuda/lib/libcudart.so.12").symlink_to("libcudart.so.12.1.55")
    (root / "etc/ld.so.conf.d").mkdir(parents=True)
    (root / "etc/ld.so.conf").write_text("include /etc/ld.so.conf.d/*.conf\ninclude ld.so.conf\n")
    (root / "etc/ld.so.conf.d/cuda.conf").write_text("/usr/local/cuda/lib64 # ours\n/nowhere\n")
    found = read(prefix, LD_LIBRARY_PATH="/opt/cuda/lib:/nowhere").loader
    found = tuple(one for one in found if one.libraries)
    assert [(f.origin, list(f.libraries)) for f in found] == [
        ("LD_LIBRARY_PATH", ["libcudart.so.12"]),
        ("ld.so.conf", ["libcublas.so.12"]),
    ]
    assert found[0].libraries["libcudart.so.12"].endswith("libcudart.so.12.1.55")


def test_conda_records_tell_what_is_gone(tmp_path: Path) -> None:
    folder = tmp_path / "conda"
    conda_record(folder, "python", "3.12.1")
    conda_record(folder, "libcudnn", "9.10.1", "h_0", ["lib/libcudnn.so.9", "info/about.json"])
    (folder / "conda-meta/broken-1-0.json").write_text("{")
    found = read_environment(folder, environ(tmp_path))
    assert [(p.name, p.missing) for p in found.conda if p.name == "libcudnn"] == [("libcudnn", ("lib/libcudnn.so.9",))]
    assert any("broken-1-0.json" in text for text in found.unreadable)


@pytest.mark.parametrize("make", [lambda path: None, lambda path: path.mkdir(), lambda path: path.touch()])
def test_what_is_no_environment_is_refused(tmp_path: Path, make: object) -> None:
    make(tmp_path / "x")  # type: ignore[operator]
    with pytest.raises(UsageError):
        read_environment(tmp_path / "x", environ(tmp_path))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(noise=st.binary(max_size=60), which=st.integers(0, 8), cut=st.integers(0, 400))
def test_damage_is_an_answer_and_no_error(
    tmp_path_factory: pytest.TempPathFactory, noise: bytes, which: int, cut: int
) -> None:
    folder = tmp_path_factory.mktemp("damaged")
    prefix = Prefix(folder / "env")
    prefix.add_torch()
    conda_record(prefix.folder, "python", "3.12.1")
    files = sorted(path for path in prefix.folder.rglob("*") if path.is_file())
    target = files[which % len(files)]
    target.write_bytes(target.read_bytes()[:cut] + noise)
    found = read(prefix)
    assert found.prefix == str(prefix.folder)
    assert diagnose_environment(found, ReportFacts("", H100), (), CATALOGUE).schema == "envsolve.diagnosis/1"
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("content", "major"),
    [
        (b"numpy._core._multiarray_umath\0numpy.core._multiarray_umath", 2),
        (b"numpy.core._multiarray_umath\0module compiled against ABI version", 1),
        (b"module compiled against ABI version", 1),
        # tokenizers 0.23.2, by way of rust-numpy 0.29
        (b"module compiled against ABI version\0numpy.corenumpy._corecalled", 2),
        (b"nothing of NumPy", None),
        (b"", None),
    ],
)
def test_the_numpy_that_a_library_was_compiled_against(tmp_path: Path, content: bytes, major: int | None) -> None:
    (tmp_path / "library.so").write_bytes(content)
    assert numpy_major(tmp_path / "library.so") == major

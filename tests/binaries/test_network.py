"""Measuring what is really published, over the default package index."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from envsolve._default_index import DEFAULT_INDEX
from envsolve.binaries.measure import measure
from envsolve.binaries.model import Measurement
from envsolve.facts.catalogue import Catalogue
from envsolve.facts.maintain.refresh import Index, releases
from envsolve.packages.client import IndexClient
from envsolve.packages.settings import IndexSettings

pytestmark = pytest.mark.network


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IndexClient]:
    with IndexClient(IndexSettings(default=DEFAULT_INDEX), cache_dir=tmp_path_factory.mktemp("cache")) as client:
        yield client


def measured(index: IndexClient, project: str, start: str) -> Measurement:
    file = next(f for f in index.project(project) if f.filename.startswith(start) and "x86_64" in f.filename)
    with index.open(file) as stream:
        return measure(stream, file.filename)


def test_a_library_as_nvidias_own_cuobjdump_lists_it(index: IndexClient) -> None:
    (library,) = measured(index, "nvidia-nvjpeg-cu12", "nvidia_nvjpeg_cu12-12.4.0.76-").libraries
    assert library.file == "nvidia/nvjpeg/lib/libnvjpeg.so.12"
    archs = "50 52 60 61 70 75 80 86 89 90 100 101 103 120 121"
    assert library.sass == tuple(f"sm_{arch}" for arch in archs.split())
    assert (library.ptx, library.ptx_isa) == (("compute_121",), "8.8")


def test_a_ptxas(index: IndexClient) -> None:
    (ptxas,) = measured(index, "nvidia-cuda-nvcc-cu12", "nvidia_cuda_nvcc_cu12-12.8.93-").assemblers
    assert (ptxas.cuda, ptxas.version, len(ptxas.archs)) == ("12.8", "12.8.93", 21)
    assert ptxas.ptx_isa == "8.7" if ptxas.ran else ptxas.ptx_isa is None


def test_torch_without_downloading_it(index: IndexClient) -> None:
    file = next(f for f in index.project("torch") if f.filename == "torch-2.9.1-cp311-cp311-manylinux_2_28_x86_64.whl")
    with index.open(file) as stream:
        found = measure(stream, file.filename)
    recorded = next(
        b
        for b in Catalogue().builds("torch")
        if b.index == "default" and b.version == "2.9.1" and b.platform == "manylinux_2_28_x86_64"
    )
    assert (found.cuda, found.arch_flags, found.cxx11_abi) == (recorded.cuda, recorded.code, True)


def test_the_client_is_an_index_to_refresh_from(index: IndexClient) -> None:
    client: Index = index
    assert releases(client.project("triton"), "3.9")


# What the projects' own build scripts list for these wheels: docs/catalogue.md explains where more is carried.
PUBLISHED = [
    ("bitsandbytes", "bitsandbytes-0.50.2-", "cuda126", "60 70 75 80 86 89 90", "90"),
    ("bitsandbytes", "bitsandbytes-0.50.2-", "cuda128", "70 75 80 86 89 90 100 120", "120"),
    ("bitsandbytes", "bitsandbytes-0.50.2-", "cuda130", "75 80 86 89 90 100 120", "120"),
    ("xformers", "xformers-0.0.35-", "_C.so", "75 80 90a", "80"),
    ("vllm-flash-attn", "vllm_flash_attn-2.6.2-cp312-", "flash_attn_2_cuda", "80 90", None),
]


@pytest.mark.parametrize(("project", "start", "library", "sass", "ptx"), PUBLISHED)
def test_extensions_carry_what_their_projects_publish(
    index: IndexClient, project: str, start: str, library: str, sass: str, ptx: str | None
) -> None:
    found = next(lib for lib in measured(index, project, start).libraries if library in lib.file)
    assert found.code == tuple(f"sm_{arch}" for arch in sass.split()) + ((f"compute_{ptx}",) if ptx else ())
    assert found.sass + found.ptx == found.code


def test_windows_libraries_tell_the_cuda_that_they_link(index: IndexClient) -> None:
    file = next(f for f in index.project("bitsandbytes") if f.filename == "bitsandbytes-0.48.2-py3-none-win_amd64.whl")
    with index.open(file) as stream:
        found = {lib.file.rsplit("/", 1)[-1]: lib for lib in measure(stream, file.filename).libraries}
    assert found["libbitsandbytes_cuda118.dll"].cuda_major == 11
    assert found["libbitsandbytes_cuda128.dll"].needed[0] == "cudart64_12.dll"

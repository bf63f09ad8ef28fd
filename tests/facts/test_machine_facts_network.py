"""Facts about toolkits, compilers and Triton, measured again on what is published today."""

from __future__ import annotations

import os
import shutil
import subprocess
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

from envsolve._default_index import DEFAULT_INDEX
from envsolve.facts.catalogue import Catalogue
from envsolve.facts.maintain.refresh import toolkit_version, toolkits, triton_releases
from envsolve.packages.client import IndexClient
from envsolve.packages.settings import IndexSettings

pytestmark = pytest.mark.network

KERNEL = """
__global__ void add(const float *a, float *b, int n) { int i = blockIdx.x * 32 + threadIdx.x; if (i < n) b[i] += a[i]; }
int main() { add<<<1, 32>>>(nullptr, nullptr, 0); return cudaGetLastError(); }
"""


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IndexClient]:
    with IndexClient(IndexSettings(default=DEFAULT_INDEX), cache_dir=tmp_path_factory.mktemp("cache")) as client:
        yield client


def test_toolkits(index: IndexClient) -> None:
    known = {toolkit.version: toolkit for toolkit in Catalogue().toolkits}
    found = toolkits(index, (), "", lambda release: toolkit_version(release) in ("12.8", "13.4"))
    assert [toolkit.version for toolkit in found] == ["12.8", "13.4"]
    for toolkit in found:
        recorded = known[toolkit.version]
        assert toolkit.archs == recorded.archs
        for limit in ("gcc_max", "clang_below", "msvc_below"):
            assert getattr(toolkit, limit) == getattr(recorded, limit)


def test_tritons(index: IndexClient) -> None:
    known = {release.version: release for release in Catalogue().tritons}
    found = triton_releases(index, "2.0", "", lambda release: str(release.version) in ("2.0.0", "3.9.0"))
    assert [release.version for release in found] == ["2.0.0", "3.9.0"]
    for release in found:
        recorded = known[release.version]
        assert release.host_needs == recorded.host_needs
        assert [(p.file, p.cuda, p.max_cc, p.override) for p in release.ptxas] == [
            (p.file, p.cuda, p.max_cc, p.override) for p in recorded.ptxas
        ]


@pytest.mark.skipif(not shutil.which("g++"), reason="nvcc needs a host compiler")
@pytest.mark.parametrize("cuda", ["13.0", "13.5"])
def test_the_packages_of_pip_are_a_compiler(tmp_path: Path, cuda: str) -> None:
    record = next(c for c in Catalogue().compilers if c.manager == "pip" and "nvcc" in c.provides)
    venv.create(tmp_path / "env", with_pip=True)
    packages = [text.format(cuda=cuda) for text in record.packages]
    run([tmp_path / "env/bin/python", "-m", "pip", "install", "-q", *packages], {"PIP_CONSTRAINT": os.devnull})
    (site_packages,) = tmp_path.glob("env/lib/python*/site-packages")
    home = Path((record.home or "").format(site_packages=site_packages))
    (tmp_path / "add.cu").write_text(KERNEL)
    run([home / "bin/nvcc", "-arch=sm_90", "-cubin", "add.cu", "-o", "add.cubin"], {}, tmp_path)
    assert (tmp_path / "add.cubin").read_bytes().startswith(b"\x7fELF")
    run([home / "bin/nvcc", "-arch=sm_90", "add.cu", "-o", "add", f"-L{home}/lib"], {}, tmp_path)
    assert (tmp_path / "add").exists()


def run(command: list[str | Path], environ: dict[str, str], folder: Path | None = None) -> None:
    done = subprocess.run(command, cwd=folder, env=os.environ | environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

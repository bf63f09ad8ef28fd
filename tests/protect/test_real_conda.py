"""A real conda (or mamba, micromamba) on a channel of small packages, served by this test: nothing is downloaded.

No package index for pip has one that is up to date, so that these tests are skipped where none is installed.
``ENVSOLVE_CONDA`` names one that is not on PATH; ``CONDA_SOLVER=classic`` serves a conda without libmamba.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

import envsolve
from envsolve.errors import ImpossibleError
from envsolve.protect.preview import Preview
from tests.binaries.artefacts import elf
from tests.environment.prefixes import CXX11, NUMPY_2

CLIENTS = [p for p in (os.environ.get("ENVSOLVE_CONDA"), *map(shutil.which, ("conda", "mamba", "micromamba"))) if p]
pytestmark = [
    pytest.mark.network,
    pytest.mark.skipif(not CLIENTS, reason="there is no conda, mamba or micromamba here"),
]
CARD = envsolve.describe_target("RTX 4090, driver 550.54, linux-x86_64, glibc 2.35")
CUDA, NEWER, CPU = "cuda126_mkl_py312_h0_300", "cuda129_mkl_py312_h0_1", "cpu_mkl_py312_h0_100"


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *words: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def channel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    root = tmp_path_factory.mktemp("channel")
    folder = root / "conda-forge"
    folder.mkdir()
    add = partial(add_package, folder / "linux-64")
    records = {
        **add("pytorch", "2.7.1", CUDA, number=300, files=torch_files("2.7.1", "12.6")),
        **add("pytorch", "2.7.1", CPU, number=100, files=torch_files("2.7.1", None)),
        **add("pytorch", "2.6.0", CPU, number=100, files=torch_files("2.6.0", None)),
        **add("pytorch", "2.7.1", NEWER, number=1, files=torch_files("2.7.1", "12.9"), depends=["cuda-version 12.9.*"]),
        **add("cuda-version", "12.9", "0", constrains=["__cuda >=12"]),
        **add("plain", "1.0", "0"),
        **add("dragger", "1.0", "0", depends=["pytorch 2.6.*"]),
        **add("either", "2.0", "0", depends=["pytorch 2.6.*"]),
        **add("either", "1.0", "0", depends=["pytorch 2.*"]),
    }
    for subdir, packages in (("linux-64", records), ("noarch", {})):
        (folder / subdir).mkdir(exist_ok=True)
        index = {"info": {"subdir": subdir}, "packages": packages, "packages.conda": {}, "repodata_version": 1}
        (folder / subdir / "repodata.json").write_text(json.dumps(index))
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(root)))
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/conda-forge"
    server.shutdown()
    server.server_close()


def torch_files(version: str, cuda: str | None) -> dict[str, bytes]:
    """A torch as far as reading its files goes, with conda's word on who installed it."""
    site = "lib/python3.12/site-packages"
    info = f"{site}/torch-{version}.dist-info"
    library = elf(("libtorch_cpu.so",), tail=b"\0sm_80 sm_86 sm_89\0" * bool(cuda) + CXX11 + NUMPY_2)
    texts = {
        f"{site}/torch/__init__.py": "",
        f"{site}/torch/version.py": f"__version__ = {version!r}\ncuda = {cuda!r}\nhip = None\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n",
        f"{info}/INSTALLER": "conda",
        f"{info}/RECORD": "torch/version.py,,\n",
    }
    return {f"{site}/torch/lib/libtorch_python.so": library, **{path: text.encode() for path, text in texts.items()}}


def add_package(
    folder: Path,
    name: str,
    version: str,
    build: str,
    *,
    number: int = 0,
    depends: Sequence[str] = (),
    constrains: Sequence[str] = (),
    files: Mapping[str, bytes] = {},
) -> dict[str, object]:
    """Write a package; what the channel's index says of it."""
    folder.mkdir(exist_ok=True)
    record = {
        "name": name,
        "version": version,
        "build": build,
        "build_number": number,
        "depends": list(depends),
        "constrains": list(constrains),
        "subdir": "linux-64",
    }
    path = folder / f"{name}-{version}-{build}.tar.bz2"
    paths = [
        {
            "_path": place,
            "path_type": "hardlink",
            "sha256": hashlib.sha256(data).hexdigest(),
            "size_in_bytes": len(data),
        }
        for place, data in files.items()
    ]
    contents = {
        "info/index.json": json.dumps(record).encode(),
        "info/paths.json": json.dumps({"paths": paths, "paths_version": 1}).encode(),
        "info/files": "".join(f"{place}\n" for place in files).encode(),
        **files,
    }
    with tarfile.open(path, "w:bz2") as archive:
        for member, data in contents.items():
            info = tarfile.TarInfo(member)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    data = path.read_bytes()
    digests = {"md5": hashlib.md5(data).hexdigest(), "sha256": hashlib.sha256(data).hexdigest()}
    return {path.name: {**record, **digests, "size": len(data)}}


class World:
    """An environment with a CUDA torch, and the client that made it."""

    def __init__(self, client: str, channel: str, folder: Path) -> None:
        self.client, self.prefix = client, folder / "env"
        self.where = ("-p", str(self.prefix), "--override-channels", "-c", channel)
        names = ("CONDA_", "MAMBA_", "PYTHON", "VIRTUAL_ENV")
        kept = {n: v for n, v in os.environ.items() if not n.startswith(names) or n == "CONDA_SOLVER"}
        own = {
            "HOME": str(folder),
            "CONDA_PKGS_DIRS": str(folder / "pkgs"),
            "MAMBA_ROOT_PREFIX": str(folder / "root"),
            "CONDA_SUBDIR": "linux-64",
            "CONDA_OVERRIDE_CUDA": "12.6",
        }
        self.environ: Mapping[str, str] = {**kept, **own}
        places = {"custom_channels": {"conda-forge": channel.removesuffix("/conda-forge")}}
        (folder / ".condarc").write_text(json.dumps(places))
        self.run("create", "-y", "-q", *self.where, "pytorch")  # loosely: conda holds to what was asked for exactly

    def run(self, *words: str) -> None:
        done = subprocess.run([self.client, *words], env=self.environ, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stdout + done.stderr

    def causes(self) -> list[str]:
        found = envsolve.diagnose("", [CARD], prefix=self.prefix, environ=self.environ)
        return [diagnosis.cause for diagnosis in found.diagnoses]

    def forecast(self, *words: str) -> Preview:
        found = envsolve.preview_install([self.client, *words], [CARD], self.environ)
        assert found is not None
        return found


@pytest.fixture(params=CLIENTS, ids=lambda path: Path(path).name)
def world(request: pytest.FixtureRequest, channel: str, tmp_path: Path) -> World:
    return World(request.param, channel, tmp_path)


def test_what_leaves_torch_alone_is_let_pass(world: World) -> None:
    found = world.forecast("install", "-y", *world.where, "plain")
    assert (found.changes, found.refused, found.prefix) == ((), False, str(world.prefix))


def test_a_package_that_drags_another_torch_along_is_refused(world: World) -> None:
    found = world.forecast("install", "-y", *world.where, "dragger")
    (change,) = found.changes
    assert (change.name, change.before, change.after, change.build) == ("pytorch", "2.7.1", "2.6.0", CPU)
    assert (found.refused, found.works, found.unasked, found.keeps) == (True, "no", ("pytorch",), None)


def test_the_way_that_keeps_torch_is_found_and_works(world: World) -> None:
    found = world.forecast("install", "-y", *world.where, "either=2.0")
    assert (found.refused, found.keeps) == (True, None)
    loose = world.forecast("install", "-y", *world.where, "either")
    if loose.refused:  # a solver that goes for the newest of what is asked for
        assert loose.keeps is not None
        subprocess.run(loose.keeps, shell=True, env=world.environ, check=True, capture_output=True, timeout=600)
    else:
        world.run("install", "-y", *world.where, "either")
    assert list(world.prefix.glob(f"conda-meta/pytorch-2.7.1-{CUDA}.json"))


def test_pins_that_guard_wrote_are_honoured(world: World) -> None:
    envsolve.guard(world.prefix, world.environ)
    done = subprocess.run(
        [world.client, "install", "-y", *world.where, "dragger"],
        env=world.environ,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode != 0
    assert list(world.prefix.glob(f"conda-meta/pytorch-2.7.1-{CUDA}.json"))
    envsolve.unguard(world.prefix)
    world.run("install", "-y", *world.where, "dragger")
    assert list(world.prefix.glob("conda-meta/pytorch-2.6.0-*.json"))


def test_removing_torch_is_told(world: World) -> None:
    found = world.forecast("remove", "-y", "-p", str(world.prefix), "pytorch")
    assert [(change.name, change.after) for change in found.changes] == [("pytorch", None)]
    assert not found.refused  # asked for by name


def test_the_remedy_for_a_cpu_build_is_one_that_conda_carries_out(world: World) -> None:
    if Path(world.client).name != "conda":
        pytest.skip("remedies are written for conda")
    world.run("install", "-y", *world.where, f"pytorch=2.7.1={CPU}")
    assert world.causes() == ["cpu-build"]
    with pytest.raises(ImpossibleError, match="not one that pip or uv carries out") as refused:
        envsolve.find_fix(world.prefix, [CARD], world.environ)
    assert refused.value.hint is not None
    command = refused.value.hint.removeprefix("run it yourself: ")
    path = f"{Path(world.client).parent}{os.pathsep}{world.environ['PATH']}"
    environ = {**world.environ, "PATH": path, "CONDA_ALWAYS_YES": "1"}
    subprocess.run(command, shell=True, env=environ, check=True, capture_output=True, timeout=600)
    assert list(world.prefix.glob(f"conda-meta/pytorch-2.7.1-{NEWER}.json"))
    assert world.causes() == []

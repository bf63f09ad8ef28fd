"""What the loader would not find, on small libraries made by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from envsolve.environment.linking import Linking, read_linking
from envsolve.environment.loader import Loader, read_library
from envsolve.environment.model import LoaderDirectory
from tests.binaries.elves import write

SITE = "lib/python3.12/site-packages"


class World:
    """An environment of a few libraries, each of a distribution, on a system of its own."""

    def __init__(self, root: Path) -> None:
        self.root, self.site = root, root / SITE
        self._owned: list[tuple[Path, str]] = []
        self.program = write(root, "bin/python3.12", gives=["PyLong_AsLong"], needed=["libc.so.6"])
        write(root, "usr/lib/libc.so.6", gives=[("malloc", "GLIBC_2.2.5"), ("stat", "GLIBC_2.33")])

    def add(self, path: str, **parts: Any) -> Path:
        file = write(self.site, path, **parts)
        self._owned.append((file, path.split("/")[0].replace("_", "-")))
        return file

    def torch(self) -> None:
        here = {"rpath": "$ORIGIN:$ORIGIN/../../nvidia-cublas/lib"}
        self.add("nvidia-cublas/lib/libcublas.so.13", gives=[("cublasCreate", "libcublas.so.13")])
        self.add("torch/lib/libc10.so", gives=["c10_error"], needed=["libc.so.6"], **here)
        self.add("torch/lib/libtorch_cpu.so", gives=["at_add"], needed=["libc10.so"], takes=["c10_error"], **here)
        takes = ["at_add", ("cublasCreate", "libcublas.so.13", "libcublas.so.13")]
        self.add("torch/lib/libtorch_cuda.so", needed=["libtorch_cpu.so", "libcublas.so.13"], takes=takes, **here)
        self.add("torch/lib/libtorch_python.so", needed=["libtorch_cuda.so"], gives=["THPVariable_Wrap"], **here)

    def look(self, *named: Path, preloads: tuple[str, ...] = (), seconds: float = 60.0) -> Linking:
        libraries = [found for file, owner in self._owned if (found := read_library(file, owner))]
        directories = [LoaderDirectory(str(folder), "LD_LIBRARY_PATH", {}) for folder in named]
        usual = LoaderDirectory(str(self.root / "usr/lib"), "ld.so.conf", {})
        return read_linking(Loader(libraries, [*directories, usual], self.program, preloads), seconds)


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.torch()
    return made


EXTENSION = "ext/_C.cpython-312-x86_64-linux-gnu.so"
SOUND = {"needed": ["libc10.so", "libtorch_cpu.so"], "takes": ["c10_error", "at_add", "PyLong_AsLong"]}


def test_a_sound_environment(world: World) -> None:
    world.add(EXTENSION, **SOUND)
    found = world.look()
    assert (found.problems, found.elsewhere) == ((), ())
    assert found.symbols >= 6


PROBLEMS: dict[str, tuple[str, dict[str, Any], str | None, str | None]] = {
    "a symbol of another torch": (
        EXTENSION,
        {"needed": ["libc10.so"], "takes": ["c10_error_of_old", "PyLong_AsLong"]},
        "uses symbols that no library provides: c10_error_of_old",
        "mixed-flavours",
    ),
    "a symbol of a library of torch that it does not name": (
        EXTENSION,
        {"needed": ["libc10.so"], "takes": ["THPVariable_Wrap"]},
        "THPVariable_Wrap",
        "mixed-flavours",
    ),
    "a symbol that is weak": (EXTENSION, {**SOUND, "weak": ["__gmon_start__"]}, None, None),
    "a version of CUDA's that is not there": (
        "nvidia-cusolver/lib/libcusolver.so.12",
        {
            "needed": ["libcublas.so.13"],
            "takes": [("cublasNew", "libcublas.so.13", "libcublas.so.13")],
            "rpath": "$ORIGIN/../../nvidia-cublas/lib",
        },
        "cublasNew, version libcublas.so.13",
        "library-mismatch",
    ),
    "a newer libc": (
        EXTENSION,
        {"needed": ["libc.so.6"], "takes": [("stat", "GLIBC_2.39", "libc.so.6")]},
        "stat, version GLIBC_2.39",
        "libc-too-old",
    ),
    "another CUDA": (EXTENSION, {"needed": ["libcudart.so.12"]}, "needs libcudart.so.12", "library-mismatch"),
    "no such torch": (EXTENSION, {"needed": ["libtorch_hip.so"]}, "needs libtorch_hip.so", "mixed-flavours"),
    "a module's own library": (EXTENSION, {"needed": ["libfoo-12ab34cd.so.1"]}, "needs libfoo-12ab34cd.so.1", None),
    "a library of the system, for a module that stands on torch": (
        EXTENSION,
        {"needed": ["libc10.so", "libGL.so.1"]},
        "needs libGL.so.1",
        None,
    ),
    "a library of the system, for another module": (EXTENSION, {"needed": ["libtbb.so.12"]}, None, None),
    "the driver's library": (EXTENSION, {"needed": ["libcuda.so.1", "libnvidia-ml.so.1"]}, None, None),
}


@pytest.mark.parametrize(("path", "parts", "words", "cause"), PROBLEMS.values(), ids=PROBLEMS)
def test_what_the_loader_would_not_find(
    world: World, path: str, parts: dict[str, Any], words: str | None, cause: str | None
) -> None:
    file = world.add(path, **parts)
    problems = world.look().problems
    if words is None:
        assert problems == ()
        return
    ((text, found),) = ((problem.text, problem.cause) for problem in problems)
    assert str(file) in text
    assert words in text
    assert found == cause


def test_a_plugin_for_what_is_not_here_is_no_fault(world: World) -> None:
    world.add("nvidia-nvshmem/lib/nvshmem_transport_ucx.so.3", needed=["libucp.so.0"], takes=["ucp_init"])
    found = world.look()
    assert found.problems == ()
    assert found.elsewhere == (("nvidia-nvshmem", ("libucp.so.0",)),)


@pytest.mark.parametrize(
    ("path", "parts", "lacks"),
    [
        ("nvidia-nvshmem/lib/nvshmem_bootstrap.so.3", {"needed": ["libpmix.so.2"], "takes": ["pmix_old"]}, "pmix_old"),
        ("cuda-core/_bridge.cpython-312-x86_64-linux-gnu.so", {"takes": ["at_add", "PyLong_AsLong"]}, "at_add"),
        ("cupy/cutensor.cpython-312-x86_64-linux-gnu.so", {"needed": ["libcutensor.so.2"]}, "libcutensor.so.2"),
    ],
    ids=["on another version of a system's library", "beside torch", "with a product beside the toolkit"],
)
def test_what_loads_only_with_more_around_it_is_no_fault(
    world: World, path: str, parts: dict[str, Any], lacks: str
) -> None:
    write(world.root, "usr/lib/libpmix.so.2", gives=["pmix_new"])
    world.add(path, **parts)
    found = world.look()
    assert (found.problems, found.elsewhere) == ((), ((path.split("/")[0], (lacks,)),))


def test_one_of_several_for_different_cudas_is_enough(world: World) -> None:
    world.add("bits/libbits_cuda118.so", needed=["libcublas.so.11"])
    assert [problem.cause for problem in world.look().problems] == ["library-mismatch"]
    world.add("bits/libbits_cuda130.so", needed=["libcublas.so.13"])
    found = world.look()
    assert found.problems == ()
    assert found.elsewhere == (("bits", ("libcublas.so.11",)),)


def test_what_a_user_of_a_library_brings_serves_the_library_too(world: World) -> None:
    world.add("pkg/libplain.so", takes=["from_the_user"])
    assert "from_the_user" in world.look().problems[0].text
    world.add("pkg/libuser.so", needed=["libplain.so"], gives=["from_the_user"], rpath="$ORIGIN")
    assert world.look().problems == ()


def test_a_library_that_is_put_before_the_environments_own_is_the_one_that_is_looked_into(world: World) -> None:
    world.add(EXTENSION, needed=["libcublas.so.13"], takes=[("cublasCreate", "libcublas.so.13", "libcublas.so.13")])
    older = write(world.root / "cuda", "libcublas.so.13", gives=["cublasOld"]).parent
    # Torch's own finds its cuBLAS by its RPATH, which comes before.
    assert [problem.cause for problem in world.look(older).problems] == ["library-mismatch"]
    assert world.look(older, preloads=("libcublas",)).problems == ()


def test_it_ends_when_its_time_is_over(world: World) -> None:
    with pytest.raises(TimeoutError):
        world.look(seconds=-1.0)

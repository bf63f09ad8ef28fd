"""Each kind of damage in a small environment: named, with the file that shows it; and nothing where all is well."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from tests.binaries.artefacts import CUBIN, container, elf, entry
from tests.diagnose.causes.conftest import CODE, CUDNN, PINS, RUNTIME, World
from tests.environment.prefixes import BEFORE_CXX11, NUMPY_1, NUMPY_2, conda_record, install


def vision(version: str, needed: str, tail: bytes = CODE) -> dict[str, bytes | str]:
    return {
        "torchvision/version.py": f"__version__ = {version!r}\n",
        "torchvision/_C.so": elf(("libtorch.so", "libc10_cuda.so", needed), tail=tail),
    }


def healthy(world: World) -> None:
    world.prefix.add("torchvision", "0.23.0", vision("0.23.0+cu128", "libcudart.so.12"), requires=["torch==2.8.0"])
    world.prefix.add("numpy", "2.1.0")


def cpu_build(world: World) -> None:
    world.prefix.remove("torch")
    world.prefix.add_torch("2.8.0+cpu", None, requires=["filelock"])


def cpu_build_that_does_not_say_so(world: World) -> None:
    world.prefix.remove("torch")
    world.prefix.add_torch("2.8.0", None, requires=["filelock"])


def vision_of_another_cuda(world: World) -> None:
    world.prefix.add("torchvision", "0.24.0", vision("0.24.0+cu130", "libcudart.so.13"), requires=["torch==2.9.0"])


def vision_without_cuda(world: World) -> None:
    files = {**vision("0.23.0+cpu", "libm.so.6"), "torchvision/_C.so": elf(("libtorch.so", "libc10.so"))}
    world.prefix.add("torchvision", "0.23.0+cpu", files, requires=["torch==2.8.0"])


def extension_of_the_old_abi(world: World) -> None:
    # Any name in the table of names does, where a real library has that of the function.
    library = elf(("libc10_cuda.so",), soname=BEFORE_CXX11.strip(b"\0").decode(), tail=CODE)
    world.prefix.add("my-ops", "1.0", {"my_ops.so": library})


def extension_without_code_for_the_card(world: World) -> None:
    world.prefix.add("my-ops", "1.0", {"my_ops.so": elf(("libc10_cuda.so",), tail=container(entry(CUBIN, 80)))})


def overwritten_cudnn(world: World) -> None:
    world.prefix.add("nvidia-cudnn-cu13", "9.13.0.50", {CUDNN: elf(soname="libcudnn.so.9", tail=b"other")})


def older_runtime(world: World) -> None:
    world.prefix.remove("nvidia-cuda-runtime-cu12")
    world.prefix.add("nvidia-cuda-runtime-cu12", "12.1.105", RUNTIME)


def two_records(world: World) -> None:
    world.prefix.add("nvidia-cudnn-cu12", "9.1.0.70", {CUDNN: elf(soname="libcudnn.so.9")})


def half_removed_cudnn(world: World) -> None:
    (world.prefix.site / CUDNN).unlink()


def cudnn_never_installed(world: World) -> None:
    world.prefix.remove("nvidia-cudnn-cu12")


def half_removed_torch(world: World) -> None:
    (world.prefix.site / "~orch").mkdir()
    (world.prefix.site / "torch/lib/libtorch_cuda.so").unlink()


def cut_off_cudnn(world: World) -> None:
    path = world.prefix.site / "nvidia/cudnn/lib/libcudnn_ops.so.9"
    path.write_bytes(path.read_bytes()[:-8])


def emptied_cudnn(world: World) -> None:
    (world.prefix.site / CUDNN).write_bytes(b"")


def numpy_2(world: World) -> None:
    world.prefix.remove("torch")
    world.prefix.add_torch(numpy=NUMPY_1, requires=PINS, needed=("libcudart.so.12", "libcudnn.so.9"))
    world.prefix.add("numpy", "2.1.0")


def numpy_2_beside_any_package(world: World) -> None:
    world.prefix.add("numpy", "2.1.0")
    library = elf(("libc.so.6",), tail=NUMPY_1)
    world.prefix.add("pandas", "2.1.4", {"pandas/algos.so": library}, requires=["numpy>=1.22"])


def without_typing_extensions(world: World) -> None:
    world.prefix.remove("torch")
    needed = ("libcudart.so.12", "libcudnn.so.9")
    world.prefix.add_torch(requires=[*PINS, "sympy>=1.13", "typing-extensions>=4.10"], needed=needed)
    world.prefix.add("sympy", "1.14.0")


def without_a_dependency_of_a_dependency(world: World) -> None:
    without_typing_extensions(world)
    world.prefix.add("typing-extensions", "4.15.0")
    world.prefix.remove("sympy")
    world.prefix.add("sympy", "1.14.0", requires=["mpmath<1.4,>=1.1.0"])


def without_its_python(world: World) -> None:
    program = world.prefix.folder / "bin/python"
    program.unlink()
    program.symlink_to("/opt/gone/bin/python3.12")


def torch_of_the_user(world: World) -> None:
    own = world.prefix.folder
    (own / "pyvenv.cfg").unlink()
    conda_record(own, "python", "3.12.4")
    user = own.parent / ".local/lib/python3.12/site-packages"
    files = {"torch/__init__.py": "", "torch/version.py": "__version__ = '2.5.1+cu124'\ncuda = '12.4'\n"}
    install(user, "torch", "2.5.1", files)


def torch_of_pythonpath(world: World) -> None:
    other = world.prefix.folder.parent / "other"
    files = {"torch/__init__.py": "", "torch/version.py": "__version__ = '2.9.0a0'\ncuda = '12.8'\n"}
    install(other, "torch", "2.9.0a0", files)
    world.variables["PYTHONPATH"] = str(other)


def pip_over_conda(world: World) -> None:
    (world.prefix.folder / "pyvenv.cfg").unlink()
    conda_record(world.prefix.folder, "python", "3.12.4")
    conda_record(world.prefix.folder, "pytorch", "2.7.1", "cuda126_h1")


def another_torchs_record(world: World) -> None:
    (world.prefix.site / "torch/version.py").write_text("__version__ = '2.9.0+cu128'\ncuda = '12.8'\n")


def another_triton(world: World) -> None:
    world.prefix.remove("triton")
    world.prefix.add("triton", "3.5.0", {"triton/__init__.py": ""})


def a_card_that_torch_lacks(world: World) -> None:
    world.target = "GTX 1080 Ti, driver 570.86.15, linux-x86_64"


def a_card_that_the_ptxas_lacks(world: World) -> None:
    world.target = "12.1, driver 580.95.05, linux-x86_64"


def an_old_driver(world: World) -> None:
    world.target = "H100, driver 470.82.01, linux-x86_64"


def on_the_loaders_path(world: World, *files: str) -> None:
    folder = world.prefix.folder.parent / "root/cuda/lib64"
    folder.mkdir(parents=True)
    for file in files:
        (folder / file).touch()
        (folder / file[: file.index(".so.") + 5]).symlink_to(file)
    world.variables["LD_LIBRARY_PATH"] = "/cuda/lib64"


def older_cudnn_graph_first(world: World) -> None:
    on_the_loaders_path(world, "libcudnn_graph.so.9.1.0")


def compat_on_a_desktop_card(world: World) -> None:
    world.target = "RTX 4090, driver 550.54.15, linux-x86_64"
    driver = world.machine.driver
    assert driver is not None
    world.changes["driver"] = replace(driver, cuda="12.4", compat_libcuda="12.8")


def no_compiler(world: World) -> None:
    world.variables["PATH"] = str(world.prefix.folder / "nothing")


def no_headers(world: World) -> None:
    (world.prefix.base / "include/python3.12/Python.h").unlink()


def cuda_home_of_nothing(world: World) -> None:
    world.variables["CUDA_HOME"] = "/nowhere/cuda"


BROKEN: list[tuple[Callable[[World], None], str, str, str | None]] = [
    (cpu_build, "cpu-build", "torch/version.py", "torch==2.8.0+cu128"),
    (cpu_build_that_does_not_say_so, "cpu-build", "torch/version.py", "torch==2.8.0+cu128"),
    (vision_of_another_cuda, "mixed-flavours", "needs libcudart.so.13", "torchvision==0.23.0"),
    (vision_without_cuda, "mixed-flavours", "0.23.0+cpu", "--force-reinstall --no-deps torchvision==0.23.0+cu128"),
    (extension_of_the_old_abi, "mixed-flavours", "my_ops.so", "--no-binary my-ops my-ops==1.0"),
    (extension_without_code_for_the_card, "no-kernel-for-gpu", "my_ops.so: sm_80", 'TORCH_CUDA_ARCH_LIST="9.0"'),
    (overwritten_cudnn, "library-mismatch", CUDNN, "uninstall -y nvidia-cudnn-cu13 &&"),
    (older_runtime, "library-mismatch", "torch pins ==12.8.90", "nvidia-cuda-runtime-cu12==12.8.90"),
    (two_records, "library-mismatch", "nvidia_cudnn_cu12-9.1.0.70", "nvidia-cudnn-cu12==9.10.2.21"),
    (half_removed_cudnn, "lock-incomplete", CUDNN, "--no-deps nvidia-cudnn-cu12==9.10.2.21"),
    (cut_off_cudnn, "lock-incomplete", "libcudnn_ops.so.9: shorter", "--no-deps nvidia-cudnn-cu12==9.10.2.21"),
    (emptied_cudnn, "lock-incomplete", "libcudnn.so.9: shorter", "--no-deps nvidia-cudnn-cu12==9.10.2.21"),
    (
        cudnn_never_installed,
        "lock-incomplete",
        "libcudnn.so.9, which the loader",
        "nvidia-cudnn-cu12==9.10.2.21",
    ),
    (half_removed_torch, "lock-incomplete", "libtorch_cuda.so", "torch==2.8.0+cu128 --index-url https://"),
    (numpy_2, "library-mismatch", "numpy-2.1.0.dist-info", '"numpy<2"'),
    (numpy_2_beside_any_package, "library-mismatch", "pandas/algos.so", '"numpy<2"'),
    (
        without_typing_extensions,
        "dependency-missing",
        "typing-extensions>=4.10, which is not installed",
        '"typing-extensions>=4.10"',
    ),
    (without_a_dependency_of_a_dependency, "dependency-missing", "requires mpmath", '"mpmath<1.4,>=1.1.0"'),
    (without_its_python, "interpreter-missing", "/opt/gone/bin/python3.12, which does not exist", "python3.12 -m venv"),
    (torch_of_the_user, "torch-replaced", "torch 2.5.1+cu124, imported", "export PYTHONNOUSERSITE=1"),
    (torch_of_pythonpath, "torch-replaced", "torch 2.9.0a0, imported", "unset PYTHONPATH"),
    (pip_over_conda, "torch-replaced", "pytorch-2.7.1-cuda126_h1.json", '"pytorch=2.7.1=cuda126_h1"'),
    (another_torchs_record, "torch-replaced", "torch/version.py: 2.9.0+cu128", "torch==2.9.0+cu128"),
    (another_triton, "triton-torch-mismatch", "requires triton==3.4.0", "--no-deps triton==3.4.0"),
    (a_card_that_torch_lacks, "no-kernel-for-gpu", "torch/lib", None),
    (a_card_that_the_ptxas_lacks, "triton-ptxas-lacks-arch", "triton 3.4.0", None),
    (an_old_driver, "driver-too-old", "470.82.01", None),
    (older_cudnn_graph_first, "library-shadowed", "libcudnn_graph.so.9.1.0", "unset LD_LIBRARY_PATH"),
    (compat_on_a_desktop_card, "compat-libcuda", "550.54.15", "cuda-compat"),
    (no_compiler, "host-compiler-missing", "no gcc", None),
    (no_headers, "python-headers-missing", "no Python.h", None),
    (cuda_home_of_nothing, "cuda-home-elsewhere", "CUDA_HOME=/nowhere/cuda", "unset CUDA_HOME"),
]


def test_nothing_is_wrong_with_what_is_in_order(world: World) -> None:
    healthy(world)
    assert world.diagnoses().diagnoses == ()


@pytest.mark.parametrize(("damage", "cause", "shown", "command"), BROKEN, ids=[case[0].__name__ for case in BROKEN])
def test_damage_is_named(
    world: World, damage: Callable[[World], None], cause: str, shown: str, command: str | None
) -> None:
    damage(world)
    found = world.first()
    assert found.cause == cause
    assert any(shown in text for text in found.evidence), found.evidence
    assert found.remedies
    if command is not None:
        assert command in (found.remedies[0].command or ""), found.remedies


def test_a_companion_is_paired_with_torch_on_a_host_without_its_gpu(world: World) -> None:
    vision_of_another_cuda(world)
    world.target = "no gpu, linux-x86_64"
    found = next(d for d in world.diagnoses().diagnoses if d.cause == "mixed-flavours")
    assert "torchvision==0.23.0+cu128" in (found.remedies[0].command or ""), found.remedies


def test_a_companion_comes_from_the_index_that_torch_came_from(world: World) -> None:
    vision_of_another_cuda(world)
    # Wheels of the default index name no variant in METADATA.
    metadata = next(world.prefix.site.glob("torch-2.8.0*.dist-info")) / "METADATA"
    metadata.write_text(metadata.read_text().replace("2.8.0+cu128", "2.8.0"))
    found = next(d for d in world.diagnoses().diagnoses if d.cause == "mixed-flavours")
    command = found.remedies[0].command or ""
    assert "torchvision==0.23.0" in command, found.remedies
    assert "+cu128" not in command and "--index" not in command, command


def test_what_torch_loads_itself_is_not_shadowed(world: World) -> None:
    preload = '        _preload_cuda_deps("cudnn", "libcudnn_graph.so.*[0-9]")'
    world.prefix.site.joinpath("torch/__init__.py").write_text(preload)
    on_the_loaders_path(world, "libcudnn_graph.so.9.1.0")
    assert world.diagnoses().diagnoses == ()


def test_a_library_for_each_cuda_and_optional_kernels_are_not_blamed(world: World) -> None:
    libraries: dict[str, bytes | str] = {
        f"bitsandbytes/libbitsandbytes_cuda{cuda}.so": elf((f"libcudart.so.{cuda[:2]}",), tail=CODE)
        for cuda in ("118", "128", "130")
    }
    world.prefix.add("bitsandbytes", "0.50.2", libraries)
    hopper_alone = elf(("libcudart.so.12",), tail=container(entry(CUBIN, 100)))
    world.prefix.add("torchao", "0.18.0", {"torchao/_C_cutlass_100.abi3.so": hopper_alone})
    assert world.diagnoses().diagnoses == ()


def test_of_torch_and_an_extension_without_code_torch_is_named(world: World) -> None:
    world.prefix.add("my-ops", "1.0", {"my_ops.so": elf(("libc10_cuda.so",), tail=CODE)})
    world.target = "V100, driver 570.86.15, linux-x86_64"
    assert "my_ops.so" in world.first().evidence[0]
    world.target = "GTX 1080 Ti, driver 570.86.15, linux-x86_64"
    found = next(d for d in world.diagnoses().diagnoses if d.cause == "no-kernel-for-gpu")
    assert not any("my_ops.so" in text for text in found.evidence)


def test_an_uninstall_that_was_stopped_is_evidence(world: World) -> None:
    half_removed_torch(world)
    assert any("~orch: left by an uninstall" in text for text in world.first().evidence)


def test_commands_reach_the_environment(world: World) -> None:
    half_removed_cudnn(world)
    command = world.first().remedies[0].command or ""
    assert command.startswith(f"{world.prefix.folder}/bin/python -m pip install ")


def test_what_serves_as_well_is_not_blamed(world: World) -> None:
    """A newer library first on the loader's path, and an old one that torch's RPATH precedes; NumPy 2 headers."""
    on_the_loaders_path(world, "libcudnn_graph.so.9.20.0", "libcudnn.so.9.0.0")
    world.prefix.add("numpy", "1.26.4")
    extension = elf(("libc10_cuda.so",), tail=CODE + NUMPY_2)
    world.prefix.add("my-ops", "1.0", {"my_ops.so": extension}, requires=["torch>=2.0"])
    assert world.diagnoses().diagnoses == ()


def test_a_log_and_an_environment_are_weighed_together(world: World) -> None:
    """The words of an error come first, and what the files say is what they are held against."""
    world.prefix.remove("triton")
    world.prefix.add("triton", "3.5.0", {"triton/__init__.py": ""})
    world.log = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has 8.00 GiB"
    assert [d.cause for d in world.diagnoses().diagnoses] == ["out-of-memory", "triton-torch-mismatch"]


def test_condas_torch_is_mended_by_conda(world: World) -> None:
    cpu_build(world)
    (world.prefix.folder / "pyvenv.cfg").unlink()
    (world.prefix.site / "torch-2.8.0+cpu.dist-info/INSTALLER").write_text("conda")
    conda_record(world.prefix.folder, "python", "3.12.4")
    conda_record(world.prefix.folder, "pytorch", "2.8.0", "cpu_generic_py312_0")
    found = world.first()
    assert found.cause == "cpu-build"
    command = found.remedies[0].command or ""
    assert command.startswith(f"conda install -p {world.prefix.folder} -c conda-forge ")
    assert "cuda" in command

"""What installed packages require of each other: what is missing, what serves in its place, and what may be removed."""

from __future__ import annotations

from tests.binaries.artefacts import elf
from tests.diagnose.causes.conftest import World
from tests.diagnose.causes.test_from_environment import numpy_2_beside_any_package, overwritten_cudnn


def test_numpy_1_is_not_proposed_against_what_is_installed(world: World) -> None:
    numpy_2_beside_any_package(world)
    world.prefix.add("opencv-python", "4.12.0.88", requires=["numpy>=2,<2.3.0"])
    (fix,) = world.first().remedies
    assert fix.command == f"{world.prefix.folder}/bin/python -m pip install --upgrade pandas"
    assert fix.text.startswith("Upgrade the modules that were compiled")


def test_what_serves_in_place_of_a_dependency_is_none_missing(world: World) -> None:
    """Another package with the same files, a module without metadata, and what conda leaves out of its packages."""
    world.prefix.add("onnxruntime-gpu", "1.22.0")
    world.prefix.add("fastembed", "1.0", requires=["onnxruntime>=1.17"])
    (world.prefix.site / "pytz.py").touch()
    world.prefix.add("pandas", "2.1.4", requires=["pytz", 'lxml; extra == "xml"', 'tzdata; sys_platform == "win32"'])
    world.prefix.add("black", "24.0", requires=["pathspec"], installer="conda")
    assert world.diagnoses().diagnoses == ()


def test_a_gap_that_torch_does_not_need_is_only_possible(world: World) -> None:
    world.prefix.add("jupyter", "1.0", requires=["notebook>=7"])
    found = world.first()
    assert (found.cause, found.certainty) == ("dependency-missing", "possible")


def test_a_wheel_that_only_an_extra_requires_is_not_called_needless(world: World) -> None:
    """jax[cuda12] installs the libraries by an extra of its plugin."""
    world.prefix.add("jax-cuda13-plugin", "0.8.0", requires=['nvidia-cudnn-cu13<10,>=9.8; extra == "with-cuda"'])
    overwritten_cudnn(world)
    found = world.first()
    assert not any("nothing requires" in fix.text for fix in found.remedies)
    assert any("jax-cuda13-plugin 0.8.0" in fix.text for fix in found.remedies)


def test_a_wheel_of_an_extra_that_was_overwritten_is_noticed(world: World) -> None:
    world.prefix.add("jax-cuda12-plugin", "0.8.0", requires=['nvidia-nccl-cu12>=2.18; extra == "with-cuda"'])
    world.prefix.add("nvidia-nccl-cu12", "2.27.3", {"nvidia/nccl/lib/libnccl.so.2": elf(soname="libnccl.so.2")})
    other = elf(soname="libnccl.so.2", tail=b"other")
    world.prefix.add("nvidia-nccl-cu13", "2.27.7", {"nvidia/nccl/lib/libnccl.so.2": other})
    assert "jax-cuda12-plugin 0.8.0 requires" in world.first().explanation

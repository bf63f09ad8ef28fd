"""``toolkit-headers-missing``: the toolkit's headers or libraries are not where the build looks."""

from __future__ import annotations

from collections.abc import Iterator

from envsolve.diagnose.causes._shared import lines
from envsolve.diagnose.model import Finding, Grounds, Remedy, RuledOut
from envsolve.diagnose.remedies.tools import nvcc_remedies
from envsolve.diagnose.scene import Scene

_EXPLANATION = (
    "A build looks for headers in include and for libraries in lib64 under CUDA_HOME, and {what} is not there. "
    "Toolkits differ in layout: a distribution's, conda's and the wheels' each put files elsewhere, and runtime "
    "packages have no headers at all. CUDA_HOME must name one tree that has nvcc, headers and libraries of the same "
    "version."
)


_LIBDEVICE = (
    "A compiler of GPU code, XLA or nvcc, links in libdevice, the toolkit's library of mathematical functions, and "
    "looks for it in nvvm/libdevice of a toolkit: where it looks there is none. The driver does not bring it; a "
    "toolkit does, and so does a wheel."
)


def weigh(scene: Scene) -> Iterator[Finding | RuledOut]:
    """The compiler or the linker names the file."""
    if match := scene.first("libdevice"):
        yield Finding(
            "toolkit-headers-missing", Grounds.STATED, _LIBDEVICE, lines(match), tuple(_with_libdevice(scene))
        )
    header, library = scene.first("cuda-header"), scene.first("cuda-library-link")
    match = header or library
    if match is None:
        return
    what = match.group("header", "library", "msvc") or "a file"
    remedies = tuple(_remedies(scene, what, linking=header is None))
    yield Finding(
        "toolkit-headers-missing", Grounds.STATED, _EXPLANATION.format(what=what), lines(header, library), remedies
    )


def _with_libdevice(scene: Scene) -> Iterator[Remedy]:
    if scene.mentions("tensorflow"):
        yield Remedy(
            "Install the wheels that TensorFlow finds by itself, libdevice among them.",
            'pip install "tensorflow[and-cuda]"',
        )
    elif scene.mentions("jax", "hlomodule", "xla"):
        yield Remedy(
            "Install JAX with the wheels that it finds by itself, libdevice among them.", 'pip install -U "jax[cuda12]"'
        )
    if scene.mentions("jax", "xla", "tensorflow"):
        yield Remedy(
            "Or name the toolkit that has nvvm/libdevice.", "export XLA_FLAGS=--xla_gpu_cuda_data_dir=/usr/local/cuda"
        )
        return
    yield Remedy(
        "Name the toolkit that has nvvm/libdevice.", "export CUDA_HOME=/usr/local/cuda && ls $CUDA_HOME/nvvm/libdevice"
    )


def _remedies(scene: Scene, what: str, *, linking: bool) -> Iterator[Remedy]:
    conda = scene.mentions("conda", "mamba", "pixi") and scene.os != "windows"
    cuda = (scene.torch.cuda if scene.torch else None) or "12.8"
    if conda and linking:
        yield Remedy(
            "Conda's toolkit has its libraries in lib: name the folder to the linker.",
            "export CUDA_HOME=$CONDA_PREFIX LIBRARY_PATH=$CONDA_PREFIX/lib:$LIBRARY_PATH",
        )
    elif conda:
        yield Remedy(
            "Conda's toolkit has its headers in targets: name the folder to the compiler.",
            "export CUDA_HOME=$CONDA_PREFIX CPATH=$CONDA_PREFIX/targets/x86_64-linux/include:$CPATH",
        )
    if "cudnn" in what:
        yield Remedy(
            "Install cuDNN's headers and name their folder.",
            "pip install nvidia-cudnn-cu12 && export CPATH=\"$(python -c 'import nvidia.cudnn as c; "
            "print(c.__path__[0])')/include:$CPATH\"",
        )
        return
    if "nccl" in what:
        yield Remedy("Install NCCL with its headers.", "sudo apt-get install -y libnccl-dev")
        return
    yield from nvcc_remedies(scene, cuda)
    if not scene.in_container and scene.os != "windows":
        yield Remedy(
            "Or name the system's toolkit, if it is whole.",
            f"export CUDA_HOME=/usr/local/cuda-{cuda} && ls $CUDA_HOME/include/cuda_runtime.h",
        )

"""Which libraries of a package are its main ones, and what they tell of its builds.

The names are how its wheels are read, not a fact about a release; what a wheel lacks is left unknown.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence

from msgspec.structs import replace
from packaging.version import Version

from envsolve.catalogue.measure.artefact import Artefact
from envsolve.catalogue.measure.extension import Extension, read_extension
from envsolve.catalogue.model import Build, Toolkit

_MAIN: Mapping[str, re.Pattern[str]] = {
    package: re.compile(pattern)
    for package, pattern in {
        "torchvision": r"torchvision/_C(_stable)?\.([\w-]+\.)?(so|pyd)",
        "torchaudio": r"torchaudio/(lib/)?(lib|_)torchaudio(\.[\w-]+)?\.(so|pyd)",
        "torchcodec": r"torchcodec/libtorchcodec_?(core|decoder)?\d+\.(so|dll)",
        "torch-tensorrt": r"torch_tensorrt/lib/(lib)?torchtrt\.(so|dll)",
        "torchao": r"torchao/(prototype/)?[\w-]+(\.[\w-]+)?\.so",
        "xformers": r"xformers/_C\.(so|pyd)",
        "vllm": r"vllm/_C(_stable_libtorch)?\.[\w.-]+",
        # One is loaded on cc 9.0 and the other on every other card; both hold the same list.
        "sgl-kernel": r"sgl_kernel/(sm\d+/)?common_ops[\w.-]+",
        "sglang-kernel": r"sgl_kernel/(sm\d+/)?common_ops[\w.-]+",
        "fbgemm-gpu": r"fbgemm_gpu/fbgemm_gpu_py\.so",
        "transformer-engine-cu12": r"transformer_engine/(wheel_lib/)?libtransformer_engine\.so",
        "transformer-engine-cu13": r"transformer_engine/(wheel_lib/)?libtransformer_engine\.so",
        "onnxruntime-gpu": r"onnxruntime/capi/(lib)?onnxruntime_providers_cuda\.(so|dll)",
        # The libraries that hold compiled kernels; CuPy compiles its others for the card when they are first used.
        "cupy": r"cupy/(cuda/(cub|thrust)|random/_generator_api)\.[\w.-]+",
        # XLA compiles a program for the card at hand; these are the kernels that JAX ships ready-made.
        "jax-plugin": r"jax_cuda\d+_plugin/_(linalg|prng)\.so",
        "jax-pjrt": r"jax_plugins/xla_cuda\d+/xla_cuda_plugin\.so",
    }.items()
}
# Each of its libraries holds the kernels for other cards, and it loads all of them: its list is that of all together.
_OF_ALL_LIBRARIES = frozenset({"torchao"})
_KIND = re.compile(r"(cupy)-cuda\w+|(jax)-cuda\d+(-(?:plugin|pjrt))")


def extension_of(package: str, wheel: Artefact) -> Extension | None:
    """What the main libraries of a package carry; None where they are not known, or missing.

    Raises:
        UsageError: A library is damaged.
    """
    kind = _KIND.fullmatch(package)
    main = _MAIN.get("".join(filter(None, kind.groups())) if kind else package)
    extension = read_extension(wheel, main) if main else None
    if extension is not None and package in _OF_ALL_LIBRARIES:
        return dataclasses.replace(extension, code=extension.every)
    return extension


def with_extension(build: Build, extension: Extension | None) -> Build:
    """A build with what its main libraries tell: GPU code and C++11 ABI."""
    if extension is None:
        return build
    return replace(build, code=extension.code if build.cuda else (), cxx11_abi=extension.cxx11_abi)


def compiled_with(cuda: str, extension: Extension, toolkits: Sequence[Toolkit]) -> str:
    """The toolkit that the code was compiled with: of the same major as ``cuda``, with its PTX version and its GPUs.

    Returns:
        ``cuda`` itself where it is among several that could be, else the oldest that could; ``cuda`` where none could.
    """
    code = {name.replace("compute_", "sm_") for name in extension.every}
    possible = [
        toolkit.version
        for toolkit in toolkits
        if toolkit.version.split(".")[0] == cuda.split(".")[0]
        and code <= set(toolkit.archs)
        and extension.ptx_isa in (None, toolkit.ptx_isa)
    ]
    return cuda if cuda in possible else min(possible, key=Version, default=cuda)

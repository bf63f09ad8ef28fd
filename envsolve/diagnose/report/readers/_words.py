"""Shapes that several readers look for."""

from __future__ import annotations

import re
from collections.abc import Iterator

from packaging.utils import canonicalize_name

from envsolve.values import CudaVersion

VERSION = (
    r"\d{1,4}(?:\.\d{1,8}){1,4}(?:(?:a|b|rc|\.?post|\.?dev)\d{1,8}){0,2}"
    r"(?:\+[A-Za-z0-9]{1,40}(?:[._][A-Za-z0-9]{1,40}){0,6})?"
)
"""A package's version with at least two numbers, local part included."""

# Names that a report of a GPU environment turns on; others are read only where a list says that they are packages.
_RELATED = re.compile(
    r"(?:(?:py)?torch|libtorch|pytorch-(?:cuda|gpu|cpu|lightning|triton|mutex)|pytorch3d"
    r"|torch(?:vision|audio|text|codec|ao|data|rec|titan|tune)|torch-(?:scatter|sparse|cluster|spline-conv|geometric|tensorrt|memory-saver|harmonics)"
    r"|(?:pytorch-)?triton(?:-[a-z]{2,12})?|xformers|flash-attn(?:-\d)?|flash-attention|vllm(?:-[a-z-]{2,20})?|sglang|sgl-kernel"
    r"|sglang-kernel|flashinfer(?:-[a-z-]{2,20})?|bitsandbytes|deepspeed|apex|causal-conv1d|mamba-ssm|natten|unsloth(?:-zoo)?"
    r"|transformers|accelerate|peft|transformer-engine(?:-[a-z0-9]{2,8})?|fbgemm-gpu|auto-gptq|autoawq|gptqmodel|lmdeploy"
    r"|numpy|numba(?:-cuda)?|cupy(?:-cuda\d{2,3}x?)?|pycuda|cuda-[a-z-]{2,30}|cudatoolkit|cudnn|nccl|nvidia-[a-z0-9-]{2,40}"
    r"|libcu[a-z-]{2,30}|mkl|intel-openmp|jax|jaxlib|jax-cuda\d{2}-(?:plugin|pjrt)|tensorflow(?:-[a-z]{2,10})?|keras"
    r"|onnxruntime(?:-gpu)?|tensorrt(?:-[a-z0-9]{2,12})?|mmcv(?:-full)?|mmengine|mmdet|detectron2|lightning|spconv-cu\d{2,3}"
    r"|gsplat|nerfacc|nvdiffrast|tinycudann|tiny-cuda-nn|nvidia|dgl|rmm-cu\d{2}|cu(?:df|ml|graph)(?:-cu\d{2})?|llama-cpp-python"
    r"|nerfstudio|warp-lang|cuvs-cu\d{2}|openai-triton|tilelang|ninja|setuptools|gcc|gxx|gcc-linux-64|gxx-linux-64)"
)
# What is said of other times, other machines, or what somebody wants.
_NO_PACKAGE = frozenset({"nvidia-smi", "nvidia-driver", "cuda-driver", "cuda-version", "nvidia"})
_ASIDE = re.compile(
    r"(?<!not )(?<!n't )(?<!never )\b(?:works|worked|working|runs|ran)\b"
    r"|\b(?:used to|before|previously|formerly|earlier|older|instead|until|either|gives? the same|same (?:error|on)"
    r"|did not have|should|would|could|needs?|requires?|required|requirement|at least|minimum|or (?:newer|later"
    r"|higher|above|older)"
    r"|(?:up|down)grad\w{1,4}|updat\w{1,3} (?:to|from)|switch\w{0,4} to|built against|supports?|supported"
    r"|suggest\w{0,3}|depends on|conflict\w{0,4}|incompatible|not a supported|from versions|no matching|ignored"
    r"|collecting"
    r"|downloading|you have|expected|e\.g\.|for example|such as|documented|documentation|release notes|after i"
    r"|when i)\b",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"(?<=[.!?;])\s{1,20}(?=[A-Z(\d`*>-])")


def is_related(name: str) -> bool:
    """Whether a normalised name is that of a package which decides on GPUs, or stands on one that does."""
    return name not in _NO_PACKAGE and _RELATED.fullmatch(name) is not None


def normalised(name: str) -> str:
    """A package's name as installers compare it."""
    return str(canonicalize_name(name))


def sentences(text: str) -> Iterator[str]:
    """The sentences of a line that speak of the environment at hand, as far as their words tell."""
    return (sentence for sentence in _SENTENCE_END.split(text) if not _ASIDE.search(sentence))


def minor(version: str) -> str:
    """The first two numbers: ``12.4`` of ``12.4.131``."""
    return str(CudaVersion.parse(version))


def cuda_of_number(number: int) -> str:
    """CUDA's own version number as text: 12040 is ``12.4``."""
    return f"{number // 1000}.{number % 1000 // 10}"

"""Building an extension again, for the cards at hand."""

from __future__ import annotations

import re
from collections.abc import Sequence

from envsolve.compat.toolchain import CompilerFacts
from envsolve.compat.toolchain import arch_list as entries_for
from envsolve.diagnose.installed import public
from envsolve.diagnose.model import Remedy
from envsolve.diagnose.scene import Scene
from envsolve.machine.model import Gpu

_SOURCE = re.compile(r"git\+https?://[\w./@#&=?%+-]{1,200}")
_HERE = re.compile(r"pip3? install\b[^|&;#\n]{0,120}?(?<!\S)(?P<path>\.{1,2}(?:/[\w./-]*)?(?:\[[\w,]*\])?)(?!\S)")


def rebuild(scene: Scene, gpus: Sequence[Gpu]) -> tuple[Remedy, ...]:
    """The command that builds the extension for the cards; empty where the cards are not known."""
    listed = archs_for(scene, gpus)
    what = source_of(scene)
    if not listed:
        text = (
            "Build the extension again with the cards named: TORCH_CUDA_ARCH_LIST takes their compute capabilities, "
            "such as 7.0;8.0 (nvidia-smi --query-gpu=compute_cap --format=csv shows them)."
        )
        listed = "..."
    else:
        text = f"Build the extension again for {listed.replace(';', ' and ')}, wherever it is built."
    if scene.mentions("dockerfile", "\nrun ", "docker build"):
        text += " In a Dockerfile, ENV TORCH_CUDA_ARCH_LIST before the RUN line does it."
    if scene.mentions("cmake_cuda_architectures", "cuda_architectures"):
        text = "Name the cards to CMake in place of native, wherever it is built."
        numbers = listed.replace(".", "") if listed != "..." else "80;90"
        return (Remedy(text, f'cmake -DCMAKE_CUDA_ARCHITECTURES="{numbers}" ...'),)
    command = f'TORCH_CUDA_ARCH_LIST="{listed}" pip install --no-build-isolation --no-cache-dir --force-reinstall'
    return (Remedy(text, f"{command} --no-deps {what}"),)


def arch_list(gpus: Sequence[Gpu]) -> str:
    """``7.0;8.0``: cards as TORCH_CUDA_ARCH_LIST takes them; empty where none is known."""
    return ";".join(str(cc) for cc in sorted({gpu.cc for gpu in gpus if gpu.cc}))


def archs_for(scene: Scene, gpus: Sequence[Gpu]) -> str:
    """The same, in the entries that the torch at hand and its nvcc know (rule 10)."""
    build = scene.torch.build if scene.torch else None
    if build is not None and build.cuda is not None:
        entries, _ = entries_for(build, {gpu.cc for gpu in gpus if gpu.cc}, CompilerFacts.of(scene.catalogue))
        return entries or arch_list(gpus)
    return arch_list(gpus)


def extension_named(scene: Scene, line: str = "") -> str | None:
    """The project of the library on a line, else the first one that the report names."""
    modules, low = scene.catalogue.extension_modules, line.lower()
    on_line = next((module.package for module in modules if module.name in low), None)
    return on_line or next((module.package for module in modules if scene.mentions(module.name)), None)


def source_of(scene: Scene) -> str:
    """What the report installs from source, ``git+https://...`` or ``.``, else the extension that it names."""
    if match := _SOURCE.search(scene.report.text):
        return f'"{match[0]}"' if set(match[0]) & set("#&?") else match[0]
    for seen in scene.report.commands:
        if match := _HERE.search(seen.value):
            return match["path"]
    name = extension_named(scene)
    if name is None:
        return "."
    version = public(scene.report.installed, name)
    return f"--no-binary {name} {name}" + (f"=={version}" if version else "")

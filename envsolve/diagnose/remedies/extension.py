"""Building an extension again, for the cards at hand."""

from __future__ import annotations

import re
from collections.abc import Sequence

from envsolve.compat.toolchain import CompilerFacts
from envsolve.compat.toolchain import arch_list as entries_for
from envsolve.diagnose.model import Remedy
from envsolve.diagnose.scene import Scene
from envsolve.machine.model import Gpu

_INSTALL = re.compile(r"pip3? install\b(?P<arguments>[^|&;#]{1,200})")
_SOURCE = re.compile(r"git\+\S+|(?<!\S)\.{1,2}(?:/\S*)?(?!\S)|(?<!\S)[A-Za-z][\w.-]*(?:==\S+)?(?!\S)")
#: Bindings that are named in reports of a failing extension, by the project that they are built from.
_OPTIONS = re.compile(r"(?:^|\s)-{1,2}[\w-]+(?:[= ]\"[^\"]*\")?")


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


def source_of(scene: Scene) -> str:
    """What the report installs from source, ``git+https://...`` or ``.``; the folder at hand where it does not say."""
    for seen in scene.report.commands:
        if match := _INSTALL.search(seen.value):
            arguments = _OPTIONS.sub(" ", match["arguments"])
            sources: list[str] = [word.strip("'\"") for word in _SOURCE.findall(arguments)]
            if sources:
                return sources[-1]
    if match := re.search(r"git\+https?://[\w./@#&=?%+-]{1,200}", scene.report.text):
        return f'"{match[0]}"' if set(match[0]) & set("#&?") else match[0]
    return "."

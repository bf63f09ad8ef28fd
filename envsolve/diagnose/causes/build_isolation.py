"""``build-isolation``: the build runs in an environment of its own, which has no torch."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envsolve.diagnose.causes._shared import lines
from envsolve.diagnose.model import Finding, Grounds, Remedy, RuledOut
from envsolve.diagnose.remedies.torch import installer, led_by, pair_with
from envsolve.diagnose.scene import Scene

_BUILDING = (
    "getting requirements to build",
    "build dependencies",
    "build wheel",
    "egg_info",
    "metadata-generation-failed",
    "get_requires_for_build",
    "setup.py",
    "pep 517",
    "build backend",
    "failed to build",
    "build-system",
)
_SOURCES = (
    "flash-attn",
    "flash_attn",
    "deepspeed",
    "apex",
    "xformers",
    "mamba-ssm",
    "causal-conv1d",
    "detectron2",
    "torch-scatter",
    "git+",
)

_EXPLANATION = (
    "pip and uv build a package in a fresh environment that holds only what its build-system table names, and this "
    "one does not name torch although its setup.py imports it. That torch is installed beside it does not count "
    "there. Without isolation the build sees the torch at hand, which it must be compiled against anyway."
)


def weigh(scene: Scene) -> Iterator[Finding | RuledOut]:
    """The import fails while something is built; at run time the same words only say that torch is not installed."""
    match = scene.first("isolated-build-uv", "isolated-build", "isolated-tools")
    if match is None:
        return
    building = match.signature.id == "isolated-build-uv" or scene.mentions(*_BUILDING)
    if not building and not scene.mentions(*_SOURCES):
        yield RuledOut(
            "torch is not installed in the interpreter that runs the program: compare `python -m pip show torch` "
            "with the interpreter's path"
        )
        return
    grounds = Grounds.STATED if building else Grounds.SUGGESTED
    evidence = lines(match)
    yield Finding("build-isolation", grounds, _EXPLANATION, evidence, tuple(_remedies(scene)))


def _remedies(scene: Scene) -> Iterator[Remedy]:
    if scene.torch is None or scene.torch.version is None:
        first = pair_with(scene, {})
        if first:
            yield led_by("First of all", first)
    name = next(
        (n for n in ("flash-attn", "deepspeed", "apex", "mamba-ssm", "causal-conv1d", "xformers") if scene.mentions(n)),
        None,
    )
    named = re.search(r"(?:pip3? install|uv add|uv pip install) (?:-\S+ )*([^\s|&;]+)", scene.report.text)
    what = named[1] if named else name or "PACKAGE"
    yield Remedy(
        "Build in the environment itself, with the build tools that isolation would have brought.",
        f"{installer(scene)} install setuptools wheel packaging ninja && {installer(scene)} install "
        f"--no-build-isolation {what}",
    )
    if scene.mentions("uv sync", "uv add", "uv lock", "pyproject"):
        yield Remedy(
            "With uv, state it once in pyproject.toml.",
            f"printf '[tool.uv]\\nno-build-isolation-package = [\"{what}\"]\\n' >> pyproject.toml",
        )
    if scene.mentions("environment.yml", "- pip:"):
        yield Remedy(
            "In an environment.yml the pip section is built in isolation: install such packages in a second step, with "
            "pip install --no-build-isolation, and take pytorch-gpu with cuda-version from conda-forge in the first."
        )

"""``build-isolation``: the build runs in an environment of its own, which has no torch."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envsolve.diagnose.causes._shared import Cause, lines
from envsolve.diagnose.fixes import installer, led_by, pair_with
from envsolve.diagnose.model import Finding, Fix, Grounds, RuledOut
from envsolve.diagnose.scene import Scene

CAUSE = Cause.of(__name__)
_BUILDING = (
    *("getting requirements to build", "build dependencies", "build wheel", "egg_info", "metadata-generation-failed"),
    *("get_requires_for_build", "setup.py", "pep 517", "build backend", "failed to build", "build-system"),
)
# Their setup.py imports torch, which their build requirements do not name.
_EXTENSIONS = ("flash-attn", "deepspeed", "apex", "mamba-ssm", "causal-conv1d", "xformers")
_SOURCES = (*_EXTENSIONS, "flash_attn", "detectron2", "torch-scatter", "git+")
_INSTALLED = re.compile(r"(?:pip3? install|uv add|uv pip install) (?:-\S+ )*([^\s|&;]+)")


def from_report(scene: Scene) -> Iterator[Finding | RuledOut]:
    """The import fails while something is built; at run time the same words only say that torch is not installed."""
    match = CAUSE.first(scene, "undeclared", "error")
    if match is None:
        return
    building = match.signature.role == "undeclared" or scene.mentions(*_BUILDING)
    if building or scene.mentions(*_SOURCES):
        grounds = Grounds.STATED if building else Grounds.SUGGESTED
        yield CAUSE.finding("isolated", grounds, lines(match), _fixes(scene))
    else:
        yield CAUSE.ruled_out("not-installed")


def _fixes(scene: Scene) -> Iterator[Fix]:
    # Without isolation the build sees the environment itself, which must have torch by then.
    if (scene.torch is None or scene.torch.version is None) and (first := pair_with(scene, {})):
        yield led_by("First of all", first)
    named = _INSTALLED.search(scene.report.text)
    package = named[1] if named else next((n for n in _EXTENSIONS if scene.mentions(n)), "PACKAGE")
    yield CAUSE.fix("build", pip=installer(scene), package=package)
    if scene.mentions("uv sync", "uv add", "uv lock", "pyproject"):
        yield CAUSE.fix("uv", package=package)
    if scene.mentions("environment.yml", "- pip:"):
        yield CAUSE.fix("environment-yml")

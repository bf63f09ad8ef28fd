"""``virtual-package-missing``: conda or pixi solves for a machine with a driver on one without."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envsolve.diagnose.causes._shared import lines
from envsolve.diagnose.model import Finding, Grounds, Remedy, RuledOut
from envsolve.diagnose.scene import Scene
from envsolve.values import CudaVersion

_EXPLANATION = (
    "Conda's CUDA builds ask for the virtual package __cuda, which conda makes up from the driver that it sees; on a "
    "login node, or while an image is built, it sees none. Nothing can be installed to provide it. "
    "CONDA_OVERRIDE_CUDA tells the solver the driver's CUDA version of the machine that the environment is for."
)


def weigh(scene: Scene) -> Iterator[Finding | RuledOut]:
    """The solver names the virtual package."""
    match = scene.first("conda-cuda-virtual")
    if match:
        yield Finding("virtual-package-missing", Grounds.STATED, _EXPLANATION, lines(match), tuple(_remedies(scene)))


def _remedies(scene: Scene) -> Iterator[Remedy]:
    version = _cuda(scene)
    if scene.mentions("pixi", "workspace requires", "feature:/"):
        where = "ENV CONDA_OVERRIDE_CUDA in the Dockerfile, " if scene.mentions("dockerfile", "\nrun ") else ""
        text = f"Tell pixi the driver that the target has ({where}keep the system-requirements of pixi.toml)."
        yield Remedy(text, f"CONDA_OVERRIDE_CUDA={version} pixi install")
        return
    command = next(
        (
            s.value
            for s in scene.report.commands
            if re.search(r"(?:conda|mamba) (?:env )?(?:create|install|update)", s.value)
        ),
        None,
    )
    text = (
        "Tell the solver the CUDA version of the driver on the machines that will run it (nvidia-smi there shows it)."
    )
    yield Remedy(text, f"CONDA_OVERRIDE_CUDA={version} {command or 'conda create ...'}")


def _cuda(scene: Scene) -> str:
    """The target's CUDA, as far as the request names it."""
    if scene.driver and scene.driver.cuda:
        return scene.driver.cuda
    asked = re.search(
        r"cuda[-_ ]?(?:version)?\W{0,6}(1[1-4])(?:\.(\d+))?|__cuda ?>=? ?(1[1-4])(?:\.(\d+))?", scene.report.text
    )
    if asked is None:
        return "12.9"
    major, minor = asked[1] or asked[3], asked[2] or asked[4]
    known = [t.version for t in scene.catalogue.toolkits if t.version.startswith(f"{major}.")]
    return f"{major}.{minor}" if minor else str(CudaVersion.parse((known or [f"{major}.0"])[-1]))

"""``cuda-home-elsewhere``: CUDA_HOME leads to nothing, or to another toolkit than the ``nvcc`` on PATH."""

from __future__ import annotations

from collections.abc import Iterator

from envsolve.diagnose.model import Finding, Grounds, Remedy
from envsolve.diagnose.scene import Scene
from envsolve.environment.model import Environment
from envsolve.values import CudaVersion

_EXPLANATION = (
    "Builds of extensions take the toolkit that CUDA_HOME names, whatever nvcc is on PATH. {what}. Installed "
    "packages do not read it, so this concerns only what is compiled here."
)


def check(environment: Environment, scene: Scene) -> Iterator[Finding]:
    """Compare what the variable says with what is there."""
    tools = environment.tools
    if tools.cuda_home is None:
        return
    home, path = tools.cuda_home_toolkit, tools.path_toolkit
    if home is None:
        what = f"It says {tools.cuda_home}, and there is no toolkit"
    elif home.version and path and path.version and CudaVersion.parse(home.version) != CudaVersion.parse(path.version):
        what = f"It says {tools.cuda_home}, CUDA {home.version}, and nvcc on PATH is of CUDA {path.version}"
    else:
        return
    evidence = (f"CUDA_HOME={tools.cuda_home}", *((f"PATH: {path.path}, CUDA {path.version}",) if path else ()))
    yield Finding(
        "cuda-home-elsewhere",
        Grounds.NOTICED,
        _EXPLANATION.format(what=what),
        evidence,
        tuple(_remedies(environment)),
    )


def _remedies(environment: Environment) -> Iterator[Remedy]:
    torch, path = environment.torch, environment.tools.path_toolkit
    cuda = torch.cuda if torch else None
    if (
        path
        and path.nvcc
        and path.version
        and (cuda is None or CudaVersion.parse(path.version).major == CudaVersion.parse(cuda).major)
    ):
        yield Remedy(
            f"Let it name the toolkit of the nvcc on PATH, CUDA {path.version}.", f"export CUDA_HOME={path.path}"
        )
    else:
        wanted = f" of CUDA {cuda}, as torch has it" if cuda else ""
        yield Remedy(f"Unset it, or let it name a toolkit{wanted}.", "unset CUDA_HOME")

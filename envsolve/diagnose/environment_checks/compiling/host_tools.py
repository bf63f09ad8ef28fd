"""``host-compiler-missing`` and ``python-headers-missing``: what Triton's launcher is compiled with at first use."""

from __future__ import annotations

from collections.abc import Iterator

from envsolve.diagnose.causes._shared import system_install
from envsolve.diagnose.model import Finding, Grounds, Remedy
from envsolve.diagnose.scene import Scene
from envsolve.environment.model import Environment
from envsolve.values import PythonVersion

_COMPILER = (
    "Triton compiles a small C module at first use, so torch.compile and packages with Triton kernels need a C "
    "compiler on the machine that runs them. There is none on PATH or in the environment. No Python package has to "
    "change."
)
_HEADERS = (
    "Triton compiles a small C module at first use, which includes Python.h, and this interpreter has no headers "
    "beside it: distributions put them into a package of their own. They must be of this very version. Torch's own "
    "kernels run without."
)


def check(environment: Environment, scene: Scene) -> Iterator[Finding]:
    """Only where a Triton is installed that needs them, on a machine with a GPU."""
    triton = environment.distribution("triton") or environment.distribution("pytorch-triton")
    release = scene.facts.tritons.get((triton.version or "").partition("+")[0]) if triton else None
    if triton is None or release is None or environment.torch is None or not scene.gpus:
        return
    evidence = (f"{triton.info}: {triton.label}",)
    named = "CC" in (scene.machine.environment or {})
    if "c-compiler" in release.host_needs and not (
        environment.tools.compilers or scene.machine.host_compilers or named
    ):
        shown = (*evidence, "PATH: no gcc, clang or cc")
        yield Finding("host-compiler-missing", Grounds.READ, _COMPILER, shown, tuple(_compilers(environment, scene)))
    if "python-headers" in release.host_needs and environment.tools.python_h is None:
        shown = (*evidence, f"{environment.base}/include: no Python.h of Python {environment.python}")
        yield Finding("python-headers-missing", Grounds.READ, _HEADERS, shown, tuple(_headers(environment, scene)))


def _compilers(environment: Environment, scene: Scene) -> Iterator[Remedy]:
    if environment.kind in ("conda", "pixi"):
        yield Remedy("Install conda's compiler into the environment.", "conda install -c conda-forge c-compiler")
    install = system_install(scene)
    yield Remedy("Install a C compiler on the machine.", f"{install} gcc")


def _headers(environment: Environment, scene: Scene) -> Iterator[Remedy]:
    minor = str(PythonVersion.parse(environment.python)) if environment.python else "3"
    if environment.base == "/usr":
        install = system_install(scene)
        name = f"python{minor}-devel" if "dnf" in install else f"python{minor}-dev"
        yield Remedy(f"Install the headers of Python {minor}.", f"{install} {name}")
    text = "Make the environment from a Python that brings its headers, as uv's and conda's do."
    yield Remedy(text, f"uv venv --python-preference only-managed --python {minor} DIR")

"""``python-headers-missing``: ``Python.h`` of the interpreter in use is not installed."""

from __future__ import annotations

from collections.abc import Iterator

from envsolve.diagnose.causes._shared import Cause, installed_triton, lines, system_install
from envsolve.diagnose.model import Finding, Fix, Grounds
from envsolve.diagnose.scene import Scene
from envsolve.environment.model import Environment
from envsolve.values import PythonVersion

CAUSE = Cause.of(__name__)


def from_report(scene: Scene) -> Iterator[Finding]:
    """The compiler names the header."""
    if match := CAUSE.first(scene):
        yield CAUSE.finding("missing", Grounds.STATED, lines(match), _fixes(scene))


def from_environment(environment: Environment, scene: Scene) -> Iterator[Finding]:
    """Only if a Triton is installed that compiles its launcher, on a machine with a GPU."""
    found = installed_triton(environment, scene)
    if found is None or environment.tools.python_h is not None:
        return
    triton, release = found
    if "python-headers" in release.host_needs:
        missing = f"{environment.base}/include: no Python.h of Python {environment.python}"
        fixes = _environment_fixes(environment, scene)
        yield CAUSE.finding("triton", Grounds.READ, (f"{triton.info}: {triton.label}", missing), fixes)


def _fixes(scene: Scene) -> Iterator[Fix]:
    python = scene.python
    if scene.os == "windows":
        if python:
            yield CAUSE.fix("embedded", python=python, digits=python.replace(".", ""))
        else:
            own = scene.mentions("python_embeded")
            yield CAUSE.fix("embedded-any", executable=r".\python_embeded\python.exe" if own else "python")
        return
    interpreter = f"the interpreter in use{f', Python {python}' if python else ''}"
    yield _package(scene, python or "3", interpreter)
    yield CAUSE.fix("managed", python=python or "3.12")


def _environment_fixes(environment: Environment, scene: Scene) -> Iterator[Fix]:
    python = str(PythonVersion.parse(environment.python)) if environment.python else "3"
    if environment.base == "/usr":
        yield _package(scene, python, f"Python {python}")
    yield CAUSE.fix("managed-environment", python=python)


def _package(scene: Scene, python: str, interpreter: str) -> Fix:
    install = system_install(scene)
    suffix = "devel" if "dnf" in install else "dev"
    return CAUSE.fix("package", install=install, python=python, suffix=suffix, interpreter=interpreter)

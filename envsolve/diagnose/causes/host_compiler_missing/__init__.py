"""``host-compiler-missing``: code is compiled, but no C compiler is installed."""

from __future__ import annotations

from collections.abc import Iterator

from envsolve.diagnose.causes._shared import Cause, installed_triton, lines, system_install
from envsolve.diagnose.model import Finding, Fix, Grounds
from envsolve.diagnose.scene import Scene
from envsolve.diagnose.signatures import Match
from envsolve.environment.model import Environment

CAUSE = Cause.of(__name__)
#: Variables that name a compiler in place of the one on PATH.
_VARIABLES = ("CUDAHOSTCXX", "NVCC_CCBIN", "CC", "CXX")


def from_report(scene: Scene) -> Iterator[Finding]:
    """The tool that needs a compiler says so."""
    if match := CAUSE.first(scene):
        yield CAUSE.finding("missing", Grounds.STATED, lines(match), _fixes(scene, match))


def from_environment(environment: Environment, scene: Scene) -> Iterator[Finding]:
    """Only if a Triton is installed that compiles its launcher, on a machine with a GPU."""
    found = installed_triton(environment, scene)
    named = "CC" in (scene.machine.environment or {})
    if found is None or environment.tools.compilers or scene.machine.host_compilers or named:
        return
    triton, release = found
    if "c-compiler" in release.host_needs:
        evidence = (f"{triton.info}: {triton.label}", "PATH: no gcc, clang or cc")
        conda = (CAUSE.fix("conda-environment"),) if environment.kind in ("conda", "pixi") else ()
        fixes = (*conda, CAUSE.fix("machine", install=system_install(scene)))
        yield CAUSE.finding("triton", Grounds.READ, evidence, fixes)


def _fixes(scene: Scene, match: Match) -> Iterator[Fix]:
    if match.signature.id == "msvc-missing" or scene.os == "windows" or "'cl'" in match.quote:
        yield CAUSE.fix("msvc")
        return
    named = [name for name in _VARIABLES if f"{name.lower()}=" in scene.report.text.lower()]
    if named:
        yield CAUSE.fix("unset", names=" ".join(named))
    install = system_install(scene)
    packages = "gcc gcc-c++" if "dnf" in install else "gcc" if "pacman" in install else "build-essential"
    where = " in the image that runs the program" if scene.in_container else ""
    # An image has no package lists; a system's own are kept up to date.
    update = "apt-get update && " if install.startswith("apt-get") else ""
    yield CAUSE.fix("system", where=where, command=f"{update}{install} {packages}")
    yield CAUSE.fix("conda")
    yield CAUSE.fix("name")

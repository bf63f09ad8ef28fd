"""``compat-libcuda`` before any error: the loader would take a cuda-compat ``libcuda`` where it may not (rule 8)."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from envsolve.diagnose.model import Finding, Grounds, Remedy
from envsolve.diagnose.scene import Scene
from envsolve.environment.model import Environment
from envsolve.rules.driver import ForwardFacts, compat_serves

_EXPLANATION = (
    "The loader finds the libcuda of a cuda-compat package before the driver's own, and that does not serve here: "
    "{why}. So every CUDA call fails. The driver's own libcuda must be found first; torch and the driver stay as they "
    "are."
)


def check(environment: Environment, scene: Scene) -> Iterator[Finding]:
    """Judge the compat library that the machine's loader would take."""
    if scene.driver is None or scene.compat_libcuda is None:
        return
    driver = replace(scene.driver, compat_libcuda=scene.compat_libcuda)
    reason = compat_serves(replace(scene.machine, driver=driver), ForwardFacts(scene.catalogue))
    # A library for the driver's own CUDA may be the driver's own.
    if reason is None or reason.ok is not False or driver.compat_libcuda == driver.cuda:
        return
    folders = [f.path for f in environment.loader if f.origin == "LD_LIBRARY_PATH" and "libcuda.so.1" in f.libraries]
    text = _EXPLANATION.format(why=reason.text)
    evidence = (*(f"{folder}/libcuda.so.1: on LD_LIBRARY_PATH" for folder in folders), *scene.driver_evidence)
    yield Finding(
        "compat-libcuda",
        Grounds.READ,
        text,
        (*evidence, *scene.gpu_evidence),
        tuple(_remedies(environment, folders)),
    )


def _remedies(environment: Environment, folders: list[str]) -> Iterator[Remedy]:
    if folders:
        rest = [f.path for f in environment.loader if f.origin == "LD_LIBRARY_PATH" and f.path not in folders]
        command = f"export LD_LIBRARY_PATH={':'.join(rest)}" if rest else "unset LD_LIBRARY_PATH"
        yield Remedy("Take the compat folder off the loader's path.", command)
    else:
        yield Remedy("Remove the cuda-compat package.", "sudo apt-get remove 'cuda-compat-*' && sudo ldconfig")

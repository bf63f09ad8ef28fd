"""``compat-libcuda`` before any error: the loader would take a cuda-compat ``libcuda`` where it may not (rule 8)."""

from __future__ import annotations

from collections.abc import Iterator

from envsolve.compat.versions import minor
from envsolve.diagnose.environment.model import Environment
from envsolve.diagnose.finding import Finding, Grounds
from envsolve.diagnose.model import Remedy
from envsolve.diagnose.remedies.driver import is_data_centre
from envsolve.diagnose.scene import Scene

_EXPLANATION = (
    "The loader finds the libcuda of a cuda-compat package, for CUDA {compat}, before the driver's own, for CUDA "
    "{own}. {why} The driver's own libcuda must be found first; torch and the driver stay as they are."
)
_CARD = (
    "NVIDIA allows that on data-centre cards alone, and {card} is none, so that every CUDA call fails with error 804."
)
_OLDER = (
    "Such a library must be newer than the driver, and this one is not, so that every CUDA call fails with error 803."
)


def check(environment: Environment, scene: Scene) -> Iterator[Finding]:
    """Judge the compat library that the machine's loader would take."""
    driver, compat = scene.driver, scene.compat_libcuda
    if driver is None or compat is None or driver.cuda is None:
        return
    others = [gpu for gpu in scene.gpus if gpu.name and not is_data_centre(scene, gpu.name)]
    if minor(compat) < minor(driver.cuda):
        why = _OLDER
    elif others:
        why = _CARD.format(card=others[0].name)
    else:
        return
    folders = [f.path for f in environment.loader if f.origin == "LD_LIBRARY_PATH" and "libcuda.so.1" in f.libraries]
    text = _EXPLANATION.format(compat=compat, own=driver.cuda, why=why)
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

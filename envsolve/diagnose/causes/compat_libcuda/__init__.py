"""``compat-libcuda``: a forward-compatibility ``libcuda`` where it may not be used, or one that is too old (rule 8)."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from envsolve.diagnose.causes._shared import Cause, capitalized, driver_text, lines, shown_variable
from envsolve.diagnose.model import Finding, Fix, Grounds
from envsolve.diagnose.scene import Scene
from envsolve.diagnose.tool_fixes import driver_knowing, is_data_centre
from envsolve.environment.model import Environment
from envsolve.rules.nvidia.driver import ForwardFacts, compat_serves

CAUSE = Cause.of(__name__)


def from_report(scene: Scene) -> Iterator[Finding]:
    """Error 804 is always a compat library; 803 is one if something points to compat or a container."""
    unsupported, mismatch = CAUSE.first(scene, "unsupported"), CAUSE.first(scene, "mismatch")
    path = shown_variable(scene, "LD_LIBRARY_PATH")
    evidence = (*lines(unsupported, mismatch), *path, *scene.driver_evidence, *scene.gpu_evidence)
    if unsupported:
        # NVIDIA supports forward compatibility only on data-centre GPUs.
        known = [gpu for gpu in scene.gpus if gpu.name and not is_data_centre(scene, gpu)]
        gpu = CAUSE.words("not-data-centre", gpu=known[0].name) if known else ""
        grounds = Grounds.CONFIRMED if known else Grounds.STATED
        yield CAUSE.finding("unsupported", grounds, evidence, _fixes(scene), gpu=gpu)
    elif mismatch:
        told = scene.compat_libcuda is not None or scene.mentions("compat/", "cuda-compat")
        # A driver that was updated while it ran gives the same error, without a word of compat or a container.
        updated = not scene.in_container and scene.mentions("updat", "upgrad", "reboot")
        grounds = Grounds.CONFIRMED if told else Grounds.SUGGESTED if updated else Grounds.STATED
        yield CAUSE.finding("older", grounds, evidence, _fixes(scene), driver=capitalized(driver_text(scene)))


def from_environment(environment: Environment, scene: Scene) -> Iterator[Finding]:
    """Judge the compat library that the machine's loader would take."""
    if scene.driver is None or scene.compat_libcuda is None:
        return
    driver = replace(scene.driver, compat_libcuda=scene.compat_libcuda)
    reason = compat_serves(replace(scene.machine, driver=driver), ForwardFacts(scene.catalogue))
    # A library for the driver's own CUDA may be the driver's own.
    if reason is None or reason.ok is not False or driver.compat_libcuda == driver.cuda:
        return
    listed = [entry for entry in environment.loader if entry.origin == "LD_LIBRARY_PATH"]
    compat = [entry.path for entry in listed if "libcuda.so.1" in entry.libraries]
    evidence = (
        *(f"{directory}/libcuda.so.1: on LD_LIBRARY_PATH" for directory in compat),
        *scene.driver_evidence,
        *scene.gpu_evidence,
    )
    fix = CAUSE.fix("package")
    if compat:
        rest = ":".join(entry.path for entry in listed if entry.path not in compat)
        fix = CAUSE.fix("set-path", command=f"export LD_LIBRARY_PATH={rest}" if rest else "unset LD_LIBRARY_PATH")
    yield CAUSE.finding("found", Grounds.READ, evidence, [fix], explains=(), why=reason.text)


def _fixes(scene: Scene) -> Iterator[Fix]:
    yield CAUSE.fix("path")
    if scene.in_container:
        yield CAUSE.fix("image")
        if scene.driver and scene.driver.cuda:
            yield CAUSE.fix("older-image", cuda=scene.driver.cuda)
    else:
        yield CAUSE.fix("package")
    if scene.compat_libcuda and (driver := driver_knowing(scene, scene.compat_libcuda)):
        yield driver

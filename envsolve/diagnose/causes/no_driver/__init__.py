"""``no-driver``: there is no driver, or it shows the program no GPU."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envsolve.diagnose.causes._shared import Cause, lines, torch_evidence, vendors_own
from envsolve.diagnose.model import Finding, Fix, Grounds
from envsolve.diagnose.scene import Scene

CAUSE = Cause.of(__name__)
#: Words of a CPU build that a machine without a driver gives, too.
_CPU_BUILD = ("cpu-deserialize", "infer-device", "jax-cpu")
_NO_GPUS = re.compile(r"docker run\b(?![^\n]*(?:--gpus|--runtime|--device|NVIDIA_VISIBLE))[^\n]*")


def from_report(scene: Scene) -> Iterator[Finding]:
    """Tell a hidden GPU and a container without GPUs from a missing driver."""
    if Cause("driver-needs-reload").first(scene, "mismatch"):
        return
    strong = CAUSE.first(scene)
    if strong and (route := scene.other_vendor):
        evidence = (*lines(strong), *scene.vendor_evidence)
        fixes_ = filter(None, [vendors_own(scene)])
        yield CAUSE.finding("vendor", Grounds.STATED, evidence, fixes_, vendor=route.name, build=route.build)
        return
    match = strong or CAUSE.first(scene, "weak") or scene.first(*_CPU_BUILD)
    if match is None:
        yield from _without_gpus(scene)
        return
    hidden = scene.report.variables.get("CUDA_VISIBLE_DEVICES")
    evidence = (*lines(match), *scene.driver_evidence)
    grounds = Grounds.STATED if strong else Grounds.SUGGESTED
    if match.signature.id == "stub-library":
        yield CAUSE.finding("stub", grounds, evidence, [CAUSE.fix("no-stubs")])
    # Slurm sets NoDevFiles for a job that requested no GPU.
    elif hidden is not None and hidden.value.strip("\"' ") in ("", "-1", "NoDevFiles", "none", "None"):
        shown = (*evidence, f"{hidden.where}: {hidden.quote}")
        yield CAUSE.finding("hidden", Grounds.CONFIRMED, shown, [CAUSE.fix("unhide")], value=hidden.value or "nothing")
    elif scene.platform.wsl and (found := _linux_driver(scene)):
        fixes = [CAUSE.fix("wsl-purge"), CAUSE.fix("wsl-path"), CAUSE.fix("wsl-which")]
        yield CAUSE.finding("wsl-library", Grounds.CONFIRMED, (*evidence, found), fixes)
    # A container has no driver of its own: the runtime mounts the host's if it is asked to.
    elif scene.in_container or match.signature.id == "docker-no-gpu":
        yield CAUSE.finding("container", grounds, evidence, _container(scene))
    else:
        yield CAUSE.finding("host", grounds, evidence, _host(scene))


#: Packages of a Linux driver, whose libcuda cannot talk to the driver of Windows; paths at which it lies.
_LINUX_DRIVER = re.compile(
    r"libnvidia-compute-\d+|nvidia-(?:driver|utils|kernel-\w+|dkms|headless)-\d+|libcuda1-\d+|cuda-drivers\b"
    r"|/(?:usr/)?lib/x86_64-linux-gnu/libcuda\.so|sh NVIDIA-Linux-\S+\.run"
)


def _linux_driver(scene: Scene) -> str | None:
    """The line that shows a Linux driver inside WSL."""
    for number, line in enumerate(scene.report.text.splitlines(), 1):
        if _LINUX_DRIVER.search(line):
            return f"line {number}: {line.strip()[:200]}"
    return None


def _without_gpus(scene: Scene) -> Iterator[Finding]:
    """A container that was started without asking for GPUs, in which CUDA is not available."""
    unavailable = scene.first("cuda-unavailable")
    if scene.in_container and unavailable and scene.mentions("/dev/nvidia", "cdi "):
        fixes = (CAUSE.fix("device-files"), CAUSE.fix("list-devices"))
        yield CAUSE.finding("devices", Grounds.SUGGESTED, lines(unavailable), fixes)
        return
    started = next((seen for seen in scene.report.commands if _NO_GPUS.search(seen.value)), None)
    if started and scene.toolkit and scene.mentions("false") and scene.mentions("is_available", "cuda available"):
        evidence = (f"{started.where}: {started.quote}", *torch_evidence(scene))
        yield CAUSE.finding("container", Grounds.SUGGESTED, evidence, _container(scene))


def _container(scene: Scene) -> Iterator[Fix]:
    yield CAUSE.fix("podman" if scene.mentions("podman") else "docker")
    yield CAUSE.fix("container-toolkit")
    yield CAUSE.fix("host-driver")


def _host(scene: Scene) -> Iterator[Fix]:
    yield CAUSE.fix("look")
    if scene.mentions("slurm", "srun", "sbatch", "login node", "cluster"):
        yield CAUSE.fix("cluster")
    yield CAUSE.fix("wsl" if scene.platform.wsl else "install")

"""``no-driver``: no driver is loaded, or it shows the program no GPU."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envsolve.diagnose.causes._shared import Cause, lines, shown_variable, system_install, torch_evidence, vendors_own
from envsolve.diagnose.model import Finding, Fix, Grounds
from envsolve.diagnose.scene import Scene
from envsolve.diagnose.signatures import Match

CAUSE = Cause.of(__name__)
#: Words of a CPU build that a machine without a driver gives, too.
_CPU_BUILD = ("cpu-deserialize", "infer-device", "jax-cpu")
_UUIDS = re.compile(r"(?:GPU|MIG)-[0-9a-f]{8}-[0-9a-f-]{20,30}")
#: A variable with an empty value, which the readers of assignments do not take for one.
_EMPTY = re.compile(r"CUDA_VISIBLE_DEVICES=(?:\"\"|'')?[ \t]*(?:\n|;|$)")
_NO_GPUS = re.compile(r"docker run\b(?![^\n]*(?:--gpus|--runtime|--device|NVIDIA_VISIBLE))[^\n]*")
#: The lines of lspci for what drives a display or computes.
_ADAPTER = re.compile(r"^.*\b(?:VGA compatible|3D|Display) controller: .*$", re.MULTILINE)
_NO_NV = re.compile(
    r"(?P<program>singularity|apptainer) (?P<verb>run|exec|shell|instance start) (?![^\n]*--nv)(?P<rest>\S[^\n]*)"
)


def from_report(scene: Scene) -> Iterator[Finding]:
    """Distinguish a hidden GPU and a container without GPUs from a missing driver."""
    if Cause("driver-needs-reload").first(scene, "mismatch"):
        return
    if of_runtime := CAUSE.first(scene, "mount-wsl", "mount-exists", "cdi", "ldcache"):
        yield _of_runtime(scene, of_runtime)
        return
    strong = CAUSE.first(scene)
    if strong and (route := scene.other_vendor):
        evidence = (*lines(strong), *scene.vendor_evidence)
        own = filter(None, [vendors_own(scene)])
        yield CAUSE.finding("vendor", Grounds.STATED, evidence, own, vendor=route.name, build=route.build)
        return
    match = strong or CAUSE.first(scene, "weak") or scene.first(*_CPU_BUILD)
    if match is None:
        yield from _without_gpus(scene)
        return
    evidence = (*lines(match), *scene.driver_evidence)
    grounds = Grounds.STATED if strong else Grounds.SUGGESTED
    if match.signature.id == "stub-library":
        yield CAUSE.finding("stub", grounds, evidence, [CAUSE.fix("no-stubs")])
    elif (kind := _mask(scene)) is not None:
        shown = (*evidence, *shown_variable(scene, "CUDA_VISIBLE_DEVICES"), *scene.gpu_evidence)
        fixes = [CAUSE.fix("unhide")] if kind == "hidden" else [CAUSE.fix("listed"), CAUSE.fix("unhide")]
        value = scene.visible_devices or "nothing"
        yield CAUSE.finding(kind, Grounds.CONFIRMED, shown, fixes, value=value, count=scene.gpu_count)
    elif scene.platform.wsl and (found := _linux_driver(scene)):
        fixes = [CAUSE.fix("wsl-purge"), CAUSE.fix("wsl-path"), CAUSE.fix("wsl-which")]
        yield CAUSE.finding("wsl-library", Grounds.CONFIRMED, (*evidence, found), fixes)
    # A container has no driver of its own: the runtime mounts the host's if it is asked to.
    elif scene.in_container or match.signature.id == "docker-no-gpu":
        yield CAUSE.finding("container", grounds, evidence, _container(scene))
    else:
        yield _on_host(scene, grounds, evidence)


def _on_host(scene: Scene, grounds: Grounds, evidence: tuple[str, ...]) -> Finding:
    """No driver answers on the machine itself; its list of devices may say that it has no NVIDIA GPU."""
    adapters = _ADAPTER.findall(scene.report.text)
    if adapters and not any("nvidia" in one.lower() for one in adapters):
        shown = (*evidence, *(one.strip()[:200] for one in adapters))
        return CAUSE.finding("no-gpu", grounds, shown, [CAUSE.fix("on-cpu"), CAUSE.fix("elsewhere")])
    return CAUSE.finding("host", grounds, evidence, _host(scene))


def _of_runtime(scene: Scene, match: Match) -> Finding:
    """The container runtime cannot mount the driver's libraries: WSL has none, or the image has its own."""
    if match.signature.role in ("cdi", "ldcache"):
        return _without_list(scene, match)
    if match.signature.role == "mount-wsl":
        return CAUSE.finding("mount-wsl", Grounds.STATED, lines(match), [CAUSE.fix("wsl-update"), CAUSE.fix("wsl")])
    image = next((seen.value for seen in scene.report.images), "IMAGE")
    run = re.search(r"docker run [^\n]*?([\w./-]+:[\w.-]+)", scene.report.text)
    fix = CAUSE.fix("image-libraries", image=run[1] if run else image)
    return CAUSE.finding("mount-exists", Grounds.STATED, lines(match), [fix], library=match.groups["library"])


def _without_list(scene: Scene, match: Match) -> Finding:
    """A container engine that has no list of devices, or does not read one."""
    if match.signature.role == "ldcache":
        ways = (CAUSE.fix("ldcache"), CAUSE.fix("ldcache-newer", install=system_install(scene, inside=False)))
        return CAUSE.finding("ldcache", Grounds.STATED, (*lines(match), *scene.driver_evidence), ways)
    by_docker = '"cdi"' in match.quote or not scene.mentions("podman")
    fixes = [CAUSE.fix("cdi"), *([CAUSE.fix("cdi-docker")] if by_docker else []), CAUSE.fix("cdi-version")]
    return CAUSE.finding("cdi", Grounds.STATED, (*lines(match), *scene.driver_evidence), fixes)


def _mask(scene: Scene) -> str | None:
    """``hidden`` if CUDA_VISIBLE_DEVICES is empty, ``beyond`` if it begins with a GPU that the report does not list.

    CUDA ignores everything from the first invalid entry on.
    """
    mask = scene.visible_devices
    if mask is None:
        return "hidden" if _EMPTY.search(scene.report.text) else None
    # Slurm sets NoDevFiles for a job that requested no GPU.
    if mask in ("", "-1", "NoDevFiles", "none", "None"):
        return "hidden"
    first = re.split("[ ,]", mask)[0]
    count = scene.gpu_count
    if count and first.isdigit() and int(first) >= count:
        return "beyond"
    listed = _UUIDS.findall(scene.report.text.replace(mask, ""))
    # A UUID may be shortened as long as it stays unique.
    named = first.startswith(("GPU-", "MIG-"))
    return "beyond" if named and listed and not any(uuid.startswith(first) for uuid in listed) else None


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
    if unavailable and (nv := _NO_NV.search(scene.report.text)):
        fix = CAUSE.fix("nv", **nv.groupdict())
        yield CAUSE.finding("container", Grounds.SUGGESTED, (*lines(unavailable), nv[0][:200]), [fix])
        return
    started = next((seen for seen in scene.report.commands if _NO_GPUS.search(seen.value)), None)
    if started and scene.toolkit and scene.mentions("false") and scene.mentions("is_available", "cuda available"):
        evidence = (f"{started.where}: {started.quote}", *torch_evidence(scene))
        yield CAUSE.finding("container", Grounds.SUGGESTED, evidence, _container(scene))


def _container(scene: Scene) -> Iterator[Fix]:
    desktop = scene.os == "windows" or scene.mentions("docker desktop", "docker:desktop", "libnvidia-ml.so.1")
    install = system_install(scene, inside=False)
    unknown = scene.mentions("select device driver")  # Docker's own words if GPUs were requested without the toolkit
    name = "container-toolkit-missing" if unknown else "container-toolkit"
    toolkit = CAUSE.fix(name, source=_toolkit_source(scene, install), install=install)
    if scene.mentions("invalid runtime name"):
        yield CAUSE.fix("runtime")
    elif scene.mentions("podman"):
        yield CAUSE.fix("podman")
    elif unknown:
        yield from [] if desktop else [toolkit]
    elif desktop and scene.mentions("load library failed"):
        pass  # the GPUs were requested, and the machine of Docker Desktop has no driver
    elif scene.mentions("docker stack", "swarm"):
        yield CAUSE.fix("swarm")
    elif scene.mentions("docker-compose", "docker compose", "compose.y"):
        yield CAUSE.fix("compose")
    else:
        yield CAUSE.fix("docker")
    if desktop:
        yield CAUSE.fix("desktop")
    yield from [toolkit] if desktop or not unknown else []
    yield CAUSE.fix("host-driver")


def _toolkit_source(scene: Scene, install: str) -> str:
    """The command that adds NVIDIA's repository of the toolkit, which no distribution includes."""
    if "pacman" in install:
        return ""
    return CAUSE.words("toolkit-dnf" if "dnf" in install else "toolkit-apt") + " "


def _host(scene: Scene) -> Iterator[Fix]:
    # The driver answered nvidia-smi with GPUs, so it is this program that does not see them.
    if scene.driver and scene.driver.version and scene.gpu_count and scene.mentions("nvidia-smi"):
        yield CAUSE.fix("unhide")
    if re.search(r"\bwsl ?1\b", scene.report.text, re.IGNORECASE):
        yield CAUSE.fix("wsl-1")
    yield CAUSE.fix("look")
    if scene.mentions("slurm", "srun", "sbatch", "login node", "cluster"):
        yield CAUSE.fix("cluster")
    yield CAUSE.fix("wsl" if scene.platform.wsl else "install")

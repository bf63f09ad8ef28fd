"""``driver-needs-reload``: the running driver is not the installed one, or lost its state."""

from __future__ import annotations

from collections.abc import Iterator

from envsolve.diagnose.causes._shared import lines
from envsolve.diagnose.model import Finding, Grounds, Remedy, RuledOut
from envsolve.diagnose.scene import Scene
from envsolve.diagnose.signatures import Match

_MISMATCH = (
    "The driver has two halves, a kernel module and user-space libraries, and they must be of the same release. The "
    "libraries were replaced, most often by an automatic update, while the old module stays loaded until the machine "
    "restarts. Nothing in the environment is wrong."
)
_UNKNOWN = (
    "CUDA could not start on a driver that is installed: typical after a suspend, when the nvidia_uvm module has "
    "lost its state, or after a driver update without a restart. Loading the module anew restores it. Nothing in the "
    "environment has to change."
)
_FABRIC = (
    "On machines with NVSwitch, CUDA starts only once the Fabric Manager has set up the links, and its release must "
    "be the driver's. It is not running, or of another release. The service has to run on the host, whatever the "
    "container holds."
)


def weigh(scene: Scene) -> Iterator[Finding | RuledOut]:
    """A mismatch is stated by the driver itself; an unknown error is one only where nothing else explains it."""
    mismatch = scene.first("nvml-mismatch", "nvrm-mismatch")
    unknown, fabric, other = (
        scene.first("cuda-unknown-error"),
        scene.first("fabric-release", "fabric-manager"),
        scene.first("mismatch-803"),
    )
    reboot = Remedy("Restart the machine, so that the installed driver is the running one.", "sudo reboot")
    reload = Remedy(
        "Load the module anew, with no program on the GPU.", "sudo rmmod nvidia_uvm && sudo modprobe nvidia_uvm"
    )
    if mismatch:
        swap = Remedy(
            "Or, with no program and no display on the GPU, load the new modules by hand.",
            "sudo rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia && sudo modprobe nvidia && sudo modprobe "
            "nvidia_uvm",
        )
        found = frozenset({"no-driver", "compat-libcuda"})
        yield Finding("driver-needs-reload", Grounds.STATED, _MISMATCH, lines(mismatch), (reboot, swap), found)
    elif fabric:
        yield Finding("driver-needs-reload", Grounds.STATED, _FABRIC, lines(fabric), tuple(_fabric(scene, fabric)))
    elif unknown:
        grounds = Grounds.STATED if _updated(scene) else Grounds.SUGGESTED
        yield Finding("driver-needs-reload", grounds, _UNKNOWN, lines(unknown), (reload, reboot))
    elif other and not scene.in_container and not scene.mentions("compat"):
        grounds = Grounds.STATED if _updated(scene) else Grounds.SUGGESTED
        yield Finding("driver-needs-reload", grounds, _MISMATCH, lines(other), (reboot,))


def _fabric(scene: Scene, match: Match) -> Iterator[Remedy]:
    driver = match.group("driver") or (scene.driver.version if scene.driver else None)
    if driver:
        branch = driver.partition(".")[0]
        text = f"Install the Fabric Manager that is of the same release as the driver, {driver}, and start it."
        install = f'sudo apt-get install "nvidia-fabricmanager-{branch}={driver}*"'
        yield Remedy(text, f"{install} && sudo systemctl enable --now nvidia-fabricmanager")
    yield Remedy("Start the Fabric Manager of the driver's own release.", "sudo systemctl restart nvidia-fabricmanager")


def _updated(scene: Scene) -> bool:
    """Whether the report tells of what makes a driver run with other libraries than its own."""
    return scene.mentions("suspend", "sleep", "resume", "hibernat", "updat", "upgrad", "reboot")

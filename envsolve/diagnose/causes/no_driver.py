"""``no-driver``: no driver, or no card that it shows."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envsolve.diagnose.causes._shared import lines
from envsolve.diagnose.model import Finding, Grounds, Remedy, RuledOut
from envsolve.diagnose.scene import Scene

_ERRORS = (
    "docker-no-gpu",
    "no-nvidia-driver",
    "stub-library",
    "no-device",
    "smi-failed",
    "no-libcuda",
    "jit-compiler-missing",
)
_WEAK = ("nvml-init", "smi-absent", "cpu-deserialize", "infer-device", "jax-cpu")

_CONTAINER = (
    "A container has no driver of its own: the NVIDIA container runtime mounts the host's libcuda and devices into "
    "it, when it is asked to. Here that did not happen, so nothing in the image can reach a GPU. Installing a driver "
    "inside the image would not change that."
)
_HOST = (
    "CUDA programs reach the GPU through the driver: its kernel module and libcuda.so.1, which no Python package "
    "brings. "
    "Here no driver answers, or it shows the program no card. "
    "Until nvidia-smi lists the card, no build of torch can use it."
)
_HIDDEN = (
    "CUDA_VISIBLE_DEVICES decides which cards a program may see. It is set to {value}, which leaves none, so CUDA "
    "reports no device although the driver may be well. Nothing has to be installed."
)
_DEVICES = (
    "nvidia-smi needs /dev/nvidiactl alone, and CUDA also needs /dev/nvidia-uvm: here the one works in the container "
    "and the other does not, so a device file is missing there. The list of devices (the CDI file) is made once, and "
    "lacks what did not exist then: nvidia-uvm appears when the first CUDA program runs. It must be made anew."
)
_STUB = (
    "The toolkit ships a stub of libcuda, which exists to link against on machines without a GPU and can do nothing. "
    "It is found before the driver's own libcuda at run time. The stubs folder must not be on LD_LIBRARY_PATH."
)


def weigh(scene: Scene) -> Iterator[Finding | RuledOut]:
    """Tell a hidden card and a container without GPUs from a missing driver."""
    if scene.first("nvml-mismatch", "nvrm-mismatch"):
        return
    strong, weak = scene.first(*_ERRORS), scene.first(*_WEAK)
    if strong is None and weak is None:
        yield from _without_gpus(scene)
        return
    match = strong or weak
    hidden = scene.report.variables.get("CUDA_VISIBLE_DEVICES")
    evidence = (*lines(match), *scene.driver_evidence)
    grounds = Grounds.STATED if strong else Grounds.SUGGESTED
    if strong and strong.signature.id == "stub-library":
        remedy = Remedy(
            "Start the program without the stubs folder on the loader's path.",
            "export LD_LIBRARY_PATH=$(printf %s \"$LD_LIBRARY_PATH\" | tr ':' '\\n' | grep -v stubs | paste -sd:)",
        )
        yield Finding("no-driver", Grounds.STATED, _STUB, evidence, (remedy,))
    elif hidden is not None and hidden.value.strip("\"' ") in ("", "-1", "NoDevFiles", "none", "None"):
        text = _HIDDEN.format(value=hidden.value or "nothing")
        remedy = Remedy("Let the program see the cards again.", "unset CUDA_VISIBLE_DEVICES")
        yield Finding("no-driver", Grounds.CONFIRMED, text, (*evidence, f"{hidden.where}: {hidden.quote}"), (remedy,))
    elif scene.in_container or (strong and strong.signature.id == "docker-no-gpu"):
        yield Finding("no-driver", grounds, _CONTAINER, evidence, tuple(_container(scene)))
    else:
        yield Finding("no-driver", grounds, _HOST, evidence, tuple(_host(scene)))


_RUN = re.compile(r"docker run\b(?![^\n]*(?:--gpus|--runtime|--device|NVIDIA_VISIBLE))[^\n]*")


def _without_gpus(scene: Scene) -> Iterator[Finding]:
    """A container that was started without asking for GPUs, in which CUDA is not available."""
    started = next((seen for seen in scene.report.commands if _RUN.search(seen.value)), None)
    if scene.in_container and scene.first("cuda-unavailable") and scene.mentions("/dev/nvidia", "cdi "):
        match = scene.first("cuda-unavailable")
        yield Finding("no-driver", Grounds.SUGGESTED, _DEVICES, lines(match), tuple(_devices()))
        return
    cuda = scene.torch is not None and scene.torch.cuda is not None
    if started and cuda and scene.mentions("false") and scene.mentions("is_available", "cuda available"):
        evidence = (f"{started.where}: {started.quote}", *(scene.torch.evidence if scene.torch else ()))
        yield Finding("no-driver", Grounds.SUGGESTED, _CONTAINER, evidence, tuple(_container(scene)))


def _devices() -> Iterator[Remedy]:
    yield Remedy(
        "Make the device files on the host, then the list of devices, and start the container again.",
        "sudo nvidia-modprobe -c 0 -u && sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml",
    )
    yield Remedy("See whether the container has /dev/nvidia-uvm.", "ls -l /dev/nvidia*")


def _container(scene: Scene) -> Iterator[Remedy]:
    if scene.mentions("podman"):
        text = "Ask for the GPUs by their CDI name when the container starts: podman passes over --gpus in silence."
        yield Remedy(text, "podman run --device nvidia.com/gpu=all ...")
    else:
        yield Remedy("Ask for the GPUs when the container starts.", "docker run --gpus all ...")
    yield Remedy(
        "If Docker does not know the option, install the NVIDIA Container Toolkit on the host and register it.",
        "sudo apt-get install -y nvidia-container-toolkit && sudo nvidia-ctk runtime configure --runtime=docker "
        "&& sudo systemctl restart docker",
    )
    yield Remedy("See whether the host itself has a working driver.", "nvidia-smi")


def _host(scene: Scene) -> Iterator[Remedy]:
    yield Remedy(
        "See whether the driver answers, and whether the machine has an NVIDIA card.",
        "nvidia-smi; lspci | grep -i nvidia",
    )
    if scene.mentions("slurm", "srun", "sbatch", "login node", "cluster"):
        yield Remedy(
            "On a cluster, run on a node with a GPU, with a GPU asked for.", "srun --gres=gpu:1 --pty nvidia-smi"
        )
    if scene.machine.platform and scene.machine.platform.wsl:
        yield Remedy("Under WSL the driver is that of Windows: install it there, and none inside WSL.")
    else:
        yield Remedy(
            "On a machine with a card and no driver, install one from your distribution.", "sudo ubuntu-drivers install"
        )

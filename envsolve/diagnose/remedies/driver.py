"""Another driver: one that does what is needed and still knows every card."""

from __future__ import annotations

from msgspec.structs import replace

from envsolve.compat.driver import driver_runs
from envsolve.compat.forward import ForwardFacts, compat_serves
from envsolve.compat.life import can_exist
from envsolve.compat.versions import minor, numbers
from envsolve.diagnose.model import Remedy
from envsolve.diagnose.scene import Scene
from envsolve.machine.model import Driver, Gpu


def driver_knowing(scene: Scene, cuda: str) -> Remedy | None:
    """The oldest driver that supports a CUDA version in full, PTX included; None where the cards have none."""
    for toolkit in scene.catalogue.toolkits:
        if minor(toolkit.version) == minor(cuda):
            version = toolkit.driver_windows if scene.os == "windows" else toolkit.driver_linux
            if version:
                return _remedy(scene, version, f"it knows CUDA {cuda} in full, its PTX included")
    for branch in scene.catalogue.drivers:
        if minor(branch.cuda) >= minor(cuda):
            return _remedy(scene, branch.first, f"it knows CUDA {branch.cuda} in full, its PTX included")
    return None


def driver_running(scene: Scene, cuda: str) -> Remedy | None:
    """The oldest driver that runs a CUDA family's SASS; None where the cards have none."""
    required = driver_runs(cuda, None, scene.os, scene.facts.toolkits, scene.facts.floors).required
    return _remedy(scene, required, f"it runs builds of CUDA {minor(cuda)[0]}.x") if required else None


def compat_package(scene: Scene, cuda: str) -> Remedy | None:
    """NVIDIA's forward-compatibility package, where every card is one of a data centre (rule 8)."""
    driver = replace(scene.driver or Driver(), compat_libcuda=cuda)
    reason = compat_serves(replace(scene.machine, driver=driver), ForwardFacts(scene.catalogue))
    if scene.os != "linux" or reason is None or not reason.ok:
        return None
    name = "cuda-compat-" + cuda.replace(".", "-")
    folder = f"/usr/local/cuda-{cuda}/compat"
    text = (
        f"Keep the driver and put the forward-compatibility libraries of CUDA {cuda} first on the loader's path, "
        "which NVIDIA supports on data-centre cards alone."
    )
    return Remedy(text, f"sudo apt-get install {name} && export LD_LIBRARY_PATH={folder}:$LD_LIBRARY_PATH")


def is_data_centre(scene: Scene, gpu: Gpu) -> bool:
    """Whether a card is known to be one of a data centre."""
    model = ForwardFacts(scene.catalogue).model(gpu)
    return model is not None and model.data_centre


def _remedy(scene: Scene, version: str, why: str) -> Remedy | None:
    if scene.is_jetson:
        return Remedy("The driver of a Jetson comes with its JetPack: move to one that has the CUDA that is needed.")
    facts, driver = scene.facts, Driver(version)
    if any(can_exist(gpu, driver, facts.architectures, facts.drivers).ok is False for gpu in scene.gpus):
        return None
    last = _last_branch(scene)
    where = " on the host (a container has no driver of its own)" if scene.in_container else ""
    upto = f", up to branch R{last}, the last that serves the card" if last else ""
    return Remedy(f"Install NVIDIA driver {version} or newer{upto}{where}: {why}.")


def _last_branch(scene: Scene) -> str | None:
    """The last branch that serves all cards, where there is one."""
    known = (scene.facts.architectures.get(gpu.compute_capability or "") for gpu in scene.gpus)
    branches = [a.last_branch for a in known if a and a.last_branch]
    return min(branches, key=numbers, default=None)

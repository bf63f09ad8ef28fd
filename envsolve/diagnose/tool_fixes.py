"""Fixes outside the environment: nvcc from the available package manager, another driver, an existing image."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from envsolve.diagnose.model import Fix
from envsolve.diagnose.scene import Scene
from envsolve.facts.hardware import CompilerPackages, Image
from envsolve.machine.model import Driver, Gpu
from envsolve.rules.nvidia.driver import ForwardFacts, can_exist, compat_serves, driver_runs
from envsolve.rules.nvidia.toolchain import CompilerFacts, GccRange, covers, gcc_for, ptxas_packages
from envsolve.values import CudaVersion, DriverVersion

_HOMES = {".": "$CONDA_PREFIX", "pkgs/cuda-toolkit": "$CONDA_PREFIX/pkgs/cuda-toolkit"}
_WINDOWS_HOMES = {"$CONDA_PREFIX": r"%CONDA_PREFIX%\Library"}
_SITE = "$(python -c 'import sysconfig; print(sysconfig.get_path(\"purelib\"))')"


#: Adds NVIDIA's repository of the toolkit, as its installation guide does; the images of nvidia/cuda have it.
_KEYRING = (
    "wget https://developer.download.nvidia.com/compute/cuda/repos/$(. /etc/os-release; echo $ID${{VERSION_ID//.}})/"
    "{arch}/cuda-keyring_1.1-1_all.deb && sudo dpkg -i cuda-keyring_1.1-1_all.deb && sudo apt-get update"
)


#: Parts of the toolkit whose headers torch's own headers include.
_OF_TORCH = ("cublas", "cusolver", "cusparse")


def toolkit_for(scene: Scene) -> str:
    """The toolkit for what is compiled: torch's, otherwise the usual one, or the driver's own CUDA if that is older.

    A program compiled with newer headers than the driver may look for functions that its libcuda lacks.
    """
    own, usual = scene.driver.cuda if scene.driver else None, scene.usual_cuda
    return scene.toolkit or str(min(CudaVersion.parse(own or usual), CudaVersion.parse(usual)))


def nvcc_remedies(scene: Scene, cuda: str | None, *parts: str) -> Iterator[Fix]:
    """Ways to get an nvcc of a CUDA version; those that do not change the system come first.

    Args:
        cuda: The version, ``12.8``.
        parts: Further parts of the toolkit that the build includes, as the catalogue names them.
    """
    further = dict.fromkeys((*(_OF_TORCH if scene.about_torch else ()), *parts))
    wanted = str(CudaVersion.parse(cuda)) if cuda else toolkit_for(scene)
    whole = [c for c in scene.catalogue.compilers if "nvcc" in c.provides and covers(c, wanted)]
    # A build that no Python starts finds the system's toolkit, not one in an environment of Python's.
    bare = not scene.about_torch and not scene.mentions_conda and not scene.mentions("pip", "python", "uv ")
    order = {"pip": 1, "conda": 0 if scene.mentions_conda else 2, "apt": 0 if bare else 3}
    if scene.os == "windows":
        whole = [packages for packages in whole if packages.manager != "apt"]
        home = rf"C:\Program Files\NVIDIA GPU Computing Toolkit\CUDA\v{wanted}"
        text = f"Point the build to the toolkit of CUDA {wanted}, wherever it is installed."
        yield Fix(text, f'set "CUDA_PATH={home}" && set "CUDA_HOME={home}"')
    for packages in sorted(whole, key=lambda c: order[c.manager]):
        yield Fix(_text(packages, wanted, cuda is not None), _command(packages, wanted, scene, further))
    if scene.in_container:
        yield Fix(f"Build in a devel image of CUDA {wanted}: the runtime and base images have no nvcc.")


def ptxas_remedy(scene: Scene, cuda: str, variable: str) -> Fix | None:
    """A ptxas of CUDA 12 or newer from a wheel, for Triton; None for a CUDA whose wheels have none."""
    holder = ptxas_packages(cuda, scene.catalogue.compilers)
    if holder is None or CudaVersion.parse(cuda) < (12, 0):
        return None
    text = f"Give Triton a ptxas of CUDA {cuda} from a wheel; this changes no other package."
    wheels = " ".join(f'"{line.format(cuda=cuda)}"' for line in holder.ptxas_packages)
    return Fix(text, f"pip install --no-deps {wheels} && export {variable}={_SITE}/{holder.ptxas}")


def with_libraries(scene: Scene, package: str) -> str | None:
    """The requirement of a package with the CUDA libraries that it loads, ``onnxruntime-gpu[cuda,cudnn]>=1.21,<1.27``.

    It is the newest release for a CUDA that the machine runs; of an unknown machine, for torch's CUDA or the usual one.
    """
    parts = [part for part in scene.catalogue.gpu_parts if part.package == package and part.ask and part.cuda]
    if scene.driver and (scene.driver.version or scene.driver.cuda):
        fitting = [part for part in parts if scene.fit(part.cuda or "").reason.ok is not False]
    else:
        most = CudaVersion.parse(scene.toolkit or scene.usual_cuda).major
        fitting = [part for part in parts if CudaVersion.parse(part.cuda or "").major <= most]
    best = next(iter(fitting), None)
    return f"{best.ask}{best.versions}" if best else None


def gcc_range(scene: Scene) -> GccRange | None:
    """The gcc majors that compile extensions for the installed torch; None if its build is not known."""
    build = scene.torch.build if scene.torch else None
    return gcc_for(build, CompilerFacts.of(scene.catalogue)) if build is not None and build.cuda is not None else None


def _text(packages: CompilerPackages, cuda: str, known: bool) -> str:
    if packages.manager == "apt":
        return f"Install the toolkit of CUDA {cuda} beside the system's others, from NVIDIA's repository."
    if known:
        return f"Put an nvcc of CUDA {cuda} into the environment."
    return f"Put an nvcc of torch's own CUDA into the environment (torch.version.cuda says which; here {cuda})."


def _command(packages: CompilerPackages, cuda: str, scene: Scene, parts: Iterable[str]) -> str:
    major, minor_ = cuda.split(".")
    lines = (*packages.packages, *(packages.libraries[part] for part in parts if part in packages.libraries))
    names = [name.format(cuda=cuda, major=major, minor=minor_) for name in lines]
    home = (packages.home or "").format(cuda=cuda, site_packages=_SITE)
    install = {"pip": "pip install", "conda": "conda install", "apt": "sudo apt-get install -y"}[packages.manager]
    if packages.manager == "apt":
        keyring = _KEYRING.format(arch="sbsa" if scene.platform.arch == "aarch64" else "x86_64")
        install = "apt-get install -y" if scene.in_container else f"{keyring} && {install}"
    home = _HOMES.get(home, home)
    # Programs that do not know CUDA_HOME take the first nvcc on PATH.
    named = f"export CUDA_HOME={home} PATH={home}/bin:$PATH"
    if scene.os == "windows":
        named = f'set "CUDA_HOME={_WINDOWS_HOMES.get(home, home)}"'
    quoted = " ".join(f'"{name}"' if set(name) & set("[]*=:") else name for name in names)
    return f"{install} {quoted} && {named}"


# Another driver: one that does what is needed and still knows every GPU.


def driver_knowing(scene: Scene, cuda: str) -> Fix | None:
    """The oldest driver that supports a CUDA version in full, PTX included; None if the GPUs have none."""
    if toolkit := scene.toolkit_known(cuda):
        version = toolkit.driver_windows if scene.os == "windows" else toolkit.driver_linux
        if version:
            return _remedy(scene, version, f"it knows CUDA {cuda} in full, its PTX included")
    for branch in scene.catalogue.drivers:
        if branch.cuda_version >= CudaVersion.parse(cuda):
            return _remedy(scene, branch.first, f"it knows CUDA {branch.cuda} in full, its PTX included")
    return None


def driver_running(scene: Scene, cuda: str) -> Fix | None:
    """The oldest driver that runs a CUDA family's SASS; None if the GPUs have none."""
    required = driver_runs(cuda, None, scene.os, scene.facts.toolkits, scene.facts.floors).required
    return _remedy(scene, required, f"it runs builds of CUDA {CudaVersion.parse(cuda).major}.x") if required else None


def compat_package(scene: Scene, cuda: str) -> Fix | None:
    """NVIDIA's forward-compatibility package, if every GPU is a data-centre one (rule 8)."""
    driver = replace(scene.driver or Driver(), compat_libcuda=cuda)
    reason = compat_serves(replace(scene.machine, driver=driver), ForwardFacts(scene.catalogue))
    if scene.os != "linux" or reason is None or not reason.ok:
        return None
    name = "cuda-compat-" + cuda.replace(".", "-")
    folder = f"/usr/local/cuda-{cuda}/compat"
    text = (
        f"Keep the driver and put the forward-compatibility libraries of CUDA {cuda} first on the loader's path, "
        "which NVIDIA supports on data-centre GPUs only."
    )
    return Fix(text, f"sudo apt-get install {name} && export LD_LIBRARY_PATH={folder}:$LD_LIBRARY_PATH")


def is_data_centre(scene: Scene, gpu: Gpu) -> bool:
    """Whether a GPU is known to be a data-centre one."""
    model = ForwardFacts(scene.catalogue).model(gpu)
    return model is not None and model.data_centre


def _remedy(scene: Scene, version: str, why: str) -> Fix | None:
    if scene.is_jetson:
        return Fix(
            "The driver of a Jetson comes with its JetPack: upgrade to a JetPack with the required CUDA version."
        )
    facts, driver = scene.facts, Driver(version)
    if any(can_exist(gpu, driver, facts.architectures, facts.drivers).ok is False for gpu in scene.gpus):
        return None
    last = _last_branch(scene)
    where = " on the host (a container has no driver of its own)" if scene.in_container else ""
    upto = f", up to branch R{last}, the last that supports the GPU" if last else ""
    again = "" if scene.os == "windows" else " Restart the machine afterwards."
    return Fix(
        f"Install NVIDIA driver {version} or newer{upto}{where}: {why}.{again}", _by_ubuntu(scene, version, last)
    )


def _by_ubuntu(scene: Scene, version: str, last: str | None) -> str | None:
    """The command that installs the first branch of long support from a driver on; None on other systems."""
    wanted = [b.branch for b in scene.catalogue.drivers if b.lts and DriverVersion.parse(b.first) >= _branch(version)]
    fitting = [b for b in wanted if last is None or DriverVersion.parse(b) <= DriverVersion.parse(last)]
    own = (scene.platform.distro or "").lower().startswith("ubuntu") and not scene.platform.wsl
    if not own or scene.in_container or not fitting:
        return None
    return f"sudo ubuntu-drivers install nvidia:{fitting[0]} && sudo reboot"


def _branch(version: str) -> DriverVersion:
    return DriverVersion.parse(version.partition(".")[0])


def _last_branch(scene: Scene) -> str | None:
    """The last branch that supports all GPUs, if there is one."""
    known = (scene.facts.architectures.get(gpu.compute_capability or "") for gpu in scene.gpus)
    branches = [a.last_branch for a in known if a and a.last_branch]
    return min(branches, key=DriverVersion.parse, default=None)


# Container images that exist, in the place of one that does not.


def image_remedies(scene: Scene, asked: str) -> Iterator[Fix]:
    """Existing tags that are nearest to the requested one."""
    repository, _, tag = asked.removeprefix("docker.io/").rpartition(":")
    version = re.match(r"\d+\.\d+", tag)
    if version and repository:
        wanted = CudaVersion.parse(version[0])
        images = [(CudaVersion.parse(i.version), i) for i in scene.catalogue.images if i.repository == repository]
        # Publishers delete retired images in time, so a kept one of a newer toolkit comes first.
        next_kept = min((known for known, image in images if not image.retired and known >= wanted), default=None)
        near = _alike(tag, (image for known, image in images if known == next_kept and not image.retired))[:3]
        if near:
            yield Fix(f"Use a tag that exists, such as {', '.join(near)}.", f"docker pull {repository}:{near[0]}")
        same = [image for known, image in images if known == wanted]
        if all(image.retired for image in same) and (last := _alike(tag, same)):
            text = (
                f"If it must be CUDA {version[0]}: {last[0]} was its last release under such a name. Its publisher has "
                "retired it, and deletes such tags in time, so do not rely on it."
            )
            yield Fix(text)
    yield Fix(
        "See which tags there are: old ones get deleted, so take the newest patch release of the CUDA that is meant."
    )


def image_with_cudnn(scene: Scene, major: str) -> Fix | None:
    """The image of the report in the kind that includes a cuDNN of one major; None if it has one, or no such kind."""
    for seen in scene.report.images:
        repository, _, tag = seen.value.partition(":")
        if "cudnn" in tag or not re.match(r"\d+\.\d+", tag):
            continue
        images = (i for i in scene.catalogue.images if i.repository == repository and i.version == tag.split("-")[0])
        fitting = [image for image in images if (image.cudnn or "").startswith(f"{major}.")]
        near = [name for name in _alike(tag, fitting) if "cudnn" in name]
        if near:
            text = f"Build from the same image with cuDNN {major}, and start the new one."
            return Fix(text, f"sed -i 's|{seen.value}|{repository}:{near[0]}|' Dockerfile && docker build -t NAME .")
    return None


def _alike(tag: str, images: Iterable[Image]) -> list[str]:
    """The tags of images: those with most parts of a tag first, of the newest patch release, the shortest."""
    wanted = _parts(tag)[1:]
    tags = sorted(
        ((image, name) for image in images for name in image.tags if name != tag),
        key=lambda pair: (len({*wanted} & {*_parts(pair[1])}), DriverVersion.parse(pair[0].version), -len(pair[1])),
        reverse=True,
    )
    return list(dict.fromkeys(name for _, name in tags))


def _parts(tag: str) -> list[str]:
    """The parts of a tag; cudnn8 and cudnn are the same part."""
    return [part.rstrip("0123456789") if part.startswith("cudnn") else part for part in tag.split("-") if part]

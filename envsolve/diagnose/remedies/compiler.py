"""An nvcc of a given CUDA, by the package manager at hand, and the gcc beside it."""

from __future__ import annotations

from collections.abc import Iterator

from envsolve.catalogue.model import CompilerPackages
from envsolve.compat.toolchain import CompilerFacts, GccRange, covers, gcc_for, ptxas_packages
from envsolve.compat.versions import minor
from envsolve.diagnose.model import Remedy
from envsolve.diagnose.scene import Scene

_HOMES = {".": "$CONDA_PREFIX", "pkgs/cuda-toolkit": "$CONDA_PREFIX/pkgs/cuda-toolkit"}
_SITE = "$(python -c 'import sysconfig; print(sysconfig.get_path(\"purelib\"))')"


def nvcc_remedies(scene: Scene, cuda: str | None) -> Iterator[Remedy]:
    """Ways to an nvcc of a CUDA version, those that leave the system alone first."""
    wanted = ".".join(cuda.split(".")[:2]) if cuda else "12.8"
    whole = [c for c in scene.catalogue.compilers if "nvcc" in c.provides and covers(c, wanted)]
    order = {"pip": 1, "conda": 0 if scene.mentions("conda", "mamba", "pixi") else 2, "apt": 3}
    if scene.os == "windows":
        whole = [packages for packages in whole if packages.manager != "apt"]
        home = rf"C:\Program Files\NVIDIA GPU Computing Toolkit\CUDA\v{wanted}"
        text = f"Name the toolkit of CUDA {wanted} to the build, by whichever way it was installed."
        yield Remedy(text, f'set "CUDA_PATH={home}" && set "CUDA_HOME={home}"')
    for packages in sorted(whole, key=lambda c: order[c.manager]):
        yield Remedy(_text(packages, wanted, cuda is not None), _command(packages, wanted, scene))
    if scene.in_container:
        yield Remedy(
            f"Or build in an image of the devel kind of CUDA {wanted}: those named runtime and base have no nvcc."
        )


def ptxas_remedy(scene: Scene, cuda: str, variable: str) -> Remedy | None:
    """A ptxas of CUDA 12 or newer out of a wheel for Triton; None for a CUDA whose wheels have none."""
    holder = ptxas_packages(cuda, scene.catalogue.compilers)
    if holder is None or minor(cuda) < (12, 0):
        return None
    text = f"Give Triton a ptxas of CUDA {cuda} out of a wheel, which changes no other package."
    wheels = " ".join(f'"{line.format(cuda=cuda)}"' for line in holder.ptxas_packages)
    return Remedy(text, f"pip install --no-deps {wheels} && export {variable}={_SITE}/{holder.ptxas}")


def gcc_range(scene: Scene) -> GccRange | None:
    """The gcc majors that compile extensions for the torch at hand; None where its build is not known."""
    build = scene.torch.build if scene.torch else None
    return gcc_for(build, CompilerFacts.of(scene.catalogue)) if build is not None and build.cuda is not None else None


def _text(packages: CompilerPackages, cuda: str, known: bool) -> str:
    if packages.manager == "apt":
        return f"Install the toolkit of CUDA {cuda} beside the system's others, from NVIDIA's repository."
    if known:
        return f"Put an nvcc of CUDA {cuda} into the environment."
    return f"Put an nvcc of torch's own CUDA into the environment (torch.version.cuda says which; here {cuda})."


def _command(packages: CompilerPackages, cuda: str, scene: Scene) -> str:
    major, minor_ = cuda.split(".")
    names = [name.format(cuda=cuda, major=major, minor=minor_) for name in packages.packages]
    home = (packages.home or "").format(cuda=cuda, site_packages=_SITE)
    install = {"pip": "pip install", "conda": "conda install", "apt": "sudo apt-get install -y"}[packages.manager]
    if packages.manager == "apt" and scene.in_container:
        install = "apt-get install -y"
    quoted = " ".join(f'"{name}"' if set(name) & set("[]*=:") else name for name in names)
    return f"{install} {quoted} && export CUDA_HOME={_HOMES.get(home, home)}"

"""Commands for one package, chosen among what the catalogue knows and the rules accept."""

from __future__ import annotations

import re
from collections.abc import Iterator

from packaging.specifiers import SpecifierSet

from envsolve.diagnose.environment.model import Environment, TorchFiles
from envsolve.diagnose.model import Remedy
from envsolve.diagnose.remedies.torch import install_command, named
from envsolve.diagnose.scene import Scene
from envsolve.resolve.family import Option


def companion_for_torch(scene: Scene, package: str) -> Remedy | None:
    """The best build of a companion for the very torch at hand, which stays as it is; None where there is none."""
    option = _option(scene, package)
    if option is None:
        return None
    build = option.build
    command = install_command(scene, (named(scene, option, scene.family),)).replace(
        " install ", " install --no-deps ", 1
    )
    if "--force-reinstall" not in command:
        command = command.replace(" install ", " install --force-reinstall ", 1)
    torch = scene.torch.label if scene.torch else "this torch"
    return Remedy(f"Install {package} {build.version} [{build.variant}], which is built for {torch}.", command)


def _option(scene: Scene, package: str) -> Option | None:
    torch = scene.torch
    if torch is None or torch.version is None or package not in scene.catalogue.family:
        return None
    asked = {"torch": SpecifierSet(f"=={torch.version}"), package: SpecifierSet()}
    for option, companion in scene.family.pairings(asked):
        if option.build.variant == torch.variant and companion.verdict.level.usable:
            return companion
    return None


def very_torch(scene: Scene, torch: TorchFiles) -> str:
    """The torch that is there, as an installer takes it: its version, and its own index where its flavour is told."""
    place = scene.catalogue.indexes.get("pytorch")
    if torch.version and torch.local and place and re.fullmatch(r"cpu|cu\d+", torch.local):
        return f"torch=={torch.version} --index-url {place.url.format(variant=torch.local)}"
    return f"torch=={(torch.version or '').partition('+')[0]}"


def rebuild(environment: Environment, scene: Scene, package: str) -> Iterator[Remedy]:
    """Compile a package again in the environment, against the torch that is there and for the cards at hand."""
    installed = environment.distribution(package)
    version = (installed.version or "").partition("+")[0] if installed else ""
    cards = ";".join(str(cc) for cc in sorted({gpu.cc for gpu in scene.gpus if gpu.cc}))
    text = "Compile it again against this torch" + (f", for {cards.replace(';', ' and ')}" if cards else "") + "."
    variable = f'TORCH_CUDA_ARCH_LIST="{cards}" ' if cards else ""
    what = f"{package}=={version}" if version else package
    options = f"--force-reinstall --no-deps --no-build-isolation --no-cache-dir --no-binary {package}"
    yield Remedy(text, f"{variable}pip install {options} {what}")

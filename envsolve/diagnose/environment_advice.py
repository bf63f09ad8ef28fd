"""Commands for one package, chosen among what the catalogue knows and the rules accept."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from packaging.specifiers import SpecifierSet

from envsolve.advice.torch import on_named_index
from envsolve.diagnose.model import Diagnoses, Fix
from envsolve.diagnose.remedies.torch import install_command
from envsolve.diagnose.scene import Scene
from envsolve.environment.model import Environment, TorchFiles
from envsolve.packages.commands import Argument, Command, translated
from envsolve.packages.shell import edit
from envsolve.solve.family import Option
from envsolve.system.files import is_folder


def companion_for_torch(scene: Scene, package: str) -> Fix | None:
    """The best build of a companion for the very torch at hand, which stays as it is; None where there is none."""
    option = _option(scene, package)
    if option is None:
        return None
    build = option.build
    command = edit(install_command(scene, (on_named_index(option, scene.family),)), lambda found, _: _alone(found))
    torch = scene.torch.label if scene.torch else "this torch"
    return Fix(f"Install {package} {build.version} [{build.variant}], which is built for {torch}.", command)


def _alone(command: Command) -> Command:
    """The same install for this package only, even if that version is there."""
    again = Argument("--force-reinstall", "force_reinstall"), Argument("--no-deps", "no_deps")
    return command.without("force_reinstall").adding(*again)


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


def rebuild(environment: Environment, scene: Scene, package: str) -> Iterator[Fix]:
    """Compile a package again in the environment, against the torch that is there and for the cards at hand."""
    installed = environment.distribution(package)
    version = (installed.version or "").partition("+")[0] if installed else ""
    cards = ";".join(str(cc) for cc in sorted({gpu.cc for gpu in scene.gpus if gpu.cc}))
    text = "Compile it again against this torch" + (f", for {cards.replace(';', ' and ')}" if cards else "") + "."
    variable = f'TORCH_CUDA_ARCH_LIST="{cards}" ' if cards else ""
    what = f"{package}=={version}" if version else package
    options = f"--force-reinstall --no-deps --no-build-isolation --no-cache-dir --no-binary {package}"
    yield Fix(text, f"{variable}pip install {options} {what}")


# Commands that reach the environment itself, through its own installer.


def addressed(found: Diagnoses, environment: Environment) -> Diagnoses:
    """Diagnoses whose commands name the environment, whichever shell they are run in."""

    def at(remedies: tuple[Fix, ...]) -> tuple[Fix, ...]:
        return tuple(Fix(r.text, in_environment(r.command, environment) if r.command else None) for r in remedies)

    diagnoses = tuple(replace(diagnosis, remedies=at(diagnosis.remedies)) for diagnosis in found.diagnoses)
    return replace(found, diagnoses=diagnoses, next_steps=at(found.next_steps))


def in_environment(command: str, environment: Environment) -> str:
    """``pip install X``, ``conda install X`` and ``--prefix DIR``, rewritten for this environment."""
    command = command.replace("--prefix DIR", f"--prefix {shlex.quote(environment.prefix)}")
    return edit(command, lambda found, variables: _addressed(found, variables, environment))


def _addressed(command: Command, variables: Mapping[str, str], environment: Environment) -> Command:
    """A command on the environment; unchanged if it installs nothing, or names another environment."""
    if command.verb[-1:] not in (("install",), ("uninstall",), ("remove",)) or "VIRTUAL_ENV" in variables:
        return command
    prefix = shlex.quote(environment.prefix)
    if command.installer == "conda":
        at = Argument("-p", "prefix", prefix)
        return command if command.has("prefix", "name") else command.adding(at)
    if command.has("python", "prefix", "target"):
        return command
    verb = command.verb[-1:]
    own = any(d.name == "pip" and _is_own(environment, d.site) for d in environment.distributions)
    if environment.kind == "pipx":
        name = shlex.quote(Path(environment.prefix).name)
        return replace(translated(command, "pip"), program=("pipx", "runpip", name), verb=verb)
    if own and environment.kind not in ("uv", "uv-tool"):
        root = Path(environment.prefix)
        python = root / ("Scripts/python.exe" if is_folder(root / "Scripts") else "bin/python")
        return replace(translated(command, "pip"), program=(shlex.quote(str(python)), "-m", "pip"), verb=verb)
    uv = replace(translated(command, "uv"), program=("uv",), verb=("pip", *verb))
    return uv.adding(Argument("--python", "python", prefix))


def _is_own(environment: Environment, site: str) -> bool:
    found = environment.site(site)
    return found is not None and found.origin == "environment"

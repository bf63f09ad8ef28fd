"""Fixes that change the installed torch, or build an extension again, for what a report says."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from envsolve.advice import torch as advice
from envsolve.advice.torch import on_named_index
from envsolve.diagnose.cause_files import causes
from envsolve.diagnose.model import Diagnoses, Fix, public
from envsolve.diagnose.rebuilding import arch_list
from envsolve.diagnose.scene import Scene
from envsolve.environment.model import Environment, TorchFiles
from envsolve.facts.builds import Build
from envsolve.packages.commands import Argument, Command, translated
from envsolve.packages.shell import edit
from envsolve.rules.judge import with_assumed_driver
from envsolve.rules.platform import python_fits
from envsolve.solve.family import Family, Option
from envsolve.solve.preferences import DEFAULT
from envsolve.system.files import is_folder
from envsolve.values import CudaVersion

#: What programs print of a package that they do without: "Xformers is not installed!".
_ABSENT = re.compile(r"\b([\w-]{2,40}) is not installed")


def installed_by(scene: Scene) -> advice.Installed:
    """The environment of a report, as far as advice depends on it."""
    installed, torch = scene.report.installed, scene.torch
    versions = {name: version for name in installed if (version := public(installed, name))}
    members = scene.catalogue.family.items()
    absent = {name.lower() for name in _ABSENT.findall(scene.report.text)}
    also = tuple(n for n, one in members if one.programs and scene.mentions(n, *one.programs) and n not in absent)
    return advice.Installed(versions, torch.version if torch else None, torch.variant if torch else None, also)


def conda_remedies(scene: Scene) -> tuple[Fix, ...]:
    """Commands for conda-forge's CUDA builds that run here: the installed version, then the best one."""
    options = advice.conda_replacements(scene.machines, scene.python, scene.catalogue)
    at_hand = scene.torch.version if scene.torch else None
    same = [option for option in options if option.build.version == at_hand]
    return tuple({o.build.version: _conda_remedy(o) for o in (*same[:1], *options[:1])}.values())


def _conda_remedy(option: advice.CondaOption) -> Fix:
    build = option.build
    text = f"Install conda-forge's pytorch {build.version} for CUDA {build.cuda}: the CUDA build, requested by name."
    return Fix(text, option.command)


def replacements(scene: Scene, *, variants: Sequence[str] | None = None) -> tuple[Fix, ...]:
    """Commands for a torch that runs here: the version at hand in another variant, then the best there is.

    Args:
        scene: What is known.
        variants: Only these variants.
    """
    if not scene.about_torch or scene.other_vendor:
        return ()
    if self_built(scene):
        return (rebuild_torch(scene),)  # a wheel over it would lose what it was built for
    if scene.by_conda and (by_conda := conda_remedies(scene)):
        return by_conda  # pip's torch over conda's would be the next fault
    wanted = [variants] if variants else [_meant(scene), None]
    for family in (_careful(scene), scene.family):
        for chosen in wanted:
            if found := advice.replacements(family, installed_by(scene), chosen):
                return tuple(_remedy(scene, options, family) for options in found)
    return ()


# The index of a command or a project, ComfyUI's portable release, and the torch that xformers was built for.
_INDEX = re.compile(
    r"(?:/whl/(?:nightly/)?|ComfyUI_(?:\w{1,30}_)?|built for:?\s{1,9}PyTorch \d[\w.]{0,12}\+)(cu\d{2,3})(?!\d)"
)


def _meant(scene: Scene) -> Sequence[str] | None:
    """The variant whose index the report names, if neither the GPU nor the driver decides on another."""
    named = set(_INDEX.findall(scene.report.text)) if not scene.gpus and scene.driver is None else set()
    return (*named,) if len(named) == 1 else None


def _careful(scene: Scene) -> Family:
    """The family on the oldest driver that may be there, if it is not known: what runs there runs on newer ones."""
    architectures, drivers = scene.catalogue.architectures, scene.catalogue.drivers
    machines = tuple(with_assumed_driver(machine, architectures, drivers) for machine in scene.machines)
    known = machines == scene.machines
    return scene.family if known else Family(scene.catalogue, scene.facts, machines, scene.python)


def self_built(scene: Scene) -> bool:
    """Whether torch was compiled from source: 2.5.0a0+gita8d6afb; containers and Jetson wheels add ``nv``."""
    seen = scene.report.installed.get("torch")
    return seen is not None and re.search(r"a0(?:$|\+(?!.*nv\d))|\+git", seen.value) is not None


def rebuild_torch(scene: Scene) -> Fix:
    """The command that builds a torch from source again, for the available GPUs."""
    listed = arch_list(scene.gpus)
    gpus = listed.replace(";", " and ") if listed else "the compute capability of each GPU"
    text = (
        f"This torch was compiled from source: compile it again, on a clean build tree, for {gpus}, with a toolkit "
        "that knows the GPU and that the driver runs."
    )
    command = f'TORCH_CUDA_ARCH_LIST="{listed or "..."}" USE_CUDA=1 pip install --no-build-isolation -v -e .'
    return Fix(text, f"cd PYTORCH_SOURCE && python setup.py clean && {command}")


def pair_with(scene: Scene, asked: Mapping[str, SpecifierSet]) -> Fix | None:
    """The command for the best set of family packages under specifiers, torch among them; None if none fits."""
    if not all(name in scene.catalogue.family for name in asked):
        return None
    on_cpu = [_on_cpu(scene)] if "+cpu" in str(asked.get("torch", "")) else []
    families = list(dict.fromkeys([_careful(scene), scene.family, *on_cpu]))
    meant = _meant(scene)
    for variants in [meant, None] if meant else [None]:
        for family in families:
            for pairing in family.pairings(asked):
                if variants is None or pairing[0].build.variant in variants:
                    return _remedy(scene, pairing, family)
    return None


def _on_cpu(scene: Scene) -> Family:
    """The torch family with a CPU torch, whatever GPUs the machines have."""
    return scene.on(gpus=(), accelerators=())


def with_another_python(scene: Scene) -> Fix | None:
    """An environment with a Python for which a torch for these machines is published, if this Python has none."""
    if scene.python is None or not scene.about_torch or scene.family.options("torch"):
        return None
    for python, option, family in advice.with_another_python(scene.family, scene.catalogue.pythons):
        chosen = _remedy(scene, (option,), family)
        place = f"uv venv --python {python} .venv-{python}"
        command = f"{place} && VIRTUAL_ENV=.venv-{python} uv {(chosen.command or '').removeprefix('uv ')}"
        return led_by(f"Make an environment with Python {python}", Fix(chosen.text, command))
    return None


def led_by(words: str, remedy: Fix) -> Fix:
    """A fix with a prefix before its text: ``Or take a whole build: install torch ...``."""
    return Fix(f"{words}: {remedy.text[0].lower()}{remedy.text[1:]}", remedy.command)


def install_command(scene: Scene, options: Sequence[Option]) -> str:
    """One line that installs options with the installer of the report."""
    return advice.install_command(options, scene.catalogue.indexes, installer(scene))


def installer(scene: Scene) -> str:
    """``uv pip`` if the report shows uv at work, otherwise ``pip``."""
    return "uv pip" if scene.mentions("uv pip ", "uv add ", "uv sync", "uv venv") else "pip"


def as_uv_takes_it(command: str) -> str:
    """A command with the index that it names in the form that uv takes before all others.

    ``UV_DEFAULT_INDEX`` in the shell goes before ``--index-url``, ``UV_INDEX`` before ``--default-index`` as well;
    ``--index`` goes before both, and leaves what is not on that index to the others (tried with uv 0.13).
    """
    return edit(command, lambda found, _: translated(found, "uv") if found.installer == "uv" else found)


def _remedy(scene: Scene, options: Sequence[Option], family: Family) -> Fix:
    chosen = [advice.on_named_index(option, family) for option in options]
    keeps_torch = len(chosen) > 1 and installed_by(scene).has(chosen[0].build)
    text = advice.in_words(chosen, scene.gpus, scene.facts, keeps_torch=keeps_torch)
    command = install_command(scene, chosen[1:] if keeps_torch else chosen)
    if keeps_torch:
        # To reinstall with what it requires would fetch torch again, from the default index.
        again = any(public(scene.report.installed, o.build.package) == o.build.version for o in chosen[1:])
        command = edit(command, lambda found, _: _alone(found) if again else found.without("force_reinstall"))
    return Fix(text, command)


def release_for(scene: Scene, package: str, major: int | None = None, torch: str | None = None) -> Build | None:
    """The newest published release of a package for the torch, the Python and the CUDA at hand; None if none fits.

    Args:
        major: CUDA major that it must be built for, if not torch's.
        torch: The torch that it must be compatible with, if not the one that the report lists.
    """
    known = scene.torch
    cuda = CudaVersion.parse(known.cuda).major if known and known.cuda else None
    own = torch or (known.version if known else None)

    def fits(build: Build) -> bool:
        wanted = major or cuda
        same = not (build.cuda and wanted) or CudaVersion.parse(build.cuda).major == wanted
        with_torch = not (build.torch and own) or SpecifierSet(build.torch).contains(own, prereleases=True)
        return same and with_torch and (scene.python is None or python_fits(build.pythons, scene.python).ok is True)

    found = [b for b in scene.published(package) if not Version(b.version).is_prerelease and fits(b)]
    return max(found, key=lambda build: Version(build.version), default=None)


# A Jetson's own builds: those for servers of the same architecture have no code for it.


def jetson_remedies(scene: Scene) -> tuple[Fix, ...]:
    """The URL of NVIDIA's wheels for a Jetson; empty if it has none."""
    known = scene.facts.architectures
    islands = [gpu for gpu in scene.gpus if (chip := known.get(gpu.compute_capability or "")) and chip.island]
    if not islands and not scene.is_jetson:
        return ()
    code = islands[0].cc.sm if islands and islands[0].cc else "its own sm"
    text = (
        f"Use a wheel from NVIDIA's Jetson index or a Jetson container: a Jetson runs only code made for it ({code}), "
        "which wheels for servers do not carry. Such wheels exist only for each JetPack's own Python: make the "
        "environment with the system's python3."
    )
    own = next((chip.own_index for gpu in islands if (chip := known.get(gpu.compute_capability or ""))), None)
    if scene.mentions("jetpack 5", "jetpack version: 5", "jetpack: 5", "r35", "jp5", "jetpack5"):
        fix = causes().files["no-kernel-for-gpu"].fixes["jetpack-5"]
        return (Fix(fix.text, fix.command),)
    if own:
        text += " The index below is for JetPack 6 with Python 3.10."
        return (Fix(text, f"python3.10 -m pip install --force-reinstall torch torchvision --index-url {own}"),)
    return (Fix(text),)


def jetson_package(scene: Scene, package: str) -> Fix | None:
    """The command for a package of the index of a Jetson's own builds; None if there is none."""
    chips = (scene.facts.architectures.get(gpu.compute_capability or "") for gpu in scene.gpus)
    index = next((chip.own_index for chip in chips if chip and chip.own_index), None)
    if index is None:
        return None
    text = f"Install {package} from the index of builds for Jetson: the one below is for JetPack 6, with Python 3.10."
    return Fix(text, f"python3.10 -m pip install {package} --index-url {index}")


# Commands for one package, chosen among what the catalogue knows and the rules accept.


def companions_for_torch(scene: Scene, packages: Sequence[str], *, from_default: bool = False) -> Fix | None:
    """The best builds of companions for the installed torch, which stays unchanged; None if one has none.

    Args:
        scene: With the torch.
        packages: Names of the companions.
        from_default: Take them from the default index if it has them, because torch came from there.
    """
    options = companions(scene, {package: SpecifierSet() for package in packages}, from_default=from_default)
    if not options:
        return None
    command = edit(install_command(scene, options), lambda found, _: _alone(found))
    torch = scene.torch.label if scene.torch else "this torch"
    what = " and ".join(f"{o.build.package} {o.build.version} [{o.build.variant}]" for o in options)
    verb = "which is" if len(options) == 1 else "which are"
    return Fix(f"Install {what}, {verb} built for {torch}.", command)


def for_torch_at_hand(scene: Scene, package: str, versions: Mapping[str, str] | None = None) -> Fix | None:
    """The release of a package for the installed torch, whose version the command asks Python for.

    Args:
        versions: The release for each minor version of torch, if the catalogue does not say it by the builds.
    """
    minors = sorted({".".join(b.version.split(".")[:2]) for b in scene.published("torch")}, key=Version)
    known = versions or {
        minor: build.version for minor in minors if (build := release_for(scene, package, torch=f"{minor}.0"))
    }
    if not known:
        return None
    pairs = ", ".join(f"'{minor}': '{version}'" for minor, version in known.items())
    command = (
        f"python -c \"import subprocess, sys, torch; known = {{{pairs}}}; subprocess.run([sys.executable, '-m', 'pip', "
        f"'install', '--no-deps', '{package}==' + known['.'.join(torch.__version__.split('.')[:2])]], check=True)\""
    )
    every = list(known.items())
    first, last = every[0], every[-1]
    return Fix(
        f"Install the {package} that is built for the installed torch ({first[1]} for torch {first[0]}, up to "
        f"{last[1]} for torch {last[0]}); torch stays as it is.",
        command,
    )


_FORCE = Argument("--force-reinstall", "force_reinstall")


def _alone(command: Command) -> Command:
    """The same install for this package only, even if that version is already installed."""
    # In its own words: pip's --ignore-installed also installs over what has no list of files.
    given = [one for one in command.arguments if one.meaning == "force_reinstall"]
    again = (*given, Argument("--no-deps", "no_deps")) if given else (_FORCE, Argument("--no-deps", "no_deps"))
    return command.without("force_reinstall").adding(*again)


def companions(scene: Scene, asked: Mapping[str, SpecifierSet], *, from_default: bool = False) -> tuple[Option, ...]:
    """The best builds of companions for the installed torch; empty if one of them has none.

    Args:
        scene: With the torch.
        asked: The requested releases, by name.
        from_default: Keep to the default index if it has all of them.
    """
    torch = scene.torch
    if torch is None or torch.version is None or not all(name in scene.catalogue.family for name in asked):
        return ()
    family, known = _on_cpu(scene) if torch.variant == "cpu" else scene.family, True
    if torch.variant != "cpu" and not scene.gpus:
        # The pair follows from torch, which is installed already: a host without its GPU, as a login node, can tell.
        family, known = scene.on(gpus=None, accelerators=None), False
    for option, *found in family.pairings({"torch": SpecifierSet(f"=={torch.version}"), **asked}):
        if option.build.variant == torch.variant and all(one.verdict.level.usable or not known for one in found):
            if from_default and all(one.build.index == DEFAULT for one in found):
                return tuple(found)
            return tuple(on_named_index(one, family) for one in found)
    return ()


def very_torch(scene: Scene, torch: TorchFiles) -> str:
    """The installed torch as an installer accepts it: its version, and its own index if its variant is known."""
    place = scene.catalogue.indexes.get("pytorch")
    if torch.version and torch.local and place and re.fullmatch(r"cpu|cu\d+", torch.local):
        return f"torch=={torch.version} --index-url {place.url.format(variant=torch.local)}"
    return f"torch=={(torch.version or '').partition('+')[0]}"


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
    """A command that acts on the environment; unchanged if it installs nothing, or names another environment."""
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

"""Another torch: builds that the rules accept for the machines, the least change first."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from envsolve.diagnose.model import Remedy
from envsolve.diagnose.scene import Scene, public
from envsolve.facts.builds import Build, IndexPlace
from envsolve.facts.channels import CondaBuild
from envsolve.facts.hardware import Architecture
from envsolve.machine.model import Gpu
from envsolve.rules.code import ANY, best_code
from envsolve.rules.driver import driver_runs
from envsolve.rules.platform import libc_fits
from envsolve.rules.toolchain import CompilerFacts
from envsolve.rules.toolchain import arch_list as entries_for
from envsolve.rules.verdict import Level
from envsolve.solve.family import DEFAULT, Family, Option

# conda-forge's PyTorch: a build that the rules accept for the machines.


_SUBDIRS = {("linux", "x86_64"): "linux-64", ("linux", "aarch64"): "linux-aarch64", ("windows", "x86_64"): "win-64"}


def conda_remedies(scene: Scene) -> tuple[Remedy, ...]:
    """Commands for conda-forge's CUDA builds that run here: that of the version at hand, then the newest."""
    fitting = sorted((b for b in scene.catalogue.conda if _fits(b, scene)), key=_newness, reverse=True)
    at_hand = scene.torch.version if scene.torch else None
    same = [build for build in fitting if build.version == at_hand]
    return tuple({b.version: _conda_remedy(b) for b in (*same[:1], *fitting[:1])}.values())


def _newness(build: CondaBuild) -> tuple[Version, Version]:
    return Version(build.version), Version(build.cuda or "0")


def _conda_remedy(build: CondaBuild) -> Remedy:
    text = f"Install conda-forge's pytorch {build.version} for CUDA {build.cuda}: the CUDA build, asked for by name."
    command = f'conda install -c conda-forge "pytorch={build.version}={build.build}" "cuda-version={build.cuda}"'
    return Remedy(text, command)


def _fits(build: CondaBuild, scene: Scene) -> bool:
    platform = scene.machine.platform
    subdir = _SUBDIRS.get((platform.os or "linux", platform.arch or "x86_64")) if platform else "linux-64"
    if (
        build.subdir != subdir
        or build.package != "pytorch"
        or build.channel != "conda-forge"
        or build.cuda is None
        or build.arm == "tegra"
    ):
        return False
    if build.libc and libc_fits(build.libc, platform).ok is False:
        return False
    if scene.python and build.pythons and scene.python not in build.pythons:
        return False
    if build.code and scene.unserved(build.code, build.cuda):
        return False
    fit = driver_runs(build.cuda, scene.driver, scene.os, scene.facts.toolkits, scene.facts.floors)
    return fit.reason.ok is not False


#: Where ``uv pip install`` names an index.
_UV_INDEX = re.compile(r"(?P<words>\buv pip install\b[^&|;]{0,400}?\s)--index-url[ =]")
#: Companions that most environments with torch have, and that must move with it.
_CLOSE = ("torchvision", "torchaudio", "torchcodec")
#: Newest first after the one that most projects are published for.
_PYTHONS = ("3.12", "3.13", "3.11", "3.10", "3.14", "3.15", "3.9", "3.8", "3.7")


def replacements(scene: Scene, *, variants: Sequence[str] | None = None) -> tuple[Remedy, ...]:
    """Commands for a torch that runs here: the version at hand in another flavour, then the best there is.

    Args:
        scene: What is known.
        variants: Only these flavours.
    """
    if not scene.about_torch:
        return ()
    if scene.by_conda and (by_conda := conda_remedies(scene)):
        return by_conda  # pip's torch over conda's would be the next fault
    options = [o for o in _candidates(scene, scene.family) if variants is None or o[0].build.variant in variants]
    return tuple(_remedy(scene, option, scene.family) for option in _apart(options))


def pair_with(scene: Scene, asked: Mapping[str, SpecifierSet]) -> Remedy | None:
    """The command for the best set of family packages under specifiers, torch among them; None where none fits."""
    found = next(scene.family.pairings(asked), None)
    return _remedy(scene, found, scene.family) if found else None


def with_another_python(scene: Scene) -> tuple[str, Remedy] | None:
    """A Python for which a torch for these machines is published, where this Python has none."""
    if scene.python is None or not scene.about_torch or scene.family.options("torch"):
        return None
    for python in _PYTHONS:
        family = replace(scene.family, python=python)
        options = _known(family.options("torch"))
        if options:
            named = _remedy(scene, (options[0],), family)
            place = f"uv venv --python {python} .venv-{python}"
            command = (
                f"{place} && VIRTUAL_ENV=.venv-{python} uv {named.command.removeprefix('uv ')}"
                if named.command
                else place
            )
            return python, led_by(f"Make an environment with Python {python}", Remedy(named.text, command))
    return None


def led_by(words: str, remedy: Remedy) -> Remedy:
    """A remedy with words before its text: ``Or take a whole build: install torch ...``."""
    return Remedy(f"{words}: {remedy.text[0].lower()}{remedy.text[1:]}", remedy.command)


def install_command(scene: Scene, options: Sequence[Option]) -> str:
    """One line that installs options: an exact local version, so that an installer cannot be content with another."""
    served: dict[str, list[str]] = {}
    for option in options:
        build = option.build
        served.setdefault(build.index if build.index != DEFAULT else "", []).append(
            f"{build.package}=={build.version}{build.local}"
        )
    flavour = next((o.build.variant for o in options if o.build.variant != ANY), "cpu")
    commands = []
    for index, names in sorted(served.items(), reverse=True):
        place = scene.catalogue.indexes.get(index)
        where = f" --index-url {_address(place, flavour)}" if place else ""
        force = "" if place else " --force-reinstall"
        commands.append(f"{installer(scene)} install{force} {' '.join(names)}{where}")
    return " && ".join(commands)


def installer(scene: Scene) -> str:
    """``uv pip`` where the report shows uv at work, else ``pip``."""
    return "uv pip" if scene.mentions("uv pip ", "uv add ", "uv sync", "uv venv") else "pip"


def as_uv_takes_it(command: str) -> str:
    """A command with the index that it names in the form that uv takes before all others.

    ``UV_DEFAULT_INDEX`` in the shell goes before ``--index-url``, ``UV_INDEX`` before ``--default-index`` as well;
    ``--index`` goes before both, and leaves what is not on that index to the others (tried with uv 0.13).
    """
    return _UV_INDEX.sub(r"\g<words>--index ", command)


def named(scene: Scene, option: Option, family: Family) -> Option:
    """The same version and flavour on the index whose file names say the flavour, where that exists."""
    build = option.build
    for other in family.options(build.package):
        same = (other.build.version, other.build.variant) == (build.version, build.variant)
        if same and other.build.local and other.verdict.level is option.verdict.level:
            return other
    return option


def _address(place: IndexPlace, variant: str) -> str:
    return place.url.format(variant=variant)


def _candidates(scene: Scene, family: Family) -> Iterator[tuple[Option, ...]]:
    torch = scene.torch
    close = {name for name in _CLOSE if name in scene.report.installed}
    bound = {name for name in scene.report.installed if family.follows_torch(name)}
    if torch and torch.version:
        same = {"torch": SpecifierSet(f"=={torch.version}")}
        yield from _first(family, same, bound, close, scene)
    yield from _first(family, {}, bound, close, scene)


def _first(
    family: Family, asked: Mapping[str, SpecifierSet], bound: set[str], close: set[str], scene: Scene
) -> Iterator[tuple[Option, ...]]:
    """The best pairing: with the companions as they are, else in any version, else with the close ones alone."""
    exact = {name: SpecifierSet(f"=={public(scene.report.installed, name)}") for name in bound}
    loose = {name: SpecifierSet() for name in bound}
    near = {name: SpecifierSet() for name in close}
    for companions in (exact, loose, near):
        for found in family.pairings({**asked, **companions}):
            if not _is_at_hand(scene, found[0]) and _worth(found[0]):
                yield found
                return


def _worth(option: Option) -> bool:
    """Whether an option may be advised: it runs, or only what the machine does not tell is open."""
    return option.build.variant != "cpu" and option.verdict.level is not Level.NONE


def _known(options: Sequence[Option]) -> list[Option]:
    return [option for option in options if _worth(option)]


def _is_at_hand(scene: Scene, option: Option) -> bool:
    torch = scene.torch
    at_hand = (torch.version, torch.variant) if torch else None
    return at_hand == (option.build.version, option.build.variant)


def _apart(options: Sequence[tuple[Option, ...]]) -> list[tuple[Option, ...]]:
    """Without those that name the same versions and flavours again."""
    return list({tuple(o.identity[:2] for o in found): found for found in options}.values())


def _remedy(scene: Scene, options: Sequence[Option], family: Family) -> Remedy:
    chosen = [named(scene, option, family) for option in options]
    torch, *companions = chosen
    build = torch.build
    runs = _runs(scene, build)
    needs = f"needs driver {torch.verdict.driver_required} or newer" if torch.verdict.driver_required else ""
    others = ", ".join(
        f"{o.build.package} {o.build.version}" + ("" if o.build.variant in (ANY, "cpu") else f" [{o.build.variant}]")
        for o in companions
    )
    if companions and _is_at_hand(scene, options[0]):
        text = f"Keep torch {build.version} [{build.variant}], and install {others}, which goes with it."
        return Remedy(text, install_command(scene, companions))
    why = "; ".join(filter(None, (runs, needs)))
    text = f"Install torch {build.version} [{build.variant}]" + (f", {others}" if others else "")
    return Remedy(text + (f": {why}." if why else "."), install_command(scene, chosen))


def _runs(scene: Scene, build: Build) -> str:
    """Which code of a build each card runs."""
    if not scene.gpus:
        return "whether it serves the card depends on what the report does not tell"
    codes: dict[str, list[str]] = {}
    for gpu in scene.gpus:
        _, arch = best_code(build.code or (), gpu.cc, scene.facts.architectures) if gpu.cc else (None, None)
        if arch:
            codes.setdefault(arch.name, []).append(gpu.name or f"cc {gpu.compute_capability}")
    return ", ".join(f"{code} runs on {' and '.join(names)}" for code, names in codes.items())


# Building an extension again, for the cards at hand.


_SOURCE = re.compile(r"git\+https?://[\w./@#&=?%+-]{1,200}")
_HERE = re.compile(r"pip3? install\b[^|&;#\n]{0,120}?(?<!\S)(?P<path>\.{1,2}(?:/[\w./-]*)?(?:\[[\w,]*\])?)(?!\S)")


def rebuild(scene: Scene, gpus: Sequence[Gpu]) -> tuple[Remedy, ...]:
    """The command that builds the extension for the cards; empty where the cards are not known."""
    listed = archs_for(scene, gpus)
    what = source_of(scene)
    if not listed:
        text = (
            "Build the extension again with the cards named: TORCH_CUDA_ARCH_LIST takes their compute capabilities, "
            "such as 7.0;8.0 (nvidia-smi --query-gpu=compute_cap --format=csv shows them)."
        )
        listed = "..."
    else:
        text = f"Build the extension again for {listed.replace(';', ' and ')}, wherever it is built."
    if scene.mentions("dockerfile", "\nrun ", "docker build"):
        text += " In a Dockerfile, ENV TORCH_CUDA_ARCH_LIST before the RUN line does it."
    if scene.mentions("cmake_cuda_architectures", "cuda_architectures"):
        text = "Name the cards to CMake in place of native, wherever it is built."
        numbers = listed.replace(".", "") if listed != "..." else "80;90"
        return (Remedy(text, f'cmake -DCMAKE_CUDA_ARCHITECTURES="{numbers}" ...'),)
    command = f'TORCH_CUDA_ARCH_LIST="{listed}" pip install --no-build-isolation --no-cache-dir --force-reinstall'
    return (Remedy(text, f"{command} --no-deps {what}"),)


def arch_list(gpus: Sequence[Gpu]) -> str:
    """``7.0;8.0``: cards as TORCH_CUDA_ARCH_LIST takes them; empty where none is known."""
    return ";".join(str(cc) for cc in sorted({gpu.cc for gpu in gpus if gpu.cc}))


def archs_for(scene: Scene, gpus: Sequence[Gpu]) -> str:
    """The same, in the entries that the torch at hand and its nvcc know (rule 10)."""
    build = scene.torch.build if scene.torch else None
    if build is not None and build.cuda is not None:
        entries, _ = entries_for(build, {gpu.cc for gpu in gpus if gpu.cc}, CompilerFacts.of(scene.catalogue))
        return entries or arch_list(gpus)
    return arch_list(gpus)


def extension_named(scene: Scene, line: str = "") -> str | None:
    """The project of the library on a line, else the first one that the report names."""
    modules, low = scene.catalogue.extension_modules, line.lower()
    on_line = next((module.package for module in modules if module.name in low), None)
    return on_line or next((module.package for module in modules if scene.mentions(module.name)), None)


def source_of(scene: Scene) -> str:
    """What the report installs from source, ``git+https://...`` or ``.``, else the extension that it names."""
    if match := _SOURCE.search(scene.report.text):
        return f'"{match[0]}"' if set(match[0]) & set("#&?") else match[0]
    for seen in scene.report.commands:
        if match := _HERE.search(seen.value):
            return match["path"]
    name = extension_named(scene)
    if name is None:
        return "."
    version = public(scene.report.installed, name)
    return f"--no-binary {name} {name}" + (f"=={version}" if version else "")


# A Jetson's own builds: those for servers of the same architecture have no code for it.


def jetson_remedies(scene: Scene) -> tuple[Remedy, ...]:
    """Where NVIDIA's wheels for a Jetson are; empty where there is none."""
    islands = [gpu for gpu in scene.gpus if _is_island(scene.facts.architectures.get(gpu.compute_capability or ""))]
    if not islands and not scene.is_jetson:
        return ()
    code = islands[0].cc.sm if islands and islands[0].cc else "its own sm"
    text = (
        f"Use a wheel from NVIDIA's Jetson index or a Jetson container: a Jetson runs only code made for it ({code}), "
        "which wheels for servers do not carry. Such wheels exist for each JetPack's own Python alone: make the "
        "environment with the system's python3."
    )
    return (Remedy(text),)


def _is_island(known: Architecture | None) -> bool:
    return known is not None and known.island

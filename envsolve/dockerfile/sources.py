"""The sources that an image's build compiles against torch, and the nvcc that it has for that."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from packaging.utils import canonicalize_name

from envsolve.dockerfile.conda import conda_install
from envsolve.dockerfile.image_names import Name
from envsolve.dockerfile.installs import Install
from envsolve.dockerfile.model import Command, Severity, Stage, other_installer
from envsolve.dockerfile.offers import Asked, Within, found, pinned
from envsolve.facts.builds import SourceProject
from envsolve.toolchain.model import source_project

ARCH_LIST = "TORCH_CUDA_ARCH_LIST"


@dataclass(frozen=True, slots=True)
class Compiled:
    """A package that is compiled against torch.

    Attributes:
        command: What compiles it.
        name: The package, or its source.
        project: Its record, if it is known.
        sure: Whether it certainly contains GPU code; otherwise it may.
        isolated: Name of the installer that builds it in an environment of its own, which has no torch; None if it is
            built beside torch.
        own_list: Whether its setup.py names the GPUs, so that no variable does.
    """

    command: Command
    name: str
    project: SourceProject | None
    sure: bool = True
    isolated: str | None = None
    own_list: bool = False

    @property
    def variable(self) -> str | None:
        """The variable that lists its GPUs; None if it has a list of its own, or needs none."""
        if self.own_list:
            return None
        return self.project.arch_variable if self.project else ARCH_LIST

    @property
    def level(self) -> Severity:
        """The level of a finding about it."""
        return "error" if self.sure else "warning"


def compiled_in(stage: Stage, asked: Asked) -> Iterator[Compiled]:
    """The packages that a stage's commands compile, in order; those that may come as a wheel are left out."""
    trees = _clones(stage)
    for command in stage.commands:
        for install in asked.installs((command,)):
            yield from _installed(install, trees, asked)
        if _runs_setup(command):
            place = posixpath.dirname(posixpath.join(command.directory, command.words[1]))
            one = _tree(place, command, trees, asked)
            yield from [one] if one else []


def _installed(install: Install, trees: Mapping[str, str], asked: Asked) -> Iterator[Compiled]:
    command = install.command
    isolated = install.program if install.isolated else None
    for wanted in install.wanted:
        project = _project(wanted.name, pinned(wanted.requirement.specifier), asked)
        places = asked.looks(install, wanted.name)
        if project is None or wanted.requirement.url or places.unknown:
            continue
        # Pre-releases and other Pythons count as well: only if no wheel fits at all is it certainly compiled.
        if not found(asked.offers(wanted.name), wanted.requirement.specifier, places, Within(), early=True):
            yield Compiled(command, wanted.name, project, isolated=isolated)
    for source in install.sources:
        if source.endswith(".whl"):
            continue
        if "://" in source:
            project = _named(source, asked)
            if project:
                yield Compiled(command, source, project, isolated=isolated)
            elif command.variables.get(ARCH_LIST):  # somebody names GPUs, so it may be compiled for them
                yield Compiled(command, source, None, sure=False)
            continue
        place = source.partition("[")[0]
        one = _tree(place, command, trees, asked)
        # uv always isolates. pip did so before 25.3 only for trees with a pyproject.toml.
        settings = asked.context.text(posixpath.join(place, "pyproject.toml"), command)
        if one and not one.project and isolated and (settings is not None or isolated == "uv"):
            # An isolated build cannot import torch, so it has no extension of torch's.
            continue
        yield from [replace(one, name=source, isolated=isolated)] if one else []


def _tree(place: str, command: Command, trees: Mapping[str, str], asked: Asked) -> Compiled | None:
    """A source tree: one that was cloned, one of the context, or one that is not known; None if it has no GPU code."""
    path = posixpath.normpath(posixpath.join(command.directory, place))
    name = posixpath.basename(path) if place in ("", ".") else place
    project = _named(trees.get(path, path), asked)
    if project is not None:
        return Compiled(command, name, project)
    setup = asked.context.text(posixpath.join(path, "setup.py"), command)
    if setup is None and asked.context.text(posixpath.join(path, "pyproject.toml"), command) is not None:
        return None
    if setup is None or "CUDAExtension" in setup:
        # torch adds no architectures to options that have some.
        own_list = setup is not None and re.search(r"gencode|-arch\b|arch=(?:sm|compute)_", setup) is not None
        # Many leave the extension out if a variable says so, or if they find no nvcc.
        sure = setup is not None and re.search(r"\bgetenv\b|\benviron\b|is_available|CUDA_HOME", setup) is None
        return Compiled(command, name, None, sure=sure, own_list=own_list)
    return None


def _named(source: str, asked: Asked) -> SourceProject | None:
    """The record of the project that a URL or a directory is of, by its name."""
    name = source.partition("#")[0].rstrip("/").rsplit("/", 1)[-1].partition("@")[0]
    name = canonicalize_name(name).removesuffix("-git").removesuffix(".git")
    # Repositories such as tiny-cuda-nn and flash-attention are not called as their packages are.
    plain = name.replace("-", "")
    alike = (one.package for one in asked.catalogue.source_projects if one.package.replace("-", "") == plain)
    meant = (one.means for one in asked.catalogue.package_names if one.means and name in one.names)
    return _project(next(alike, None) or next(meant, name), None, asked)


def _project(name: str, version: str | None, asked: Asked) -> SourceProject | None:
    """The record of a package that runs nvcc as it is installed."""
    # Without a pin, pip takes the newest version, which the last record covers.
    project = source_project(name, version, asked.catalogue.source_projects)
    return project if project and project.compiles != "use" and "nvcc" in project.tools else None


def _clones(stage: Stage) -> Mapping[str, str]:
    """The directories that ``git clone`` makes, with the URL of each."""
    made = {}
    for command in stage.history():
        words = [word for word in command.words if not word.startswith("-")]
        urls = [n for n, word in enumerate(words) if "://" in word or word.startswith("git@")]
        if command.program == "git" and "clone" in words and urls:
            url = words[urls[-1]].rstrip("/")
            named = words[urls[-1] + 1] if len(words) > urls[-1] + 1 else url.rsplit("/", 1)[-1].removesuffix(".git")
            made[posixpath.normpath(posixpath.join(command.directory, named))] = url
    return made


_SETUP = frozenset({"install", "develop", "build", "build_ext", "bdist_wheel"})


def _runs_setup(command: Command) -> bool:
    """Whether it is ``python setup.py install`` or the like."""
    words = command.words
    is_python = command.program.startswith("python") and len(words) > 2
    return is_python and posixpath.basename(words[1]) == "setup.py" and bool(_SETUP & {*words[2:]})


# The nvcc of an image: of the image itself, or of a package that is installed in it.


_APT = re.compile(r"cuda(?:-nvcc|-toolkit|-compiler|-minimal-build|-command-line-tools)?-(\d+)-(\d+)")
_LABEL = re.compile(r"nvidia/label/cuda-(\d+\.\d+)")
_CONDA_NVCC = frozenset({"cuda", "cuda-nvcc", "cuda-toolkit", "cuda-compiler", "cudatoolkit-dev"})


def nvcc_in(stage: Stage, asked: Asked) -> str | None:
    """The version of the nvcc of a stage, ``12.6``; empty if it has none, None if that is not known."""
    version = _of_image(stage, asked)
    for command in stage.history():
        brought = _brought(command, asked)
        version = None if brought == _SOME else brought or version
    return version


_TOOLKIT_WORDS = re.compile(r"(?i)cuda|nvcc|nvhpc")


def lacks_nvcc(stage: Stage, asked: Asked) -> bool:
    """Whether a stage certainly has no nvcc: nothing installs one, and no file or program may bring one."""
    if nvcc_in(stage, asked) != "" or _takes_files_of_others(stage):
        return False
    return not any(_may_bring_toolkit(command, asked) for command in stage.history())


def _may_bring_toolkit(command: Command, asked: Asked) -> bool:
    if installs := list(asked.installs((command,))):
        return any(one.files or any(w.name.startswith("nvidia-cuda-nvcc") for w in one.wanted) for one in installs)
    return bool(other_installer(command)) or any(map(_TOOLKIT_WORDS.search, command.words))


def lacks_torch(stage: Stage, until: Command, asked: Asked) -> Severity | None:
    """Whether a stage has no torch yet when a command runs: ``error`` if certainly, ``warning`` if it seems so."""
    if not asked.knows(stage) or "torch" in asked.held(stage) or _takes_files_of_others(stage):
        return None
    level: Severity = "error"
    for command in stage.history():
        if command is until:
            return level
        if other_installer(command):
            return None
        for install in asked.installs((command,)):
            if install.names("torch") or "torch" in install.unread:
                return None
            # Other packages may have torch among their dependencies.
            names = {wanted.name for wanted in install.wanted}
            if install.sources or install.files or install.strange or not names <= _WITHOUT_TORCH:
                level = "warning"
    return None


# Build tools, and what else is usually installed before torch; none of them requires torch.
_WITHOUT_TORCH = frozenset({"pip", "setuptools", "wheel", "packaging", "ninja", "cmake", "numpy", "psutil", "uv"})


def _takes_files_of_others(stage: Stage) -> bool:
    """Whether files of other stages or images are copied into a stage."""
    return any(not one.sources and one.document is None for command in stage.history() for one in command.copied)


def _of_image(stage: Stage, asked: Asked) -> str | None:
    tag, image = Name.of(stage.root.image).tag, asked.image(stage)
    named = re.search(r"(?:^|-)cuda-?(\d+\.\d+)", tag)
    cuda = image.cuda if image and image.cuda else named[1] if named else ""
    if "devel" in tag.split("-") and cuda:
        return cuda
    # NVIDIA's own images of frameworks have the whole toolkit.
    if image is not None and image.cuda and tag.endswith("-py3"):
        return image.cuda
    return "" if asked.knows(stage) else None


# A toolkit of a version that is not known.
_SOME = "some"


def _brought(command: Command, asked: Asked) -> str | None:
    if command.program in ("apt", "apt-get", "dnf", "yum", "microdnf") and "install" in command.words:
        found = [f"{match[1]}.{match[2]}" for word in command.words if (match := _APT.match(word.partition("=")[0]))]
        return found[-1] if found else None
    install = conda_install(command, asked.context)
    versions = {spec.name: spec.version or "" for spec in install.specs} if install else {}
    if install is None or not _CONDA_NVCC & versions.keys():
        return None
    places = (*install.channels, *(spec.channel or "" for spec in install.specs))
    if label := _LABEL.search(" ".join(places)):
        return label[1]
    pins = (versions.get(name, "") for name in (*sorted(_CONDA_NVCC), "cuda-version", "pytorch-cuda"))
    return next((match[0] for pin in pins if (match := re.search(r"\d+\.\d+", pin))), _SOME)

"""Checks of what is compiled as an image is built: the architectures, nvcc's options and the toolkit of the image."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from packaging.utils import canonicalize_name

from envsolve.dockerfile.installs import Install
from envsolve.dockerfile.model import Command, Finding, Severity, Stage
from envsolve.dockerfile.offers import Asked, Name, Within, found, pinned
from envsolve.facts.builds import SourceProject
from envsolve.facts.hardware import ArchName, Toolkit, toolkit_of
from envsolve.machine.model import Gpu, Machine
from envsolve.rules.nvidia.code import best_code
from envsolve.rules.nvidia.driver import ptx_loads
from envsolve.rules.verdict import Level
from envsolve.toolchain.model import source_project
from envsolve.values import ComputeCapability, CudaVersion, DriverVersion, Variant

ARCH_LIST = "TORCH_CUDA_ARCH_LIST"

# What an install compiles, as far as its words, the catalogue and the build context tell.


@dataclass(frozen=True, slots=True)
class Compiled:
    """Something that is compiled against torch.

    Attributes:
        name: The package, or its source.
        project: Its record, if it is known.
        sure: Whether it certainly contains GPU code; otherwise it may.
    """

    name: str
    project: SourceProject | None
    sure: bool = True

    @property
    def variable(self) -> str | None:
        """The variable that lists its GPUs; None if it has a list of its own, or needs none."""
        return self.project.arch_variable if self.project else ARCH_LIST

    @property
    def level(self) -> Severity:
        """The level of a finding about it."""
        return "error" if self.sure else "warning"


def compiled(install: Install, asked: Asked) -> Iterator[Compiled]:
    """What an install compiles; packages that may come as a wheel are left out."""
    for wanted in install.wanted:
        project = _project(wanted.name, pinned(wanted.requirement.specifier), asked)
        places = asked.looks(install, wanted.name)
        if project is None or wanted.requirement.url or places.unknown:
            continue
        # Pre-releases and other Pythons count as well: only if no wheel fits at all is it certainly compiled.
        if not found(asked.offers(wanted.name), wanted.requirement.specifier, places, Within(), early=True):
            yield Compiled(wanted.name, project)
    for source in install.sources:
        name = canonicalize_name(source.partition("#")[0].rstrip("/").rsplit("/", 1)[-1].partition("@")[0])
        project = _project(name.removesuffix("-git"), None, asked)
        if project is not None:
            yield Compiled(source, project)
        elif not install.isolated and "://" not in source:
            setup = asked.context.text(posixpath.join(source.partition("[")[0], "setup.py"), install.command)
            # An isolated build cannot import torch, so it has no extension of torch's.
            if setup is None or "CUDAExtension" in setup:
                yield Compiled(source, None, sure=setup is not None)


def _project(name: str, version: str | None, asked: Asked) -> SourceProject | None:
    """The record of a package that runs nvcc as it is installed."""
    # Without a pin, pip takes the newest version, which the last record covers.
    project = source_project(name, version, asked.catalogue.source_projects)
    return project if project and project.compiles != "use" and "nvcc" in project.tools else None


# What nvcc, cmake and torch's extensions are told to compile for.


_ARCH = re.compile(r"(?:sm|compute)_\d{2,3}[af]?\b")
# With these options nvcc compiles nothing.
_ASKS = frozenset({"-V", "--version", "-h", "--help", "--list-gpu-arch", "--list-gpu-code", "-arch-ls", "-code-ls"})
NATIVE = "native"
"""Instead of code: the GPUs that are present during compilation."""
EVERY = "every"
"""Instead of code: all that the toolkit can make."""


def nvcc_code(command: Command) -> tuple[str, ...] | None:
    """The code that an nvcc command makes, ``("sm_75", "compute_75")``; None for another command.

    Empty if it names none, and takes its own default. Source: CUDA Compiler Driver NVCC, "Options for Steering GPU
    Code Generation": ``-arch=sm_NN`` alone is short for its SASS and its PTX.
    """
    words = command.words
    if not words or command.program != "nvcc" or _ASKS & set(words):
        return None
    if not any(word.endswith(".cu") for word in words) and "cu" not in words:
        return None
    text = " ".join(words[1:])
    made: list[str] = []
    for arch, codes in re.findall(r"(?:-gencode|--generate-code)[= ]arch=([\w-]+)(?:,code=(\S+))?", text):
        made += _ARCH.findall(codes) if codes else _short(arch.replace("compute_", "sm_"))
    alone = re.search(r"(?:-arch|--gpu-architecture)[= ](\S+)", text)
    code = re.search(r"(?:^| )(?:-code|--gpu-code)[= ](\S+)", text)
    if code:
        made += _ARCH.findall(code[1])
    elif alone:
        made += _short(alone[1])
    return tuple(dict.fromkeys(made))


def cmake_code(command: Command) -> tuple[str, ...] | None:
    """Likewise for cmake's ``-DCMAKE_CUDA_ARCHITECTURES``; None if it is not given.

    Source: CMake documentation, ``CUDA_ARCHITECTURES``: a number alone is SASS and PTX, ``-real`` and ``-virtual`` one.
    """
    if not command.words or command.program != "cmake":
        return None
    found = re.findall(r"-D ?CMAKE_CUDA_ARCHITECTURES(?::\w+)?=(\S+)", " ".join(command.words))
    if not found:
        return None
    made: list[str] = []
    for word in re.split(r"[;,]", found[-1]):
        match = re.fullmatch(r"(\d{2,3}[af]?)(?:-(real|virtual))?", word)
        if match:
            kinds = {"real": ("sm",), "virtual": ("compute",)}.get(match[2], ("sm", "compute"))
            made += [f"{kind}_{match[1]}" for kind in kinds]
        elif word in ("native", "all", "all-major"):
            made += _short(word)
        else:
            return None
    return tuple(dict.fromkeys(made))


def torch_code(value: str, names: Iterable[ArchName] = ()) -> tuple[str, ...] | None:
    """The code that ``TORCH_CUDA_ARCH_LIST`` makes; None if a word of it is neither a number nor a known name.

    Source: torch/utils/cpp_extension.py: names, and numbers with ``+PTX``, between semicolons or blanks.
    """
    made: list[str] = []
    # As torch does: a combined name comes before the single name in it.
    for known in names:
        value = value.replace(known.name, known.entries)
    for word in filter(None, re.split(r"[;\s]+", value)):
        match = re.fullmatch(r"(\d{1,2})\.(\d)([af]?)(\+PTX)?", word)
        if match is None:
            return None
        number = f"{match[1]}{match[2]}{match[3]}"
        made += [f"sm_{number}", *([f"compute_{number}"] if match[4] else [])]
    return tuple(made) or None


def _short(value: str) -> Sequence[str]:
    if value == "native":
        return (NATIVE,)
    if value in ("all", "all-major"):
        return (EVERY,)
    return (value, value.replace("sm_", "compute_")) if _ARCH.fullmatch(value) else ()


# Checks.


def arch_list(stage: Stage, asked: Asked) -> Iterator[Finding]:
    """The variables that list the GPUs of extensions, since a build has no GPU to ask."""
    found_gpus = {gpu.cc: gpu for machine in asked.machines for gpu in machine.gpus or () if gpu.cc is not None}
    gpus = {cc: found_gpus[cc] for cc in sorted(found_gpus)}
    if not gpus:
        return
    has_nvcc = asked.image(stage) is not None and "devel" in Name.of(stage.root.image).tag.split("-")
    for install in asked.installs(stage.commands):
        for one in compiled(install, asked):
            if one.sure or has_nvcc:
                # An image that nobody knows may set the variables.
                level: Severity = one.level if asked.knows(stage) else "warning"
                yield from _not_forced(one, install, level)
                if one.variable is not None:
                    yield from _not_listed(one, one.variable, install, gpus, level, asked)
                    yield from _not_in_toolkit(one, install, gpus, _toolkit(stage, asked), asked)


def _not_forced(one: Compiled, install: Install, level: Severity) -> Iterator[Finding]:
    # Without a GPU, a build leaves its GPU code out unless such a variable is set.
    for name, value in one.project.variables.items() if one.project else ():
        if name.startswith("FORCE_") and install.command.variables.get(name, "0") in ("", "0"):
            text = f"{one.name} is compiled without its GPU code, since a build sees no GPU"
            yield Finding(install.command.line, "cuda-not-forced", level, text, (f"ENV {name}={value}",))


def _not_listed(
    one: Compiled,
    variable: str,
    install: Install,
    gpus: Mapping[ComputeCapability, Gpu],
    level: Severity,
    asked: Asked,
) -> Iterator[Finding]:
    line, given = install.command.line, install.command.variables.get(variable) or ""
    code = torch_code(given, asked.catalogue.arch_names) if variable == ARCH_LIST else None
    missing = [cc for cc in gpus if code and not best_code(code, cc, asked.facts.architectures)[0].usable]
    listed = given.replace(" ", ";").split(";") if missing else []
    wanted = sorted({*filter(None, listed), *(str(cc) for cc in (missing or gpus))}, key=DriverVersion.parse)
    remedy = f'ENV {ARCH_LIST}="{";".join(wanted)}"'
    if variable != ARCH_LIST:
        remedy = f"set {variable}, as the documentation of {one.name} says"
    if not given and not (one.project and one.project.archs):
        text = f"{one.name} is compiled with {variable} unset; a build sees no GPU to detect"
        if not one.sure:
            text = f"if {one.name} has GPU code, it is compiled for none of the target GPUs: {variable} is not set"
        yield Finding(line, "arch-list-unset", level, text, (remedy,))
    for cc in missing:
        text = f"{variable}={given} makes no code that runs on {gpus[cc].label}"
        yield Finding(line, "arch-list", one.level, text, (remedy,))


def _not_in_toolkit(
    one: Compiled, install: Install, gpus: Mapping[ComputeCapability, Gpu], toolkit: Toolkit | None, asked: Asked
) -> Iterator[Finding]:
    """The toolkit of the image may know no code for a GPU, whatever is listed."""
    for cc, gpu in gpus.items():
        if one.sure and toolkit and not best_code(toolkit.archs, cc, asked.facts.architectures)[0].usable:
            text = f"{one.name} is compiled by nvcc {toolkit.version}, which makes no code that runs on {gpu.label}"
            remedies = (f"take an image whose toolkit knows {cc.sm}",)
            yield Finding(install.command.line, "arch-list", "error", text, remedies)


def _toolkit(stage: Stage, asked: Asked) -> Toolkit | None:
    """The toolkit of the image."""
    image = asked.image(stage)
    return toolkit_of(image.cuda if image else "", asked.catalogue.toolkits)


def nvcc(stage: Stage, asked: Asked) -> Iterator[Finding]:
    """What nvcc, or cmake for it, is told to compile for, against each GPU."""
    toolkit = _toolkit(stage, asked)
    pairs = [(m, gpu, gpu.cc) for m in asked.machines for gpu in m.gpus or () if gpu.cc is not None]
    # -arch=sm_NN replaces all -gencode options, so it is proposed only if there is one target.
    alone = len({cc for _, _, cc in pairs}) == 1
    for command in stage.commands:
        code = nvcc_code(command)
        code = cmake_code(command) if code is None else code
        for machine, gpu, cc in pairs if code is not None else ():
            judged = _judged(code or (), gpu, cc, machine, toolkit, asked)
            if judged:
                level, text, remedy = judged
                yield Finding(command.line, "nvcc-arch", level, text, (remedy or _remedy(command, cc, alone),))


def _judged(
    code: tuple[str, ...], gpu: Gpu, cc: ComputeCapability, machine: Machine, toolkit: Toolkit | None, asked: Asked
) -> tuple[Severity, str, str | None] | None:
    """Level and text, and the remedy if it is not to compile for the GPU as well; None if the code runs."""
    architectures = asked.facts.architectures
    # First what no option can change.
    if toolkit and not best_code(toolkit.archs, cc, architectures)[0].usable:
        remedy = f"take an image whose toolkit knows {cc.sm}"
        return "error", f"nvcc {toolkit.version} makes no code that runs on {gpu.label}", remedy
    if EVERY in code:
        return None
    if NATIVE in code:
        return "error", "native is the GPU of the build host, and a build sees none", None
    made = ", ".join(code)
    level, runs = best_code(code, cc, architectures)
    name = runs.name if runs else ""
    loads = ptx_loads(toolkit.version, machine.driver) if toolkit else None
    if not code:
        return "warning", f"nvcc has no architecture option: it compiles for its default, not for {gpu.label}", None
    if not level.usable:
        return "error", f"nvcc makes {made}, and no code that runs on {gpu.label}, which takes {cc.sm}", None
    if level is not Level.PTX:
        return None
    if loads is not None and loads.ok is False:
        return (
            "error",
            f"of {made}, only {name} is for {gpu.label}, and its driver does not load it: {loads.text}",
            None,
        )
    text = f"nvcc makes {made} and no {cc.sm}, which {gpu.label} takes: its driver compiles {name} at the first start"
    return "warning", text, None


def _remedy(command: Command, cc: ComputeCapability, alone: bool) -> str:
    """What to write; for one GPU, the short form instead of the short form, which cannot be combined with others."""
    number = cc.sm[3:]
    if command.program == "cmake":
        return f"-DCMAKE_CUDA_ARCHITECTURES={number}"
    options = {re.split("[= ]", word, maxsplit=1)[0] for word in command.words}
    if alone and options & {"-arch", "--gpu-architecture"} and not options & {"-code", "--gpu-code"}:
        return f"-arch={cc.sm}"
    return f"-gencode arch=compute_{number},code={cc.sm}"


def toolkit(stage: Stage, asked: Asked) -> Iterator[Finding]:
    """``torch.utils.cpp_extension`` refuses an nvcc of another CUDA major than torch's (rule 10)."""
    image = asked.image(stage)
    if image is None or not image.cuda:
        return
    provided = CudaVersion.parse(image.cuda)
    cuda: CudaVersion | None = None
    within = asked.within(stage)
    for install, own in asked.followed(stage):
        taken = asked.taken(install, "torch", within)
        variant = Variant.parse(taken.build.variant) if taken else None
        # A torch whose build is not known ends what is known of the torch before it.
        if install.names("torch"):
            cuda = variant.cuda if variant else None
        one = next(compiled(install, asked), None)
        if one and cuda and cuda.major != provided.major and own:
            text = f"{one.name} is compiled by nvcc {image.cuda}, that of {stage.root.image}, against a torch of CUDA "
            text += f"{cuda}, which torch refuses" + ("" if one.sure else " if it has GPU code")
            remedy = f"take a -devel image of CUDA {cuda}, or a torch of CUDA {provided.major}"
            yield Finding(install.command.line, "toolkit-mismatch", one.level, text, (remedy,))


CHECKS = (arch_list, nvcc, toolkit)

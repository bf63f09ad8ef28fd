"""Checks of what is compiled as an image is built: the architectures, nvcc's options and the toolkit of the image."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from envsolve.dockerfile.contents import sets_variables
from envsolve.dockerfile.model import Command, Finding, Severity, Stage, Unjudged
from envsolve.dockerfile.offers import Asked, Offer
from envsolve.dockerfile.sources import ARCH_LIST, Compiled, compiled_in, lacks_nvcc, lacks_torch, nvcc_in
from envsolve.facts.hardware import ArchName, Toolkit, toolkit_of
from envsolve.machine.model import Gpu, Machine
from envsolve.rules.nvidia.code import best_code
from envsolve.rules.nvidia.driver import ptx_loads
from envsolve.rules.nvidia.toolchain import CompilerFacts, archs_known, written_archs
from envsolve.rules.verdict import Level
from envsolve.values import Arch, ComputeCapability, CudaVersion, DriverVersion, Variant

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
    Code Generation": only ``-arch=sm_NN`` is short for its SASS and its PTX.
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
    """The code that cmake's ``-DCMAKE_CUDA_ARCHITECTURES`` makes; None if it is not given.

    Source: CMake documentation, ``CUDA_ARCHITECTURES``: a bare number is SASS and PTX, ``-real`` and ``-virtual`` one.
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
    gpus = {cc: gpu for _, gpu, cc in _targets(asked)}
    nvcc = nvcc_in(stage, asked)
    for one in compiled_in(stage, asked) if gpus else ():
        given = one.command.variables.get(one.variable) or "" if one.variable else ""
        # Without nvcc, a tree that nobody knows compiles no GPU code, unless somebody names the GPUs for it.
        if not (one.sure or nvcc or given):
            continue
        # An image that nobody knows may set the variables.
        level: Severity = one.level if asked.knows(stage) else "warning"
        yield from _not_forced(one, level)
        if one.variable is not None:
            known = toolkit_of(nvcc, asked.catalogue.toolkits)
            torch = asked.torch_at(stage, one.command)
            listed = (one.project and one.project.archs) or sets_variables(stage, asked)
            if not given and not listed:
                yield _unset(one, level, _remedy_for(one, "", torch, known, asked))
            elif given:
                yield from _listed(one, given, torch, known, asked)
            yield from _not_in_toolkit(one, gpus, known, asked)


def listed_code(one: Compiled, given: str, asked: Asked) -> tuple[str, ...] | None:
    """The code that the variable of a source makes; None if it cannot be read."""
    if one.variable == ARCH_LIST:
        return torch_code(given, asked.catalogue.arch_names)
    numbers = [word for word in re.split(r"[;,\s]+", given) if word]
    if not all(re.fullmatch(r"\d{2,3}[af]?", number) for number in numbers):
        return None
    return tuple(f"sm_{number}" for number in numbers) or None


def _targets(asked: Asked) -> list[tuple[Machine, Gpu, ComputeCapability]]:
    """Machines and their GPUs, lowest architecture first."""
    pairs = [(machine, gpu, gpu.cc) for machine in asked.machines for gpu in machine.gpus or () if gpu.cc is not None]
    return sorted(pairs, key=lambda pair: pair[2])


def _not_forced(one: Compiled, level: Severity) -> Iterator[Finding]:
    # Without a GPU, a build leaves its GPU code out unless such a variable is set.
    for name, value in one.project.variables.items() if one.project else ():
        if name.startswith("FORCE_") and one.command.variables.get(name, "0") in ("", "0"):
            text = f"{one.name} is compiled without its GPU code, because no GPU is visible during an image build"
            yield Finding(one.command.line, "cuda-not-forced", level, text, (f"ENV {name}={value}",))


def _unset(one: Compiled, level: Severity, remedy: str) -> Finding:
    text = f"{one.name} is compiled while {one.variable} is not set, and no GPU is visible during an image build"
    if not one.sure:
        text = f"{one.variable} is not set: if {one.name} has GPU code, it is not compiled for the target GPUs"
    return Finding(one.command.line, "arch-list-unset", level, text, (remedy,))


def _listed(one: Compiled, given: str, torch: Offer | None, toolkit: Toolkit | None, asked: Asked) -> Iterator[Finding]:
    """The listed GPUs, against nvcc, torch and each GPU."""
    code = listed_code(one, given, asked) or ()
    line, remedies = one.command.line, (_remedy_for(one, given, torch, toolkit, asked),)
    who = _refuses(one, code, torch, toolkit, asked)
    if who:
        yield Finding(line, "arch-list", one.level, f"{one.variable}={given}: {who}, so the build stops", remedies)
    for machine, gpu, cc in _targets(asked) if code and not who else ():
        level, runs = best_code(code, cc, asked.facts.architectures)
        if not level.usable:
            text = f"{one.variable}={given} produces no code that runs on {gpu.label}"
            yield Finding(line, "arch-list", one.level, text, remedies)
        elif level is Level.PTX and runs:
            loads = ptx_loads(toolkit.version, machine.driver) if toolkit else None
            fails = loads is not None and loads.ok is False
            why = loads.text if loads and fails else "the driver there must compile it at the first start"
            text = f"{one.variable}={given} produces only PTX ({runs.name}) for {gpu.label}, no machine code: {why}"
            yield Finding(line, "arch-list", one.level if fails else "warning", text, remedies)


def _refuses(
    one: Compiled, code: Sequence[str], torch: Offer | None, toolkit: Toolkit | None, asked: Asked
) -> str | None:
    """Which program does not know an entry, in words."""
    # Whoever knows sm_89 makes compute_89 as well.
    names = dict.fromkeys(name.replace("compute_", "sm_") for name in code)
    strange = next((name for name in names if toolkit and name not in toolkit.archs), None)
    if toolkit and strange:
        return f"nvcc {toolkit.version} does not know {strange}"
    version = torch.build.version if torch and one.variable == ARCH_LIST else ""
    extension = asked.catalogue.torch_extensions.get(version)
    alien = next((name for name in names if extension and _entry(name) not in extension.archs), None)
    return f"torch {version} does not know {alien}" if alien else None


def _remedy_for(one: Compiled, given: str, torch: Offer | None, toolkit: Toolkit | None, asked: Asked) -> str:
    """The list with the entries for the GPUs that nvcc and torch know."""
    ccs = {cc for _, _, cc in _targets(asked)}
    version, cuda = torch.build.version if torch else None, _cuda_of(torch)
    cuda = toolkit.cuda_version if toolkit else cuda
    facts = CompilerFacts.of(asked.catalogue)
    if one.variable != ARCH_LIST:
        own = written_archs(one.project, ccs, facts) if one.project else None
        return (
            f'ENV {one.variable}="{own}"'
            if own
            else f"set {one.variable} as described in the documentation of {one.name}"
        )
    served = archs_known(version, str(cuda) if cuda else None, ccs, facts)
    if served is None:
        return f"compile for these GPUs with a newer torch and toolkit: envsolve plan torch {one.name} --target ..."
    kept = [name for name in listed_code(one, given, asked) or () if name.startswith("sm_")]
    numbers = {*served, *(_entry(name) for name in kept if toolkit is None or name in toolkit.archs)}
    return f'ENV {ARCH_LIST}="{";".join(sorted(numbers, key=DriverVersion.parse))}"'


def _cuda_of(torch: Offer | None) -> CudaVersion | None:
    variant = Variant.parse(torch.build.variant) if torch else None
    return variant.cuda if variant else None


def _entry(name: str) -> str:
    """``9.0a`` for ``sm_90a``."""
    arch = Arch.parse(name)
    return f"{arch.cc}{arch.suffix}"


def _not_in_toolkit(
    one: Compiled, gpus: Mapping[ComputeCapability, Gpu], toolkit: Toolkit | None, asked: Asked
) -> Iterator[Finding]:
    """The toolkit of the image may know no code for a GPU, whatever is listed."""
    for cc, gpu in gpus.items():
        if one.sure and toolkit and not best_code(toolkit.archs, cc, asked.facts.architectures)[0].usable:
            text = f"{one.name} is compiled by nvcc {toolkit.version}, which cannot compile for {gpu.label}"
            remedies = (f"use an image with a CUDA toolkit that supports {cc.sm}",)
            yield Finding(one.command.line, "arch-list", "error", text, remedies)


def isolation(stage: Stage, asked: Asked) -> Iterator[Finding]:
    """A build in an environment of its own does not see the torch of the image.

    Source: pip's changelog: from 25.3 on every build is isolated; before, only those of trees with a pyproject.toml.
    """
    for one in compiled_in(stage, asked):
        if one.isolated and _needs_torch(one) and (one.isolated == "uv" or _new_pip(stage, asked)):
            text = (
                f"{one.isolated} builds {one.name} in an isolated environment, so it is not compiled against the "
                "installed torch"
            )
            yield Finding(one.command.line, "build-isolation", "warning", text, ("add --no-build-isolation",))


def _needs_torch(one: Compiled) -> bool:
    required = one.project.build_requires if one.project else ()
    return any(re.match(r"torch\b(?!-)", line) for line in required)


def torch_first(stage: Stage, asked: Asked) -> Iterator[Finding]:
    """The build of an extension of torch imports torch, so torch must be installed by an earlier command.

    pip builds the metadata of every source before it installs anything.
    """
    for one in compiled_in(stage, asked):
        level = lacks_torch(stage, one.command, asked) if _needs_torch(one) else None
        if level:
            same = any(install.names("torch") for install in asked.installs((one.command,)))
            when = "pip installs torch later in the same command" if same else "no earlier line installs torch"
            text = f"the build of {one.name} imports torch, but {when}"
            remedy = f"install torch in an earlier RUN, then: pip install --no-build-isolation {one.name}"
            yield Finding(one.command.line, "torch-not-installed", level, text, (remedy,))


def _new_pip(stage: Stage, asked: Asked) -> bool:
    """Whether pip is as new as its Python allows: it is upgraded, or comes from its own installer."""
    python = asked.within(stage).python
    if python and DriverVersion.parse(python) < (3, 9):
        return False
    upgraded = any(one.upgrade and one.names("pip") for one in asked.installs(stage.history()))
    return upgraded or any(word.endswith("/get-pip.py") for command in stage.history() for word in command.words)


def nvcc(stage: Stage, asked: Asked) -> Iterator[Finding]:
    """The targets of nvcc, or of cmake for it, against each GPU."""
    toolkit = toolkit_of(nvcc_in(stage, asked), asked.catalogue.toolkits)
    pairs = _targets(asked)
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
    """Level and text, and the fix if it is not to compile for the GPU as well; None if the code runs."""
    architectures = asked.facts.architectures
    # First what no option can change.
    if toolkit and not best_code(toolkit.archs, cc, architectures)[0].usable:
        remedy = f"use an image with a CUDA toolkit that supports {cc.sm}"
        return "error", f"nvcc {toolkit.version} cannot compile for {gpu.label}", remedy
    if EVERY in code:
        return None
    if NATIVE in code:
        return "error", "'native' means the GPU of the build host, but no GPU is visible during an image build", None
    made = ", ".join(code)
    level, runs = best_code(code, cc, architectures)
    name = runs.name if runs else ""
    loads = ptx_loads(toolkit.version, machine.driver) if toolkit else None
    if not code:
        text = f"nvcc has no architecture option, so it compiles for its default architecture, not for {gpu.label}"
        return "warning", text, None
    if not level.usable:
        return "error", f"nvcc compiles for {made}; none of this code runs on {gpu.label}, which requires {cc.sm}", None
    if level is not Level.PTX:
        return None
    if loads is not None and loads.ok is False:
        return (
            "error",
            f"nvcc compiles for {made}; for {gpu.label} only {name} is usable, and the driver of that machine cannot "
            f"load it: {loads.text}",
            None,
        )
    text = (
        f"nvcc compiles for {made}, but not for {cc.sm} ({gpu.label}): the driver there must compile {name} at the "
        "first start"
    )
    return "warning", text, None


def _remedy(command: Command, cc: ComputeCapability, alone: bool) -> str:
    """The corrected option. For one GPU it replaces a short form, which cannot be combined with others, by another."""
    number = cc.sm[3:]
    if command.program == "cmake":
        return f"-DCMAKE_CUDA_ARCHITECTURES={number}"
    options = {re.split("[= ]", word, maxsplit=1)[0] for word in command.words}
    if alone and options & {"-arch", "--gpu-architecture"} and not options & {"-code", "--gpu-code"}:
        return f"-arch={cc.sm}"
    return f"-gencode arch=compute_{number},code={cc.sm}"


def toolkit(stage: Stage, asked: Asked) -> Iterator[Finding]:
    """``torch.utils.cpp_extension`` refuses an nvcc of another CUDA major than torch's (rule 10), or none."""
    version = nvcc_in(stage, asked)
    for one in compiled_in(stage, asked) if lacks_nvcc(stage, asked) else ():
        if one.sure and one.project:
            yield _no_nvcc(one, stage, _cuda_of(asked.torch_at(stage, one.command)))
    provided = CudaVersion.parse(version) if version else None
    for one in compiled_in(stage, asked) if provided else ():
        cuda = _cuda_of(asked.torch_at(stage, one.command))
        if cuda and provided and cuda.major != provided.major:
            text = f"{one.name} is compiled by nvcc {version} of {stage.root.image}, but its torch is built for CUDA "
            text += f"{cuda}; torch refuses another CUDA major" + ("" if one.sure else f" if {one.name} has GPU code")
            remedy = f"use a -devel image of CUDA {cuda}, or a torch for CUDA {provided.major}"
            yield Finding(one.command.line, "toolkit-mismatch", one.level, text, (remedy,))


def _no_nvcc(one: Compiled, stage: Stage, cuda: CudaVersion | None) -> Finding:
    text, level = f"{one.name} has to be compiled, but {stage.root.image} has no nvcc and no CUDA headers", one.level
    # Their setup.py downloads a wheel of the project's release page, if one fits torch and Python.
    variables = one.project.variables if one.project else {}
    forced = next((name for name in variables if name.endswith("_FORCE_BUILD")), None)
    if forced and one.command.variables.get(forced, "FALSE") != "TRUE":
        text, level = (
            f"{text}; the build succeeds only if the project publishes a prebuilt wheel for this torch and Python",
            "warning",
        )
    remedy = f"use a -devel image of CUDA {cuda}" if cuda else "use a -devel image, such as those of nvidia/cuda"
    return Finding(one.command.line, "toolkit-missing", level, text, (remedy,))


# Programs that run a compiler by files of their own.
_BUILDERS = frozenset({"make", "ninja", "cmake", "cargo", "bazel", "bazelisk", "meson", "scons"})


def builders_unjudged(stage: Stage, asked: Asked) -> Iterator[Unjudged]:
    """The first program of a stage that may run its nvcc, unless its line names the GPUs."""
    if not nvcc_in(stage, asked):
        return
    named = {one.line for one in stage.commands if cmake_code(one) is not None or nvcc_code(one) is not None}
    for command in stage.commands:
        if command.program in _BUILDERS and len(command.words) > 1 and command.line not in named:
            yield Unjudged(command.line, f"{command.program}: it is not known for which GPUs it compiles")
            return


CHECKS = (arch_list, isolation, torch_first, nvcc, toolkit)

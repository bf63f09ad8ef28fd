"""Compiling an extension again, for the GPUs and the installed torch, and finding its sources in a report."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from envsolve.diagnose.model import Fix, public
from envsolve.diagnose.scene import Scene
from envsolve.diagnose.signatures import Match
from envsolve.environment.model import Environment
from envsolve.machine.model import Gpu
from envsolve.rules.nvidia.toolchain import CompilerFacts
from envsolve.rules.nvidia.toolchain import arch_list as entries_for
from envsolve.toolchain.model import source_project

_SOURCE = re.compile(r"git\+https?://[\w./@#&=?%+-]{1,200}")
_HERE = re.compile(r"pip3? install\b[^|&;#\n]{0,120}?(?<!\S)(?P<path>\.{1,2}(?:/[\w./-]*)?(?:\[[\w,]*\])?)(?!\S)")


_NVCC = re.compile(r"(?:^|[\s/])nvcc\s[^|&;]{0,400}\.cu\b")
_CMAKE_ARGS = re.compile(r"CMAKE_ARGS=[\"']?((?:-D[\w.]+=[^\s\"']+ ?)*)[\"']? ?")


def rebuild(scene: Scene, gpus: Sequence[Gpu]) -> tuple[Fix, ...]:
    """The command that builds the extension for the GPUs; empty if the GPUs are not known."""
    listed = archs_for(scene, gpus)
    what = source_of(scene)
    if not listed:
        text = (
            "Build the extension again with the GPUs named: TORCH_CUDA_ARCH_LIST takes their compute capabilities, "
            "such as 7.0;8.0 (nvidia-smi --query-gpu=compute_cap --format=csv shows them)."
        )
        listed = "..." if _without_gpu(scene) else _OWN.format("sort -u")
    else:
        text = f"Build the extension again for {listed.replace(';', ' and ')}, wherever it is built."
    if scene.mentions("dockerfile", "\nrun ", "docker build"):
        text += " In a Dockerfile, set TORCH_CUDA_ARCH_LIST with ENV before the RUN line."
    by_cmake = not scene.about_torch and scene.mentions("cmake", "ggml", "ninja: build stopped")
    if by_cmake or scene.mentions("cmake_cuda_architectures", "cuda_architectures"):
        text = "Pass the GPU architectures to CMake instead of native, and use a clean build tree."
        numbers = _OWN.format("tr -d . | sort -u") if listed.startswith("$(") else listed.replace(".", "")
        numbers = "80;90" if listed == "..." else numbers
        installs = [seen.value for seen in scene.report.commands if "pip install" in seen.value]
        if installs:
            arguments, again = _CMAKE_ARGS.search(installs[-1]), _CMAKE_ARGS.sub("", installs[-1]).strip()
            given = f"{arguments[1]} " if arguments else ""
            if "==" not in again:  # releases of 2024 and later refuse the old names
                given = re.sub(r"-DLLAMA_(?:CUBLAS|CUDA)=", "-DGGML_CUDA=", given)
            return (Fix(text, f'CMAKE_ARGS="{given}-DCMAKE_CUDA_ARCHITECTURES={numbers}" {again}'),)
        return (Fix(text, f'cmake -DCMAKE_CUDA_ARCHITECTURES="{numbers}" ...'),)
    if runs_nvcc(scene) or (not scene.about_torch and scene.mentions("nvcc -", "nvcc ", ".cu ")):
        flags = gencode(listed if listed[0].isdigit() else "XY")
        return (Fix("Compile it again for your GPU instead of the architecture that was given.", f"nvcc {flags} ..."),)
    command = f'TORCH_CUDA_ARCH_LIST="{listed}" pip install --no-build-isolation --no-cache-dir --force-reinstall'
    return (Fix(text, f"{command} --no-deps {what}"),)


#: The compute capabilities of the machine's own GPUs, as a list.
_OWN = "$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | {} | paste -sd';')"


def _without_gpu(scene: Scene) -> bool:
    """Whether the build runs where no GPU can be asked: in an image's build, or with another shell."""
    return scene.os == "windows" or scene.mentions("dockerfile", "\nrun ", "docker build", "login node")


def runs_nvcc(scene: Scene) -> bool:
    """Whether a command of the report compiles a file with nvcc, whatever else is installed there."""
    return any(_NVCC.search(seen.value) for seen in scene.report.commands)


def gencode(listed: str) -> str:
    """nvcc's options for the entries of TORCH_CUDA_ARCH_LIST."""
    named = listed.replace(".", "").split(";")
    return " ".join(f"-gencode arch=compute_{number},code=sm_{number}" for number in named)


def arch_list(gpus: Sequence[Gpu]) -> str:
    """``7.0;8.0``: GPUs in the form of TORCH_CUDA_ARCH_LIST; empty if none is known."""
    return ";".join(str(cc) for cc in sorted({gpu.cc for gpu in gpus if gpu.cc}))


def archs_for(scene: Scene, gpus: Sequence[Gpu]) -> str:
    """The architecture list, with only entries that the installed torch and its nvcc know (rule 10)."""
    build = scene.torch.build if scene.torch else None
    if build is None or build.cuda is None:
        return arch_list(gpus)
    entries, _ = entries_for(build, {gpu.cc for gpu in gpus if gpu.cc}, CompilerFacts.of(scene.catalogue))
    return entries or arch_list(gpus)


def extension_named(scene: Scene, line: str = "", match: Match | None = None) -> str | None:
    """The project of the library or module that an error came from, otherwise the first that is named."""
    modules, low = scene.catalogue.extension_modules, line.lower()
    module = importer(scene, match) if match else None
    named = (one.package for word in (low, (module or "").lower()) for one in modules if word and one.name in word)
    return next(named, None) or next((one.package for one in modules if scene.mentions(one.name)), None)


_MODULE_FILE = re.compile(r"(?:site|dist)-packages[/\\]+(\w+)[/\\]")
_ABOVE, _BELOW = 40, 8  # lines of a traceback


def importer(scene: Scene, match: Match) -> str | None:
    """The module whose file a traceback names nearest to an error."""
    text = scene.report.text.splitlines()
    above, below = text[max(0, match.line - _ABOVE) : match.line], text[match.line : match.line + _BELOW]
    names = (name for line in (*reversed(above), *below) for name in reversed(_MODULE_FILE.findall(line)))
    return next(names, None)


def build_variables(scene: Scene, package: str) -> str:
    """The variables that make a package compile, and not fetch a wheel, written before a command."""
    project = source_project(package, None, scene.catalogue.source_projects)
    return "".join(f"{name}={value} " for name, value in (project.variables if project else {}).items())


def source_of(scene: Scene) -> str:
    """The source install in the report, ``git+https://...`` or ``.``, otherwise the extension that it names."""
    if match := _SOURCE.search(scene.report.text):
        # A shell takes # for a comment, & and ? for its own.
        return f'"{match[0]}"' if set(match[0]) & set("#&?") else match[0]
    for seen in scene.report.commands:
        if match := _HERE.search(seen.value):
            return match["path"]
    name = extension_named(scene)
    if name is None:
        return "."
    version = public(scene.report.installed, name)
    return f"--no-binary {name} {name}" + (f"=={version}" if version else "")


def rebuild_package(environment: Environment, scene: Scene, package: str) -> Iterator[Fix]:
    """Compile a package again in the environment, against the torch that is installed and for the available GPUs."""
    installed = environment.distribution(package)
    version = (installed.version or "").partition("+")[0] if installed else ""
    listed = arch_list(scene.gpus)
    text = "Compile it again against this torch" + (f", for {listed.replace(';', ' and ')}" if listed else "") + "."
    variable = f'TORCH_CUDA_ARCH_LIST="{listed}" ' if listed else ""
    what = f"{package}=={version}" if version else package
    options = f"--force-reinstall --no-deps --no-build-isolation --no-cache-dir --no-binary {package}"
    yield Fix(text, f"{variable}pip install {options} {what}")


#: A library of a package that Python finds in its source tree: a wheel's lies in site-packages.
_IN_TREE = re.compile(r"(?<![\w./-])(?P<tree>(?:/|<)[\w.<>/-]{1,160})/(?P<package>\w+)/(?P<module>[\w.-]+)\.so(?=\W)")


def telling_line(scene: Scene, match: Match) -> str:
    """The line of an error that has the path of the library, if another one than the first repeats it."""
    symbol = match.groups.get("symbol", "")[:60]
    lines = scene.report.text.splitlines() if symbol and "/" not in match.quote.partition(symbol)[0] else []
    return next(
        (line for line in lines if "/" in line.partition(symbol)[0] and ".so" in line and symbol in line), match.quote
    )


def source_tree(scene: Scene, line: str) -> str | None:
    """The directory of the sources whose compiled library a line names; None if it is an installed wheel's."""
    found = _IN_TREE.search(line + " ")
    if found is None or re.search(r"(?:site|dist)-packages|/usr/|/opt/conda|/lib/python", found["tree"]):
        return None
    if nested := re.match(r"(.+?)/\w+/(?:csrc|_ext)(?:/|$)", f"{found['tree']}/{found['package']}"):
        return nested[1]
    if not found["module"].startswith("_"):
        return f"{found['tree']}/{found['package']}"  # a module of its own lies beside the setup.py that built it
    return re.sub(r"/python$", "", found["tree"])

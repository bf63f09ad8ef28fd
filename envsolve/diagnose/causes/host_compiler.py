"""``host-compiler-missing``, ``host-compiler-unsupported`` and ``python-headers-missing``."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envsolve.diagnose.causes._shared import gcc_command, lines, system_install
from envsolve.diagnose.model import Finding, Grounds, Remedy, RuledOut
from envsolve.diagnose.remedies.tools import gcc_range
from envsolve.diagnose.scene import Scene
from envsolve.diagnose.signatures import Match
from envsolve.facts.hardware import Toolkit, toolkit_of

_TOO_NEW = (
    "compiler-bounds",
    "gcc-too-new",
    "gcc-headers-nvcc",
    "msvc-unsupported",
    "clang-unsupported",
    "compiler-abi",
)
#: What the error says of the years of Visual Studio that nvcc takes.
_YEARS = re.compile(r"versions between \d{4} and (\d{4})")
_STANDARD = ("cxx-standard", "cxx-option")

_MISSING = (
    "Some code is compiled on the spot: Triton builds a small C module at first use, and extensions are C++. That "
    "needs a C compiler on the machine that runs it, which slim and runtime images leave out. No Python package has "
    "to change."
)
_HEADERS = (
    "What is compiled on the spot for Python includes Python.h, which distributions put into a package of its own. The "
    "interpreter in use has no headers beside it. "
    "They must be of the very version of that interpreter."
)
_UNSUPPORTED = (
    "nvcc hands the host code to a C++ compiler and takes only those that it was made for: {limit}. The compiler "
    "found is {have}. A second, older compiler beside the system's is enough, named to the build; the check must not "
    "be switched off, since what follows it fails in worse ways."
)
_TOO_OLD_STANDARD = (
    "The headers of {torch} need C++{std}, and the extension is compiled with an older standard: its build files "
    "pass an older -std option, or the compiler does not know the newer one. Torch raises the standard from time to "
    "time, and releases of an extension from before do not know. A release of the extension for this torch, or the "
    "option given by hand, mends it."
)


def weigh(scene: Scene) -> Iterator[Finding | RuledOut]:
    """Each is stated by the tool that misses it; the limits are the catalogue's."""
    if match := scene.first("no-c-compiler-triton", "no-compiler", "compiler-without-passes", "msvc-missing"):
        yield Finding("host-compiler-missing", Grounds.STATED, _MISSING, lines(match), tuple(_compiler(scene, match)))
    if match := scene.first("python-h"):
        yield Finding("python-headers-missing", Grounds.STATED, _HEADERS, lines(match), tuple(_headers(scene)))
    if match := scene.first(*_TOO_NEW):
        yield _unsupported(scene, match)
    elif match := scene.first(*_STANDARD):
        yield _standard(scene, match)


def _compiler(scene: Scene, match: Match) -> Iterator[Remedy]:
    if match.signature.id == "msvc-missing" or scene.os == "windows":
        yield Remedy(
            "Install the Microsoft C++ Build Tools.",
            'winget install Microsoft.VisualStudio.2022.BuildTools --override "--add '
            'Microsoft.VisualStudio.Workload.VCTools"',
        )
        return
    install = system_install(scene)
    packages = "gcc gcc-c++" if "dnf" in install else "gcc" if "pacman" in install else "build-essential"
    where = " in the image that runs the program" if scene.in_container else ""
    update = "apt-get update && " if install.startswith("apt-get") else ""
    yield Remedy(f"Install a C compiler (gcc){where}.", f"{update}{install} {packages}")
    yield Remedy(
        "Without root, conda has one; tell the program where it is.",
        "conda install -c conda-forge c-compiler cxx-compiler",
    )
    yield Remedy("If there is one under another name, name it.", "export CC=/path/to/gcc CXX=/path/to/g++")


def _headers(scene: Scene) -> Iterator[Remedy]:
    install = system_install(scene)
    python = scene.python
    if scene.os == "windows":
        yield Remedy(
            "An embedded Python, as portable packages bring it, has no headers: copy the folders include and libs of a "
            f"whole Python {python or 'of the very same version'} from python.org beside its python.exe.",
            'xcopy /e /i "%LOCALAPPDATA%\\Programs\\Python\\Python'
            f'{(python or "3.X").replace(".", "")}\\include" include',
        )
        return
    if "dnf" in install:
        name = f"python{python}-devel" if python else "python3-devel"
    else:
        name = f"python{python}-dev" if python else "python3-dev"
    yield Remedy(
        f"Install the headers of the interpreter in use{f', Python {python}' if python else ''}.", f"{install} {name}"
    )
    yield Remedy(
        "Without root, use an interpreter that brings its headers: those of uv and conda do.",
        f"uv venv --python-preference only-managed --python {python or '3.12'}",
    )


def _unsupported(scene: Scene, match: Match) -> Finding:
    toolkit = _toolkit(scene, match)
    limit, have = _limit(match, toolkit), _have(scene, match)
    evidence = (
        *lines(match),
        *(
            (f"the catalogue: CUDA {toolkit.version} takes gcc up to {toolkit.gcc_max}",)
            if toolkit and toolkit.gcc_max and match.signature.id != "msvc-unsupported"
            else ()
        ),
    )
    grounds = Grounds.CONFIRMED if toolkit else Grounds.STATED
    text = _UNSUPPORTED.format(limit=limit, have=have)
    found = frozenset({"toolkit-headers-missing"})
    return Finding("host-compiler-unsupported", grounds, text, evidence, tuple(_older(scene, match, toolkit)), found)


def _toolkit(scene: Scene, match: Match) -> Toolkit | None:
    """The toolkit whose limit holds: named by the error, else that of the nvcc in use."""
    version = match.group("cuda") or (scene.report.nvcc.value if scene.report.nvcc else None)
    if version is None and scene.machine.toolkits and scene.machine.toolkits[0].version:
        version = scene.machine.toolkits[0].version
    return toolkit_of(version, scene.catalogue.toolkits)


def _gcc_max(match: Match, toolkit: Toolkit | None) -> int | None:
    if below := match.group("below"):
        return int(below) - 1
    stated = match.group("max")
    return int(stated) if stated else toolkit.gcc_max if toolkit else None


def _limit(match: Match, toolkit: Toolkit | None) -> str:
    if match.signature.id == "msvc-unsupported":
        years = _YEARS.search(match.quote)
        who = f"that of CUDA {toolkit.version} takes" if toolkit else "this one takes"
        return f"{who} Visual Studio up to {years[1]}" if years else f"{who} only those of its own time"
    newest = _gcc_max(match, toolkit)
    who = f"that of CUDA {toolkit.version} takes" if toolkit else "this one takes"
    return f"{who} gcc up to {newest}" if newest else f"{who} only compilers of its own time"


def _have(scene: Scene, match: Match) -> str:
    if match.group("compiler"):
        return f"{match.groups['compiler']} {match.groups.get('have', '')}".strip()
    known = (scene.machine.host_compilers or (None,))[0]
    return f"{known.kind} {known.version}" if known and known.version else "another one"


def _older(scene: Scene, match: Match, toolkit: Toolkit | None) -> Iterator[Remedy]:
    if match.signature.id == "msvc-unsupported":
        yield _older_msvc(match, toolkit)
        return
    known = gcc_range(scene)
    newest = _gcc_max(match, toolkit) or (known.last if known else None) or 11
    if match.signature.id == "gcc-headers-nvcc":
        # The compiler passed nvcc's check and its headers did not: the headers of gcc 11 are the first that break.
        newest = min(newest, 10)
    conda = scene.mentions("conda", "mamba", "pixi")
    in_conda = Remedy(
        f"Install gcc {newest} into the conda environment: g++ must be below {newest + 1}.",
        f'conda install -c conda-forge "gcc_linux-64<{newest + 1}" "gxx_linux-64<{newest + 1}"',
    )
    beside = Remedy(
        f"Install gcc-{newest} beside the system's compiler, and name it to the build.",
        gcc_command(scene, newest),
    )
    yield from (in_conda, beside) if conda else (beside, in_conda)
    if scene.first("cuda-library-link") and conda:
        yield Remedy(
            "Conda's toolkit has its libraries in lib, where torch's build looks in lib64: name the folder to the "
            "linker.",
            "export CUDA_HOME=$CONDA_PREFIX LIBRARY_PATH=$CONDA_PREFIX/lib:$LIBRARY_PATH",
        )


def _older_msvc(match: Match, toolkit: Toolkit | None) -> Remedy:
    """The toolset below the limit: ``_MSC_VER`` 1940 begins with toolset 14.40, so that 14.39 is the last below it."""
    years = _YEARS.search(match.quote)
    if toolkit and toolkit.msvc_below:
        last = f"14.{toolkit.msvc_below - 1901}"
        text = f"Install an MSVC toolset up to {last} beside the new one, and build in its prompt."
        return Remedy(text, f"vcvarsall.bat x64 -vcvars_ver={last}")
    if years:
        text = f"Install the Build Tools of Visual Studio {years[1]} beside the newer one, and build in their prompt."
        return Remedy(text, f"winget install Microsoft.VisualStudio.{years[1]}.BuildTools")
    return Remedy("Install the Build Tools of an older Visual Studio beside the newer one, and build in their prompt.")


def _standard(scene: Scene, match: Match) -> Finding:
    stated = match.group("std", "need", "other", "nvcc") or ""
    std = stated if stated.isdigit() else "17"
    torch = scene.torch.label if scene.torch else "this torch"
    package = re.search(r"pip3? install (?:-\S+ )*([A-Za-z][\w.-]*)", scene.report.text)
    name = package[1] if package else "the extension"
    standard = scene.catalogue.cxx_standards.get(int(std))
    gcc = (standard.gcc_min if standard else None) or 11
    remedies = [
        Remedy(
            f"Install a newer release of {name}, made for {torch}.",
            f"pip install --no-build-isolation --upgrade {name}" if package else None,
        ),
        Remedy(
            f"Or give the standard by hand, with gcc {gcc} or newer.",
            f'CXXFLAGS="-std=c++{std}" NVCC_APPEND_FLAGS="-std=c++{std}" pip install --no-build-isolation '
            f"{package[1] if package else '.'}",
        ),
        Remedy(
            f"If the compiler does not know the option, install a newer one: gcc {gcc} and later know C++{std}.",
            gcc_command(scene, gcc),
        ),
    ]
    text = _TOO_OLD_STANDARD.format(torch=torch, std=std)
    return Finding("host-compiler-unsupported", Grounds.STATED, text, lines(match), tuple(remedies))

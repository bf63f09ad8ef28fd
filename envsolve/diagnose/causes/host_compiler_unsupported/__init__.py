"""``host-compiler-unsupported``: a C++ compiler beyond nvcc's limit, or too old for the standard."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envsolve.diagnose.causes._shared import Cause, gcc_command, lines
from envsolve.diagnose.model import Finding, Fix, Grounds
from envsolve.diagnose.scene import Scene
from envsolve.diagnose.signatures import Match
from envsolve.diagnose.tool_fixes import gcc_range
from envsolve.environment.model import release
from envsolve.facts.hardware import Toolkit

CAUSE = Cause.of(__name__)
_QUOTED_CMAKE = re.compile(r"`(cmake [^`\n]{1,200})`")
#: What the error says of the years of Visual Studio that nvcc supports.
_YEARS = re.compile(r"versions between \d{4} and (\d{4})")


def from_report(scene: Scene) -> Iterator[Finding]:
    """The compilers state it; the limits are the catalogue's."""
    if match := CAUSE.first(scene, "libc"):
        yield from _libc(scene, match)
    elif match := CAUSE.first(scene):
        yield _unsupported(scene, match)
    elif match := CAUSE.first(scene, "standard"):
        yield _standard(scene, match)


def _libc(scene: Scene, match: Match) -> Iterator[Finding]:
    """glibc and the toolkit declare a mathematical function in two ways."""
    name = (match.group("function", "declared") or "").removeprefix("sinc").removesuffix("f")
    clash = next((c for c in scene.catalogue.header_clashes if name in c.functions), None)
    if clash is None:
        return
    first = clash.libc.rpartition(" ")[2]
    which = f", here CUDA {scene.nvcc}" if scene.nvcc else ""
    fixes = (CAUSE.fix("newer-toolkit", cuda=clash.fixed), CAUSE.fix("older-libc", libc=first))
    libc = scene.platform.libc
    contradicted = libc and release(libc.rpartition(" ")[2]) < release(first)
    grounds = Grounds.SUGGESTED if contradicted else Grounds.CONFIRMED if libc else Grounds.STATED
    evidence = (*lines(match), *([f"the report: {libc}"] if libc else []))
    yield CAUSE.finding("libc", grounds, evidence, fixes, function=name, libc=first, which=which)


def _unsupported(scene: Scene, match: Match) -> Finding:
    toolkit = _toolkit(scene, match)
    shown = toolkit and toolkit.gcc_max and match.signature.id != "msvc-unsupported"
    limit = CAUSE.words("limit", cuda=toolkit.version, newest=toolkit.gcc_max) if toolkit and shown else None
    return CAUSE.finding(
        "unsupported",
        Grounds.CONFIRMED if toolkit else Grounds.STATED,
        (*lines(match), *filter(None, [limit])),
        _older(scene, match, toolkit),
        limit=_limit(match, toolkit),
        have=_have(scene, match),
    )


def _toolkit(scene: Scene, match: Match) -> Toolkit | None:
    """The toolkit whose limit holds: named by the error, otherwise that of the nvcc in use."""
    version = match.group("cuda") or scene.nvcc
    if version is None and scene.machine.toolkits:
        version = scene.machine.toolkits[0].version
    return scene.toolkit_known(version)


def _gcc_max(match: Match, toolkit: Toolkit | None) -> int | None:
    if below := match.group("below"):
        return int(below) - 1
    stated = match.group("max")
    return int(stated) if stated else toolkit.gcc_max if toolkit else None


def _limit(match: Match, toolkit: Toolkit | None) -> str:
    nvcc = f"that of CUDA {toolkit.version}" if toolkit else "this one"
    years = _YEARS.search(match.quote)
    if match.signature.id == "msvc-unsupported" and years:
        return CAUSE.words("visual-studio", nvcc=nvcc, newest=years[1])
    newest = None if match.signature.id == "msvc-unsupported" else _gcc_max(match, toolkit)
    return CAUSE.words("gcc" if newest else "own-time", nvcc=nvcc, newest=newest)


def _have(scene: Scene, match: Match) -> str:
    if match.group("compiler"):
        return f"{match.groups['compiler']} {match.groups.get('have', '')}".strip()
    known = (scene.machine.host_compilers or (None,))[0]
    return f"{known.kind} {known.version}" if known and known.version else "another one"


def _older(scene: Scene, match: Match, toolkit: Toolkit | None) -> Iterator[Fix]:
    if match.signature.id == "msvc-unsupported":
        yield _older_msvc(match, toolkit)
        return
    known = gcc_range(scene)
    newest = _gcc_max(match, toolkit) or (known.last if known else None) or 11
    if match.signature.id == "gcc-headers-nvcc":
        # The compiler passed nvcc's check and its headers did not: the headers of gcc 11 are the first that break.
        newest = min(newest, 10)
    conda = scene.mentions_conda
    in_conda = CAUSE.fix("conda", newest=newest, below=newest + 1)
    beside = CAUSE.fix("beside", newest=newest, command=gcc_command(scene, newest) + _again(scene))
    yield from (in_conda, beside) if conda else (beside, in_conda)
    if scene.first("cuda-library-link") and conda:
        yield CAUSE.fix("conda-libraries")


def _again(scene: Scene) -> str:
    """CMake's commands of the report on a new build tree: the old one keeps the compiler that it found first."""
    commands = [seen.value for seen in scene.report.commands if seen.value.startswith("cmake ")]
    commands = commands or _QUOTED_CMAKE.findall(scene.report.text)
    if not commands or scene.mentions("pip install", "pip3 install"):
        return ""
    return " && rm -rf build && " + " && ".join(dict.fromkeys(commands[:2]))


def _older_msvc(match: Match, toolkit: Toolkit | None) -> Fix:
    """The toolset below the limit: ``_MSC_VER`` 1940 begins with toolset 14.40, so that 14.39 is the last below it."""
    if toolkit and toolkit.msvc_below:
        return CAUSE.fix("toolset", last=f"14.{toolkit.msvc_below - 1901}")
    years = _YEARS.search(match.quote)
    return CAUSE.fix("build-tools", year=years[1]) if years else CAUSE.fix("older-build-tools")


def _standard(scene: Scene, match: Match) -> Finding:
    stated = match.group("std", "need", "other", "nvcc") or ""
    std = stated if stated.isdigit() else "17"
    torch = scene.torch.label if scene.torch else "this torch"
    named = re.search(r"pip3? install (?:-\S+ )*([A-Za-z][\w.-]*)", scene.report.text)
    package = named[1] if named else None
    standard = scene.catalogue.cxx_standards.get(int(std))
    # gcc 11 is the first that compiles C++17 by default.
    gcc = (standard.gcc_min if standard else None) or 11
    fixes = (
        CAUSE.fix("newer-package" if package else "newer-extension", package=package, torch=torch),
        CAUSE.fix("standard", gcc=gcc, std=std, package=package or "."),
        CAUSE.fix("newer-gcc", gcc=gcc, std=std, command=gcc_command(scene, gcc)),
    )
    return CAUSE.finding("standard", Grounds.STATED, lines(match), fixes, explains=(), torch=torch, std=std)

"""What a missing symbol or library shows about the torch that an extension was compiled for."""

from __future__ import annotations

import re
from collections.abc import Iterator

from packaging.specifiers import SpecifierSet

from envsolve.advice.torch import ready_wheel, wheel_torches
from envsolve.diagnose.causes._shared import Cause, lines, torch_evidence
from envsolve.diagnose.causes.mixed_flavours.packages import of_other_vendor
from envsolve.diagnose.fixes import pair_with, self_built
from envsolve.diagnose.model import Finding, Fix, Grounds, public
from envsolve.diagnose.rebuilding import build_variables, extension_named, source_of, source_tree, telling_line
from envsolve.diagnose.scene import Scene
from envsolve.diagnose.signatures import Match
from envsolve.toolchain.model import source_project

CAUSE = Cause("mixed-flavours")
#: Companions that are released with each torch.
_CLOSE = ("torchvision", "torchaudio")

_WHEEL = re.compile(r"[\w.]{1,80}-[\w.+]{1,80}cxx11abi(?:TRUE|FALSE)[\w.-]{1,120}\.whl", re.IGNORECASE)
_MADE_FOR = re.compile(r"torch(\d+\.\d+)", re.IGNORECASE)
_MINOR = re.compile(r"\d+\.\d+")


def from_linker(scene: Scene) -> Iterator[Finding]:
    """An extension looks for a symbol or a library that this torch does not have."""
    symbol, library = CAUSE.first(scene, "symbol"), CAUSE.first(scene, "library")
    runtime, companion = CAUSE.first(scene, "runtime"), CAUSE.first(scene, "companion")
    evidence = (*lines(symbol, library, runtime, companion), *torch_evidence(scene))
    if symbol:
        yield _from_symbol(scene, symbol, evidence)
    elif library:
        yield _stated("library", evidence, _rebuild(scene, library), library=library.groups["library"])
    elif runtime and not _is_torchs_own(scene) and not _of_another_program(scene):
        have = f"CUDA {scene.toolkit}" if scene.toolkit else "another CUDA"
        yield _stated("runtime", evidence, _rebuild(scene, runtime), major=runtime.groups["soname"], have=have)
    elif companion:
        yield _stated("library", evidence, _rebuild(scene, companion), library=CAUSE.words("other-libraries"))


def _stated(name: str, evidence: tuple[str, ...], fixes: Iterator[Fix], **values: str) -> Finding:
    return CAUSE.finding(name, Grounds.STATED, evidence, fixes, (), **values)


def _is_torchs_own(scene: Scene) -> bool:
    """Whether it is torch whose own runtime is missing."""
    torch = scene.mentions("torch/lib/libtorch", "_load_global_deps", "import torch\n")
    return torch and not scene.mentions("import vllm")


def _of_another_program(scene: Scene) -> bool:
    """Whether a report without a torch is about a program that is not compiled against it."""
    return not scene.about_torch and scene.mentions(*CAUSE.words("not-of-torch").split())


def _from_symbol(scene: Scene, match: Match, evidence: tuple[str, ...]) -> Finding:
    symbol = match.groups["symbol"]
    new = "__cxx11" in symbol
    # The Itanium ABI abbreviates the std::string from before C++11 as Ss; the newer one is spelt out.
    old = not new and bool(re.search(r"Ss(?:E|$|[A-Z0-9])|RKSs", symbol)) and symbol.startswith("_Z")
    uses_new = scene.torch.build.cxx11_abi if scene.torch and scene.torch.build else None
    if not (new or old) or uses_new is new:
        return _stated("version", evidence, _rebuild(scene, match), symbol=symbol[:80])
    made, other = ("new C++11", "old") if new else ("old, pre-C++11", "new")
    sign = "std::__cxx11" if new else "std::string mangled as Ss"
    grounds = Grounds.STATED if uses_new is None else Grounds.CONFIRMED
    fixes = _other_abi(scene, match, new)
    return CAUSE.finding("abi", grounds, evidence, fixes, (), made=made, other=other, sign=sign)


def _other_abi(scene: Scene, match: Match, new: bool) -> Iterator[Fix]:
    """The wheel of the other ABI, if the project publishes both."""
    package = extension_named(scene, match.quote, match)
    installed = package and not source_tree(scene, telling_line(scene, match))
    ready = published_wheel(scene, package) if package and installed else None
    have, want = ("TRUE", "FALSE") if new else ("FALSE", "TRUE")
    named = [w for w in _WHEEL.findall(scene.report.text) if f"abi{have}".lower() in w.lower()]
    kind = "old (pre-C++11)" if new else "new (C++11)"
    release = _MINOR.match(scene.torch.version) if scene.torch and scene.torch.version else None
    made_for = _MADE_FOR.search(named[0]) if named else None
    if (made_for and release and made_for[1] != release[0]) or (ready and not named):
        pass  # the wheel is of another torch as well: its twin of the other ABI does not load either
    elif named:
        wheel = re.sub(f"abi{have}", f"abi{want}", named[0], flags=re.IGNORECASE)
        yield CAUSE.fix("abi-wheel-named", kind=kind, wanted=want, wheel=wheel)
    elif extension_named(scene, match.quote) in CAUSE.words("abi-projects").split():
        yield CAUSE.fix("abi-wheel", kind=kind, wanted=want)
    yield from [ready] if ready else _rebuild(scene, match)


def _only_way(scene: Scene, match: Match, package: str | None) -> Fix | None:
    """The fix of an extension that has no published build for this torch: it was compiled here, or has none at all."""
    if tree := source_tree(scene, telling_line(scene, match)):
        return CAUSE.fix("compile-tree", torch=scene.torch.label if scene.torch else "the installed torch", tree=tree)
    return of_other_vendor(scene, package) if package else None


def _rebuild(scene: Scene, match: Match) -> Iterator[Fix]:
    """The build for this torch that the catalogue knows; otherwise how to find one, or to compile it."""
    package, torch = extension_named(scene, match.quote, match), scene.torch
    if only := _only_way(scene, match, package):
        yield only
        return
    if package in CAUSE.words("with-own-torch").split() and _of_nvidia(scene):
        yield CAUSE.fix("own-environment", package=package)
        return
    if package and torch and torch.version and scene.family.follows_torch(package):
        exact = f"=={torch.version}" + (f"+{torch.variant}" if torch.variant else "")
        if found := pair_with(scene, {"torch": SpecifierSet(exact), package: SpecifierSet()}):
            yield found
            return
    if package and torch is None and scene.family.follows_torch(package):
        # Which torch it must go with is not known, and the newest release alone may not go with it.
        also = _CLOSE if scene.mentions("comfyui") else ()  # imports all three
        if package in _CLOSE and scene.os != "windows" and not scene.on_mac:
            yield CAUSE.fix("close-at-hand", package=package)
        beside = {name: SpecifierSet() for name in ("torch", *also, package)}
        if found := pair_with(scene, beside):
            yield found
            if package in _CLOSE:
                return
    yield from _ready_or_compiled(scene, package)


def _of_nvidia(scene: Scene) -> bool:
    """Whether the torch is that of NVIDIA's image, which is a build of its own."""
    return scene.mentions("nvcr.io/nvidia/pytorch", "nvidia pytorch container", "/opt/pytorch/pytorch")


def published_wheel(scene: Scene, package: str) -> Fix | None:
    """The wheel that a project publishes for this torch, with code for the GPUs; None if there is none."""
    torch = scene.torch
    found = ready_wheel(package, torch.build, scene.family) if torch and torch.build else None
    if torch is None or found is None:
        return None
    wheel, command = found
    return Fix(CAUSE.fix("ready", package=package, version=wheel.version, torch=torch.label).text, command)


def _ready_or_compiled(scene: Scene, package: str | None) -> Iterator[Fix]:
    """The wheel that the project publishes for this torch; if there is none, how to go on without one."""
    build = scene.torch.build if scene.torch else None
    label = scene.torch.label if scene.torch else "the installed torch"
    if package and (found := published_wheel(scene, package)):
        yield found
        return
    if package is None:
        yield CAUSE.fix("extension-release", torch=label)
        yield CAUSE.fix("compile", torch=label, force="", only=":all:", what="PACKAGE")
        return
    if scene.os == "windows" and package in CAUSE.words("no-windows").split():
        yield CAUSE.fix("uninstall", package=package, torch=f"{label} on Windows")
    if source := _repository(scene, package):
        yield CAUSE.fix("compile", torch=label, force="FORCE_CUDA=1 ", only=package, what=source)
        return
    project = source_project(package, None, scene.catalogue.source_projects)
    version = public(scene.report.installed, package)
    if package in CAUSE.words("with-own-torch").split():
        pinned = f"{package}=={version}" if version else package
        yield CAUSE.fix("own-torch", package=package, pinned=pinned, python=scene.python or "3.12")
    if self_built(scene) or _of_nvidia(scene):
        yield _compiled(scene, package, label, version)  # a wheel is for a torch that is published
        return
    served = wheel_torches(package, scene.family) if build and scene.python else ()
    if served:
        yield CAUSE.fix("no-wheel", package=package, torch=label, first=served[0], last=served[-1])
        version = None  # an old release may not compile against a new torch
    else:
        yield CAUSE.fix("release-fetched" if project else "release", package=package, torch=label)
    yield _compiled(scene, package, label, version)


def _compiled(scene: Scene, package: str, label: str, version: str | None) -> Fix:
    force = build_variables(scene, package)
    what = f"{package}=={version}" if version else package
    return CAUSE.fix("compile", torch=label, force=force, only=package, what=what)


def _repository(scene: Scene, package: str) -> str | None:
    """The source of a project that the default index does not have: as in the report, otherwise its own page."""
    known = dict(line.split(" ", 1) for line in Cause("cpu-build").words("sources").split("; "))
    told = source_of(scene)
    if "git+" in told and package in told.lower():
        return told
    return known[package] if "git+" in known.get(package, "") else None

"""What a missing symbol or library says of the torch that an extension was compiled for."""

from __future__ import annotations

import re
from collections.abc import Iterator

from packaging.specifiers import SpecifierSet

from envsolve.diagnose.causes._shared import Cause, lines, torch_evidence
from envsolve.diagnose.model import Finding, Fix, Grounds
from envsolve.diagnose.remedies.torch import extension_named, pair_with
from envsolve.diagnose.scene import Scene, public
from envsolve.diagnose.signatures import Match

_CAUSE = Cause("mixed-flavours")
_WHEEL = re.compile(r"[\w.]{1,80}-[\w.+]{1,80}cxx11abi(?:TRUE|FALSE)[\w.-]{1,120}\.whl", re.IGNORECASE)


def from_linker(scene: Scene) -> Iterator[Finding]:
    """An extension looks for a symbol or a library that this torch does not have."""
    symbol, library = _CAUSE.first(scene, "symbol"), _CAUSE.first(scene, "library")
    runtime, companion = _CAUSE.first(scene, "runtime"), _CAUSE.first(scene, "companion")
    evidence = (*lines(symbol, library, runtime, companion), *torch_evidence(scene))
    if symbol:
        yield _from_symbol(scene, symbol, evidence)
    elif library:
        yield _stated("library", evidence, _rebuild(scene, library), library=library.groups["library"])
    elif runtime and not _is_torchs_own(scene):
        have = f"CUDA {scene.torch.cuda}" if scene.torch and scene.torch.cuda else "another CUDA"
        yield _stated("runtime", evidence, _rebuild(scene, runtime), major=runtime.groups["soname"], have=have)
    elif companion:
        yield _stated("library", evidence, _rebuild(scene, companion), library=_CAUSE.words("other-libraries"))


def _stated(name: str, evidence: tuple[str, ...], fixes: Iterator[Fix], **values: str) -> Finding:
    return _CAUSE.finding(name, Grounds.STATED, evidence, fixes, (), **values)


def _is_torchs_own(scene: Scene) -> bool:
    """Whether it is torch whose own runtime is missing."""
    torch = scene.mentions("torch/lib/libtorch", "_load_global_deps", "import torch\n")
    return torch and not scene.mentions("import vllm")


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
    return _CAUSE.finding("abi", grounds, evidence, fixes, (), made=made, other=other, sign=sign)


def _other_abi(scene: Scene, match: Match, new: bool) -> Iterator[Fix]:
    """The wheel of the other ABI, if the project publishes both."""
    have, want = ("TRUE", "FALSE") if new else ("FALSE", "TRUE")
    named = [w for w in _WHEEL.findall(scene.report.text) if f"abi{have}".lower() in w.lower()]
    kind = "old (pre-C++11)" if new else "new (C++11)"
    if named:
        wheel = re.sub(f"abi{have}", f"abi{want}", named[0], flags=re.IGNORECASE)
        yield _CAUSE.fix("abi-wheel-named", kind=kind, wanted=want, wheel=wheel)
    else:
        yield _CAUSE.fix("abi-wheel", kind=kind, wanted=want)
    yield from _rebuild(scene, match)


def _rebuild(scene: Scene, match: Match) -> Iterator[Fix]:
    """The build for this torch that the catalogue knows; else how to find one, or to compile it."""
    package, torch = extension_named(scene, match.quote), scene.torch
    if package and torch and torch.version and scene.family.follows_torch(package):
        exact = f"=={torch.version}" + (f"+{torch.variant}" if torch.variant else "")
        if found := pair_with(scene, {"torch": SpecifierSet(exact), package: SpecifierSet()}):
            yield found
            return
    version = public(scene.report.installed, package) if package else None
    label = torch.label if torch else "the installed torch"
    if package:
        yield _CAUSE.fix("release", package=package, torch=label)
    else:
        yield _CAUSE.fix("extension-release", torch=label)
    yield _CAUSE.fix(
        "compile",
        torch=label,
        force="FLASH_ATTENTION_FORCE_BUILD=TRUE " if package == "flash-attn" else "",
        only=package or ":all:",
        what=f"{package}=={version}" if package and version else package or "PACKAGE",
    )

"""``mixed-flavours`` by the linker: an extension looks for a symbol that this torch does not have."""

from __future__ import annotations

import re
from collections.abc import Iterator

from packaging.specifiers import SpecifierSet

from envsolve.diagnose.causes._shared import lines
from envsolve.diagnose.model import Finding, Grounds, Remedy, RuledOut
from envsolve.diagnose.remedies.torch import extension_named, pair_with
from envsolve.diagnose.scene import Scene, public
from envsolve.diagnose.signatures import Match

_WHEEL = re.compile(r"[\w.]{1,80}-[\w.+]{1,80}cxx11abi(?:TRUE|FALSE)[\w.-]{1,120}\.whl", re.IGNORECASE)

_ABI = (
    "The symbol shows how the extension was compiled: it passes C++ strings in the {made} ABI ({sign}), and this "
    "torch, compiled with the {other} one, has no such symbol. Both ABIs may exist for the same versions of torch "
    "and CUDA, so equal versions do not help. The extension must come in the build for torch's ABI, or be compiled "
    "against this torch."
)
_VERSION = (
    "The extension was compiled against another torch than the one installed: it looks for {symbol}, which this "
    "torch does not have. C++ symbols of torch change with every minor release. The extension must come in the build "
    "for this torch, or be compiled against it."
)
_SPLIT = (
    "The extension was linked against {library}, which the torch that is installed does not have: it was compiled for "
    "another release or flavour of torch. An extension finds torch's libraries by name when it is loaded. "
    "It must come in the build for this torch, or be compiled against it."
)
_RUNTIME = (
    "The extension was compiled for CUDA {major}, and its runtime libcudart.so.{major} is not there because torch "
    "brings that of {have}. A link to the other library, or its package alone, would mix two CUDA majors in one "
    "process. Torch and the extension must be of the same CUDA major."
)


def weigh(scene: Scene) -> Iterator[Finding | RuledOut]:
    """Read what the missing symbol or library says."""
    symbol, library, runtime = (
        scene.first("torch-symbol"),
        scene.first("torch-library-missing"),
        scene.first("cudart-missing"),
    )
    vision = scene.first("vision-cuda", "vision-nms", "vision-ops", "xformers-built", "torch-procedure")
    evidence = (*lines(symbol, library, runtime, vision), *(scene.torch.evidence if scene.torch else ()))
    if symbol:
        yield _from_symbol(scene, symbol, evidence)
    elif library:
        text = _SPLIT.format(library=library.groups["library"])
        yield Finding("mixed-flavours", Grounds.STATED, text, evidence, tuple(_rebuild(scene, library)))
    elif runtime and not _torch_itself(scene):
        have = f"CUDA {scene.torch.cuda}" if scene.torch and scene.torch.cuda else "another CUDA"
        text = _RUNTIME.format(major=runtime.groups["soname"], have=have)
        yield Finding("mixed-flavours", Grounds.STATED, text, evidence, tuple(_rebuild(scene, runtime)))
    elif vision:
        text = _SPLIT.format(library="another torch's libraries")
        yield Finding("mixed-flavours", Grounds.STATED, text, evidence, tuple(_rebuild(scene, vision)))


def _torch_itself(scene: Scene) -> bool:
    """Whether it is torch whose own runtime is missing."""
    return scene.mentions("torch/lib/libtorch", "_load_global_deps", "import torch\n") and not scene.mentions(
        "import vllm"
    )


def _from_symbol(scene: Scene, match: Match, evidence: tuple[str, ...]) -> Finding:
    symbol = match.groups["symbol"]
    new = "__cxx11" in symbol
    old = not new and bool(re.search(r"Ss(?:E|$|[A-Z0-9])|RKSs", symbol)) and symbol.startswith("_Z")
    uses_new = scene.torch.build.cxx11_abi if scene.torch and scene.torch.build else None
    if not (new or old) or uses_new is new:
        text = _VERSION.format(symbol=symbol[:80])
        return Finding("mixed-flavours", Grounds.STATED, text, evidence, tuple(_rebuild(scene, match)))
    text = _ABI.format(
        made="new C++11" if new else "old, pre-C++11",
        other="old" if new else "new",
        sign="std::__cxx11" if new else "std::string mangled as Ss",
    )
    grounds = Grounds.STATED if uses_new is None else Grounds.CONFIRMED
    return Finding("mixed-flavours", grounds, text, evidence, tuple(_other_abi(scene, match, new)))


def _other_abi(scene: Scene, match: Match, new: bool) -> Iterator[Remedy]:
    """The wheel of the other ABI, where the project publishes both."""
    have, want = ("TRUE", "FALSE") if new else ("FALSE", "TRUE")
    named = [w for w in _WHEEL.findall(scene.report.text) if f"abi{have}".lower() in w.lower()]
    wheel = re.sub(f"abi{have}", f"abi{want}", named[0], flags=re.IGNORECASE) if named else None
    kind = "old (pre-C++11)" if new else "new (C++11)"
    text = (
        f"Install the wheel for torch's {kind} ABI, whose file name says cxx11abi{want}, from the project's releases."
    )
    yield Remedy(text, f"pip install --no-deps --force-reinstall ./{wheel}" if wheel else None)
    yield from _rebuild(scene, match)


def _rebuild(scene: Scene, match: Match) -> Iterator[Remedy]:
    package = extension_named(scene, match.quote)
    version = public(scene.report.installed, package) if package else None
    if package and scene.torch and scene.torch.version and scene.family.follows_torch(package):
        exact = f"=={scene.torch.version}" + (f"+{scene.torch.variant}" if scene.torch.variant else "")
        found = pair_with(scene, {"torch": SpecifierSet(exact), package: SpecifierSet()})
        if found:
            yield found
            return
    what = f"{package}=={version}" if package and version else package or "PACKAGE"
    torch = scene.torch.label if scene.torch else "the torch at hand"
    yield Remedy(
        f"Install a release of {package or 'the extension'} whose wheel was built for {torch}, if there is one (the "
        f"file "
        "name or the project's page says for which torch and ABI).",
        f"pip install --upgrade --force-reinstall --no-deps {package}" if package else None,
    )
    force = "FLASH_ATTENTION_FORCE_BUILD=TRUE " if package == "flash-attn" else ""
    yield Remedy(
        f"Or compile it from source against {torch} (needs an nvcc of torch's CUDA).",
        f"{force}pip install --no-build-isolation --no-cache-dir --no-binary {package or ':all:'} --force-reinstall "
        f"--no-deps {what}",
    )

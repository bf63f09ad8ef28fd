"""``triton-gpu-unsupported`` and ``triton-torch-mismatch``."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envsolve.diagnose.causes._shared import gpu_names, lines
from envsolve.diagnose.model import Finding, Grounds, Remedy, RuledOut
from envsolve.diagnose.remedies.torch import led_by, replacements
from envsolve.diagnose.scene import Scene, public
from envsolve.diagnose.signatures import Match
from envsolve.rules.nvidia.code import triton_pin, triton_runs
from envsolve.values import ComputeCapability

_UNSUPPORTED = (
    "Triton generates code for compute capability {least} and newer; {card} is older, or lacks the instruction that "
    "the kernel uses. That holds for every release, so another version changes nothing. Torch's own (eager) kernels "
    "do not need Triton and run on the card as long as torch has code for it."
)
_NO_COMPILER = (
    "Triton's own compiler gave up on the kernel, before any ptxas ran. {said}. Torch's own (eager) kernels run on "
    "{card} all the same; a torch with another Triton compiles them."
)
_MISMATCH = (
    "Torch's compiler (inductor) uses inner parts of Triton that change with every release, so each torch pins one "
    "Triton: "
    "{pairs}. Another Triton was put beside it, or is missing. "
    "The pinned one must come back."
)

#: The project that builds Triton for Windows.
_WINDOWS = "triton-windows"


def weigh(scene: Scene) -> Iterator[Finding | RuledOut]:
    """The first is Triton's own word; the second is decided by torch's pin."""
    if match := scene.first("triton-old-card", "triton-feature"):
        yield _unsupported(scene, match)
    if match := scene.first("triton-pass"):
        yield from _compiler_lacks(scene, match)
    if match := scene.first("triton-import", "triton-pin", "triton-missing"):
        yield from _mismatch(scene, match)


def _unsupported(scene: Scene, match: Match) -> Finding:
    least = scene.catalogue.tritons[-1].min_cc if scene.catalogue.tritons else "7.0"
    old = [gpu for gpu in scene.gpus if gpu.cc and gpu.cc < ComputeCapability.parse(least)]
    text = _UNSUPPORTED.format(least=least, card=gpu_names(old or scene.gpus))
    remedies = [
        Remedy(
            "Run without compiling (eager mode).", "export TORCHDYNAMO_DISABLE=1  # torch.compile then does nothing"
        ),
    ]
    if scene.mentions("vllm"):
        remedies.append(
            Remedy(
                "In vllm, ask for eager mode; kernels that vllm itself writes in Triton still need a newer card.",
                "vllm serve ... --enforce-eager",
            )
        )
    if match.signature.id == "triton-feature":
        remedies.insert(0, Remedy("Use float16 or float32 in place of the type that the card lacks (bfloat16, fp8)."))
    grounds = Grounds.CONFIRMED if old else Grounds.STATED
    evidence = (*lines(match), *scene.gpu_evidence)
    return Finding("triton-gpu-unsupported", grounds, text, evidence, tuple(remedies), frozenset({"no-kernel-for-gpu"}))


def _compiler_lacks(scene: Scene, match: Match) -> Iterator[Finding]:
    """Only where rule 6 knows it of this Triton and this card: the words alone are those of any kernel's fault."""
    facts, version = scene.facts, public(scene.report.installed, "triton") or _pin(scene)
    release = facts.tritons.get(version) if version else None
    for gpu in scene.gpus if release else ():
        assert release is not None and gpu.cc is not None
        reason = triton_runs(release, gpu.cc, scene.driver, scene.os, facts.toolkits, facts.floors)
        if reason.rule in ("triton-gpu", "triton-matrix") and reason.ok is False:
            text = _NO_COMPILER.format(said=reason.text, card=gpu.label)
            eager = Remedy("Or run without compiling (eager mode).", "export TORCHDYNAMO_DISABLE=1")
            evidence = (*lines(match), *scene.gpu_evidence, *(scene.torch.evidence if scene.torch else ()))
            remedies = (*replacements(scene), eager)
            yield Finding("triton-gpu-unsupported", Grounds.CONFIRMED, text, evidence, remedies)
            return


def _pin(scene: Scene) -> str | None:
    """The Triton of this torch: its own pin, else that of the same version for Linux, whose inner parts it shares."""
    torch = scene.torch
    if torch is None or torch.version is None:
        return None
    builds = (*((torch.build,) if torch.build else ()), *scene.catalogue.builds("torch"))
    # A torch from the sources, 2.4.0a0+git..., pins what its release came to pin.
    release = re.match(r"[\d.]+\d", torch.version.partition("a0")[0])
    pins = (triton_pin(build) for build in builds if release and build.version == release[0])
    return next((pin for pin in pins if pin), None)


def _mismatch(scene: Scene, match: Match) -> Iterator[Finding | RuledOut]:
    pin = match.group("want") or _pin(scene)
    installed = scene.report.installed
    have = match.group("have") or public(installed, "triton") or public(installed, _WINDOWS)
    if have and scene.os == "windows":
        have = have.partition(".post")[0]
    torch = scene.torch.label if scene.torch else "torch"
    if match.signature.id == "triton-missing" and scene.os == "windows":
        yield RuledOut(
            "Triton is not published for Windows on PyPI: torch.compile needs WSL there, or the triton-windows project"
        )
        return
    pairs = f"{torch} pins Triton {pin}" if pin else f"{torch} pins one"
    pairs += f", and {have} is installed" if have else ""
    grounds = Grounds.CONFIRMED if pin and have and pin != have else Grounds.STATED
    if pin and have == pin and match.signature.id == "triton-import":
        # The pair is right, so the import comes from a third package.
        grounds = Grounds.SUGGESTED
    remedies = []
    if pin and have == pin:
        remedies.append(
            Remedy(
                "Update the package whose file stands last in the traceback before Triton's: it knows another Triton."
            )
        )
    elif pin:
        # Its releases are named after Triton's, with a number of their own behind.
        name = f"{_WINDOWS}=={pin}.*" if scene.os == "windows" else f"triton=={pin}"
        command = f'pip install --force-reinstall --no-deps "{name}"'
        remedies.append(Remedy("Put back the Triton that this torch pins.", command))
    remedies += [led_by("Or move both together", r) for r in replacements(scene)[-1:]]
    if not remedies:
        remedies.append(
            Remedy(
                "Install torch again with its dependencies: the Triton that it pins comes with it.",
                "pip install --force-reinstall torch",
            )
        )
    evidence = (*lines(match), *(scene.torch.evidence if scene.torch else ()))
    yield Finding("triton-torch-mismatch", grounds, _MISMATCH.format(pairs=pairs), evidence, tuple(remedies))

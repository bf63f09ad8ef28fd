"""``no-kernel-for-gpu``, ``harmless-arch-warning``, ``python-caps-build`` and ``arch-list-unset``: code for the card.

The words "no kernel image" say that *some* binary lacks code for the card. Whether that binary is torch itself, the
catalogue says; if torch serves the card, an extension is meant.
"""

from __future__ import annotations

from collections.abc import Iterator

from envsolve.diagnose.causes._shared import gpu_names, lines
from envsolve.diagnose.model import Finding, Grounds, Remedy, RuledOut
from envsolve.diagnose.remedies.torch import (
    extension_named,
    jetson_remedies,
    rebuild,
    replacements,
    with_another_python,
)
from envsolve.diagnose.scene import Scene
from envsolve.diagnose.signatures import Match
from envsolve.machine.model import Gpu
from envsolve.values import ComputeCapability

_ERRORS = (
    "no-kernel-image",
    "invalid-device-function",
    "library-arch-mismatch",
    "kernel-not-compiled",
    "capability-capped",
)
_WARNINGS = ("arch-warning", "arch-range-warning")
_LIMITS = ("ampere-only", "capability-required")

_TORCH = (
    "A GPU runs only machine code (SASS) made for its own generation, or PTX that the driver compiles for it. "
    "{torch} carries {code}, and none of that runs on {cards}. "
    "Neither a newer driver nor another CUDA toolkit adds code to a wheel: another build is needed."
)
_UNREAD = (
    "A GPU runs only machine code (SASS) made for its own generation, or PTX that the driver compiles for it. "
    "The binary that failed carries neither for {cards}. "
    "Neither a newer driver nor another CUDA toolkit adds code to it: a build with code for the card is needed."
)
_EXTENSION = (
    "A GPU runs only machine code (SASS) made for its own generation, or PTX that the driver compiles for it. "
    "{torch} itself has code for {cards}, so what lacks it is another binary: an extension, or torch's C++ "
    "distribution. That binary must be built, or chosen, with code for the card."
)
_UNSET = (
    "An extension is compiled for the GPUs that are visible when it is built, or for a default list where none is. "
    "It was built where other cards, or none, were at hand, so it has no code for {cards}, although torch's own "
    "kernels run there. TORCH_CUDA_ARCH_LIST names the cards to compile for, whatever the build machine has."
)
_NO_CARD = (
    "Without TORCH_CUDA_ARCH_LIST an extension is compiled for the GPUs that are visible, and where it is built none "
    "is, so that the list of architectures is empty. The build needs no GPU, only the list. TORCH_CUDA_ARCH_LIST "
    "names the cards that will run it."
)
_HARMLESS = (
    "Machine code runs on every card of the same generation with the same or a higher minor: {code} serves {cards}. "
    "The warning compares names and does not know that rule. "
    "Nothing has to be changed unless kernels really fail."
)
_CAPPED = (
    "Every torch build that carries code for {cards} is published for newer Pythons than {python}. "
    "So no installer can find one in this environment, and what it finds instead has no code for the card. "
    "A newer Python opens the way; toolkits and drivers do not."
)
_LIMITED = (
    "This library's kernels are written for newer GPUs than {cards}, and say so. "
    "No build of it carries code for the card. "
    "The program must use another implementation of the same operation."
)


def weigh(scene: Scene) -> Iterator[Finding | RuledOut]:
    """Find whose code is missing for the card, if anyone's."""
    error, warning = scene.first(*_ERRORS), scene.first(*_WARNINGS)
    torch = scene.torch
    missing = scene.unserved(torch.code, torch.cuda) if torch and torch.code else ()
    yield from _limited(scene, error)
    if no_card := scene.first("arch-list-empty", "arch-native-blind"):
        yield Finding("arch-list-unset", Grounds.STATED, _NO_CARD, lines(no_card), rebuild(scene, scene.gpus))
    if missing:
        yield from _torch_lacks(scene, error or warning, missing)
    elif torch and torch.code and scene.gpus and not error and warning:
        yield _harmless(scene, warning)
    elif warning and not error and _within_range(scene, warning):
        yield _harmless_by_range(scene, warning)
    elif error or warning:
        yield from _another_binary(scene, error or warning)


def _torch_lacks(scene: Scene, match: Match | None, missing: tuple[Gpu, ...]) -> Iterator[Finding]:
    torch = scene.torch
    assert torch is not None and torch.code is not None
    text = _TORCH.format(torch=torch.label, code=" ".join(torch.code), cards=gpu_names(missing))
    remedies = (*replacements(scene), *_hide_others(scene, missing))
    capped = with_another_python(scene)
    evidence = (*lines(match), *torch.evidence, torch.code_from or "", *scene.gpu_evidence)
    if capped:
        _, remedy = capped
        yield Finding(
            "python-caps-build",
            Grounds.DERIVED,
            _CAPPED.format(cards=gpu_names(missing), python=scene.python),
            evidence,
            (remedy,),
            explains=frozenset({"no-kernel-for-gpu", "nvcc-torch-mismatch", "nvcc-arch-unknown"}),
        )
        remedies = (remedy, *remedies)
    grounds = Grounds.CONFIRMED if match else Grounds.DERIVED
    yield Finding("no-kernel-for-gpu", grounds, text, evidence, remedies or _from_source(scene, missing))


def _another_binary(scene: Scene, match: Match | None) -> Iterator[Finding]:
    torch = scene.torch
    serves = bool(torch and torch.code and scene.gpus)
    own = serves or scene.first("torch-works") is not None
    source, made_elsewhere = scene.first("from-source"), scene.first("arch-list-warning")
    libtorch = "libtorch" in scene.report.installed
    if own and source and not libtorch:
        yield Finding(
            "arch-list-unset",
            Grounds.CONFIRMED if serves else Grounds.STATED,
            _UNSET.format(cards=gpu_names(scene.gpus)),
            (*lines(match, source, scene.first("torch-works"), made_elsewhere), *scene.gpu_evidence),
            rebuild(scene, scene.gpus),
        )
    grounds = Grounds.SUGGESTED if own else Grounds.STATED
    evidence = (*lines(match), *(torch.evidence if torch else ()), *scene.gpu_evidence)
    if own and not libtorch:
        text = _EXTENSION.format(torch=torch.label if torch else "torch", cards=gpu_names(scene.gpus))
        yield Finding("no-kernel-for-gpu", grounds, text, evidence, _for_extension(scene))
    else:
        text = (_EXTENSION if own and torch else _UNREAD).format(
            torch=torch.label if torch else "torch", cards=gpu_names(scene.gpus)
        )
        yield Finding("no-kernel-for-gpu", grounds, text, evidence, _unread_remedies(scene))


def _unread_remedies(scene: Scene) -> tuple[Remedy, ...]:
    """Where the failing binary's code is not known: torch first, where the report is about torch."""
    # Of a torch and of cards that are not known, no other torch is known to be better.
    known = scene.torch is not None or (scene.gpus and scene.mentions("torch"))
    return (
        *(replacements(scene) if known else ()),
        *_hide_others(scene, scene.gpus),
        *_from_source(scene, scene.gpus),
    )


def _for_extension(scene: Scene) -> tuple[Remedy, ...]:
    name = extension_named(scene)
    release = Remedy(
        f"Install a newer release of {name or 'the extension'} whose list of GPUs has this card, if there is one.",
        f"pip install --upgrade --no-deps {name}" if name else None,
    )
    return (*rebuild(scene, scene.gpus), *jetson_remedies(scene), release)


def _from_source(scene: Scene, gpus: tuple[Gpu, ...]) -> tuple[Remedy, ...]:
    return (*jetson_remedies(scene), *rebuild(scene, gpus))


def _hide_others(scene: Scene, missing: tuple[Gpu, ...]) -> tuple[Remedy, ...]:
    """Where a machine has several kinds of cards, those that are served can be used alone."""
    gpus = scene.machine.gpus or ()
    kinds = {gpu.compute_capability for gpu in gpus if gpu.compute_capability}
    if len(kinds) < 2:
        return ()
    lacking = {gpu.compute_capability for gpu in missing} if len(missing) < len(kinds) else set()
    keep = [str(n) for n, gpu in enumerate(gpus) if gpu.compute_capability not in lacking]
    served = [gpu for gpu in gpus if gpu.compute_capability not in lacking]
    if not lacking:
        best = max(served, key=lambda gpu: gpu.cc or (0, 0))
        keep = [str(n) for n, gpu in enumerate(gpus) if gpu.compute_capability == best.compute_capability]
        served = [best]
    text = f"Leave only {gpu_names(served)} visible: the program then never meets the card that is not served."
    return (Remedy(text, f"export CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES={','.join(keep)}"),)


def _within_range(scene: Scene, warning: Match) -> bool:
    """Whether the warning itself says that torch has code of the card's generation."""
    most = warning.group("most")
    code = (ComputeCapability.parse(most).sm,) if most else ()
    return bool(code and scene.gpus) and all(scene.level(code, gpu).usable for gpu in scene.gpus)


def _harmless_by_range(scene: Scene, warning: Match) -> Finding:
    text = _HARMLESS.format(code=f"that for {warning.groups['most']}", cards=gpu_names(scene.gpus))
    evidence = (*lines(warning), *scene.gpu_evidence)
    return Finding("harmless-arch-warning", Grounds.STATED, text, evidence, (_prove(),))


def _prove() -> Remedy:
    return Remedy(
        "Prove that kernels run; then the warning can be ignored.",
        "python -c \"import torch; print(torch.ones(2, device='cuda') * 2)\"",
    )


def _harmless(scene: Scene, warning: Match) -> Finding:
    torch = scene.torch
    assert torch is not None and torch.code is not None
    text = _HARMLESS.format(code=" ".join(torch.code), cards=gpu_names(scene.gpus))
    evidence = (*lines(warning), *torch.evidence, torch.code_from or "", *scene.gpu_evidence)
    return Finding("harmless-arch-warning", Grounds.CONFIRMED, text, evidence, (_prove(),))


def _limited(scene: Scene, error: Match | None) -> Iterator[Finding]:
    limit = scene.first(*_LIMITS)
    if limit is None or error is not None:
        return
    remedy = Remedy(
        "Let the program use PyTorch's own attention, or a release of the library for older cards.",
        "pip uninstall -y flash-attn",
    )
    evidence = (*lines(limit), *scene.gpu_evidence)
    text = _LIMITED.format(cards=gpu_names(scene.gpus))
    yield Finding("no-kernel-for-gpu", Grounds.STATED, text, evidence, (remedy,))

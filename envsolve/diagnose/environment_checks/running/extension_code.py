"""``no-kernel-for-gpu`` of an extension: its binaries carry nothing that the card runs (rules 3 and 4)."""

from __future__ import annotations

from collections.abc import Iterator

from envsolve.diagnose.causes._shared import gpu_names
from envsolve.diagnose.environment_advice import companion_for_torch, rebuild
from envsolve.diagnose.model import Finding, Grounds, Remedy
from envsolve.diagnose.scene import Scene
from envsolve.environment.model import Distribution, Environment
from envsolve.facts.builds import ANY

_EXPLANATION = (
    "A GPU runs only machine code (SASS) made for its own generation, or PTX that the driver compiles for it. "
    "{package} carries {code}, and none of that runs on {cards}, whatever torch itself has. Neither a driver nor a "
    "toolkit adds code to it: it must be built, or chosen, for the card."
)


def check(environment: Environment, scene: Scene) -> Iterator[Finding]:
    """Hold all code of every extension against the cards."""
    torch = environment.torch
    told = scene.unserved(torch.code, torch.cuda) if torch and torch.code else ()
    for extension in environment.extensions or ():
        distribution = environment.distribution(extension.package)
        if distribution is None or not extension.every or _optional(scene, distribution):
            continue
        # Where torch itself has no code for a card, that is what is wrong.
        missing = tuple(g for g in scene.gpus if g not in told and not scene.level(extension.every, g).usable)
        if not missing:
            continue
        text = _EXPLANATION.format(package=distribution.label, code=" ".join(extension.every), cards=gpu_names(missing))
        evidence = (f"{distribution.site}/{extension.libraries[0]}: {' '.join(extension.every)}", *scene.gpu_evidence)
        yield Finding(
            "no-kernel-for-gpu",
            Grounds.READ,
            text,
            evidence,
            tuple(_remedies(environment, scene, extension.package)),
        )


def _optional(scene: Scene, distribution: Distribution) -> bool:
    """Whether the catalogue knows the release as one that works without its kernels, or compiles them for the card."""
    version = (distribution.version or "").partition("+")[0]
    return any(b.variant == ANY for b in scene.catalogue.builds(distribution.name) if b.version == version)


def _remedies(environment: Environment, scene: Scene, package: str) -> Iterator[Remedy]:
    if found := companion_for_torch(scene, package):
        yield found
    yield from rebuild(environment, scene, package)

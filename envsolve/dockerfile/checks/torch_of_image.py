"""The torch that an image of PyTorch's brings, where nothing puts another in its place."""

from __future__ import annotations

from collections.abc import Iterator

from envsolve.dockerfile.model import Finding, Stage
from envsolve.dockerfile.offers import Offer
from envsolve.dockerfile.packages import Asked


def check(stage: Stage, asked: Asked) -> Iterator[Finding]:
    """Judge it as the build of that version and CUDA, for the image that results alone."""
    if stage is not asked.final:
        return
    brought = [offer for offer in asked.image_torch(stage) if offer.build.index != "default"]
    brought = brought or list(asked.image_torch(stage))
    named = {wanted.name for install in asked.installs(stage.history()) for wanted in install.wanted}
    if not brought or "torch" in named or not all(offer.refused for offer in brought):
        return
    lines = [offer.refused for offer in brought if offer.refused]
    line = min(lines, key=lambda one: sum(r.ok is False and r.rule == "platform" for r in one.reasons))
    reasons = [reason for reason in line.reasons if reason.ok is False]
    text = (
        f"{stage.root.image} brings torch {line.version} of CUDA {line.variant[2:-1]}.{line.variant[-1]}, which does "
    )
    text += f"not run on {line.gpu or 'the machine'}: " + "; ".join(reason.text for reason in reasons)
    source = next((reason.source for reason in reasons if reason.source), None)
    yield Finding(stage.root.line, "image-torch", "error", text, tuple(_remedies(stage, asked)), source)


def _remedies(stage: Stage, asked: Asked) -> Iterator[str]:
    """The newest of PyTorch's images of the same kind whose torch runs on every machine."""
    own = stage.root.image.rpartition("-")[2]
    good: dict[tuple[str, str], Offer] = {}
    for offer in asked.offers("torch"):
        if offer.refused is None and offer.without_triton is None:
            good.setdefault((offer.build.version, offer.build.variant), offer)
    tags = {
        (image.version, "cu" + kind.partition("-")[0].removeprefix("cuda").replace(".", "")): f"{image.version}-{kind}"
        for image in asked.catalogue.images
        if image.repository == "pytorch/pytorch" and not image.retired
        for kind in image.kinds
        if kind.endswith(own)
    }
    best = next((tags[key] for key in good if key in tags), None)
    if best:
        yield f"FROM pytorch/pytorch:{best}"
    yield "install a torch that runs there: envsolve plan torch --target ... --format dockerfile"

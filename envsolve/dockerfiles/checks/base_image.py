"""The image that a stage starts from: whether there is such a one, and whether the machines' drivers start it."""

from __future__ import annotations

from collections.abc import Iterator

from envsolve.catalogue.model import Image, ImageRequirement
from envsolve.compat.forward import compat_serves
from envsolve.compat.versions import minor, numbers
from envsolve.dockerfiles.asked import Asked, with_compat
from envsolve.dockerfiles.model import Finding, Stage
from envsolve.machine.describe import one_line
from envsolve.machine.model import Machine


def check(stage: Stage, asked: Asked) -> Iterator[Finding]:
    """Look at the tag, then at what it asks of the driver."""
    if stage.base is not None:
        return
    repository, _, tag = stage.image.removeprefix("docker.io/").partition("@")[0].rpartition(":")
    known = [image for image in asked.catalogue.images if image.repository == repository]
    image = asked.image(stage)
    if known and image is None:
        text = f"no image {repository}:{tag} is known to have been published"
        yield Finding(stage.line, "image-unknown", "error", text, _near(known, tag, asked))
    if image is None:
        return
    if image.retired:
        text = f"{repository}:{tag} is retired: its publisher deletes such tags in time"
        yield Finding(stage.line, "image-retired", "warning", text, _newer(known, image))
    requirement = asked.catalogue.image_requirements.get(image.version) if image.cuda else None
    if requirement is not None and stage is asked.final.root:
        for machine in asked.machines:
            if not _starts(requirement, machine, asked):
                yield _refused(stage, requirement, machine, asked)


def _starts(requirement: ImageRequirement, machine: Machine, asked: Asked) -> bool:
    """Whether the container runtime starts it; what is not known does not count as no.

    The older driver branches are named with the brands whose cards the compat ``libcuda`` serves.
    """
    driver = machine.driver
    if driver is None or driver.cuda is None or minor(driver.cuda) >= minor(requirement.cuda):
        return True
    branch = (driver.version or "").partition(".")[0]
    if not any(branch in older.branches for older in requirement.or_drivers):
        return False
    serves = compat_serves(with_compat(machine, requirement.cuda), asked.facts.forward)
    return serves is None or serves.ok is not False


def _refused(stage: Stage, requirement: ImageRequirement, machine: Machine, asked: Asked) -> Finding:
    driver = machine.driver
    have = f"driver {driver.version} reports CUDA {driver.cuda}" if driver else "the driver is older"
    text = (
        f"{stage.image} asks for CUDA {requirement.cuda} of the driver; on {one_line(machine)} the container runtime "
        f"refuses to start it, since {have}"
    )
    cuda = minor(driver.cuda) if driver and driver.cuda else (0, 0)
    older = [
        i
        for i in asked.catalogue.images
        if i.repository == "nvidia/cuda" and not i.retired and minor(i.version) <= cuda
    ]
    best = max(older, key=lambda image: numbers(image.version), default=None)
    remedies = [f"start from an image of CUDA {best.version} or older"] if best else []
    remedies.append("where wheels bring CUDA, start from an image without it: python:3.12-slim-bookworm")
    source = asked.catalogue.source(requirement.source)
    return Finding(stage.line, "image-driver", "error", text, tuple(remedies), source.title if source else None)


def _near(known: list[Image], tag: str, asked: Asked) -> tuple[str, ...]:
    """Tags that share the most with what was written, of the same version or the next one."""
    wanted = set(tag.split("-"))
    version = minor(tag)
    tags = [(image, t) for image in known if not image.retired and minor(image.version) >= version for t in image.tags]
    best = min(tags, key=lambda pair: (minor(pair[0].version), -len(wanted & set(pair[1].split("-")))), default=None)
    return (f"FROM {best[0].repository}:{best[1]}",) if best else ()


def _newer(known: list[Image], image: Image) -> tuple[str, ...]:
    """The nearest release on the same distribution that is kept."""
    kept = [
        i
        for i in known
        if not i.retired and i.distribution == image.distribution and numbers(i.version) > numbers(image.version)
    ]
    best = min(kept, key=lambda i: numbers(i.version), default=None)
    kinds = [kind for kind in image.kinds if best and kind in best.kinds]
    return (f"FROM {best.repository}:{best.version}-{kinds[0]}-{best.distribution}",) if best and kinds else ()

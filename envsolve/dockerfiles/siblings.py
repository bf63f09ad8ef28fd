"""Images like the one that a stage starts from: of the same kind, on another distribution or of a newer release."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from envsolve.catalogue.model import Distribution, Image, ImageRequirement
from envsolve.compat.forward import compat_serves
from envsolve.compat.versions import minor, numbers
from envsolve.dockerfiles.asked import Asked, with_compat
from envsolve.dockerfiles.images import Name
from envsolve.dockerfiles.model import Stage
from envsolve.machine.model import Machine


def like(stage: Stage, asked: Asked, serves: Callable[[Distribution], bool]) -> Iterator[str]:
    """The nearest one on a distribution that serves: the same release before newer ones of its CUDA major.

    Args:
        serves: Whether a distribution does.
    """
    image, tag = asked.image(stage), Name.of(stage.root.image).tag
    kind = next((k for k in image.kinds if f"-{k}-" in tag), None) if image else None
    if image is None or kind is None:
        return
    found = []
    for other in asked.catalogue.images:
        distribution = asked.catalogue.distributions.get(other.distribution)
        if _succeeds(other, image, kind) and distribution and serves(distribution) and starts(other, asked):
            alike = other.distribution.rstrip("0123456789.") == image.distribution.rstrip("0123456789.")
            release = numbers(other.version)
            rank = (other.version != image.version, not alike, release, numbers(distribution.python or ""))
            found.append((rank, f"FROM {other.repository}:{other.version}-{kind}-{other.distribution}"))
    yield from (text for _, text in sorted(found)[:1])


def starts(image: Image, asked: Asked) -> bool:
    """Whether the container runtime starts it on every machine."""
    requirement = asked.catalogue.image_requirements.get(image.version) if image.cuda else None
    return requirement is None or all(started(requirement, machine, asked) for machine in asked.machines)


def started(requirement: ImageRequirement, machine: Machine, asked: Asked) -> bool:
    """Whether the container runtime starts what asks for that on a machine; what is not known does not count as no.

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


def _succeeds(other: Image, image: Image, kind: str) -> bool:
    """Whether an image is of the same release and kind, or of a newer one that is kept."""
    same = other.version == image.version
    newer = numbers(other.version) > numbers(image.version) and minor(other.version)[0] == minor(image.version)[0]
    return other.repository == image.repository and kind in other.kinds and (same or (newer and not other.retired))

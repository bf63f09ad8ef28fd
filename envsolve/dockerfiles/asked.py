"""What every check of a Dockerfile is given: the machines, the catalogue, and what is known of its images."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from envsolve.catalogue.load import Catalogue
from envsolve.catalogue.model import Distribution, Image
from envsolve.compat.facts import Facts
from envsolve.compat.versions import minor
from envsolve.dockerfiles.model import Stage
from envsolve.dockerfiles.offers import Offer
from envsolve.machine.model import Machine


@dataclass(frozen=True, slots=True)
class Asked:
    """What every check is given.

    Attributes:
        machines: With what the driver's version implies.
        final: The stage that becomes the image.
        offers: Every build of a package that the catalogue describes, newest first.
    """

    machines: tuple[Machine, ...]
    catalogue: Catalogue
    facts: Facts
    final: Stage
    offers: Callable[[str], tuple[Offer, ...]]

    def image(self, stage: Stage) -> Image | None:
        """What is known of the image that a stage starts from in the end."""
        repository, _, tag = stage.root.image.removeprefix("docker.io/").partition("@")[0].rpartition(":")
        repository = repository.removeprefix("library/")
        return next((i for i in self.catalogue.images if i.repository == repository and tag in i.tags), None)

    def distribution(self, stage: Stage) -> Distribution | None:
        """The distribution that it stands on."""
        image = self.image(stage)
        if image is not None:
            return self.catalogue.distributions.get(image.distribution)
        name = stage.root.image.removeprefix("docker.io/").removeprefix("library/").replace(":", "")
        return self.catalogue.distributions.get(name.removesuffix("-slim"))

    def python(self, stage: Stage) -> str | None:
        """The Python that ``pip`` is for in it, where the image decides that."""
        image = self.image(stage)
        if image is not None and image.repository == "python":
            return image.version
        distribution = self.distribution(stage)
        return distribution.python if distribution else None


def with_compat(machine: Machine, cuda: str) -> Machine:
    """A machine in a container that puts the compat ``libcuda`` of a CUDA version first."""
    driver = machine.driver
    return (
        replace(machine, driver=replace(driver, compat_libcuda=".".join(map(str, minor(cuda))))) if driver else machine
    )

"""What the name of an image says: which image it is wherever it is fetched from, and what stands in it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from envsolve.catalogue.model import Distribution, Image

# The same images under the names of other registries.
_HOSTS = re.compile(
    r"^(?:(?:docker\.io|index\.docker\.io|registry-1\.docker\.io|public\.ecr\.aws/docker|mirror\.gcr\.io)/)"
)
_NGC_CUDA = "nvcr.io/nvidia/cuda"


@dataclass(frozen=True, slots=True)
class Name:
    """An image's name, taken apart.

    Attributes:
        repository: As the catalogue writes it: ``nvidia/cuda``, ``python``.
        tag: ``latest`` where none is given; empty where a digest stands alone.
    """

    repository: str
    tag: str

    @classmethod
    def of(cls, text: str) -> Name:
        """Read it."""
        name, at, _ = text.partition("@")
        repository, colon, tag = name.rpartition(":")
        if not colon or "/" in tag:
            repository, tag = name, "" if at else "latest"
        if repository == _NGC_CUDA:
            repository = "nvidia/cuda"
        return cls(_HOSTS.sub("", repository).removeprefix("library/"), tag)

    @property
    def known(self) -> bool:
        """Whether no variable that is given at build time stands in it."""
        return bool(self.tag) and "$" not in self.repository + self.tag

    def image(self, images: Sequence[Image]) -> Image | None:
        """What the catalogue knows of it."""
        return next((i for i in images if i.repository == self.repository and self.tag in i.tags), None)

    def python(self) -> str | None:
        """The Python of the official images of Python."""
        match = re.match(r"(3\.\d+)(?![\d])", self.tag) if self.repository == "python" else None
        return match[1] if match else None

    def distribution(self, distributions: Mapping[str, Distribution]) -> Distribution | None:
        """The distribution that it is an image of, or that its tag ends with."""
        for name in (self.repository + self.tag, *reversed(self.tag.split("-"))):
            known = distributions.get(re.sub(r"^(alpine)(?:\d.*|latest|edge)$", r"\1", name.removesuffix("-slim")))
            if known:
                return known
        return None

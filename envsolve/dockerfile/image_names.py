"""Names of container images, split into their parts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from envsolve.facts.hardware import Distribution, Image

# Mirrors that serve the same images under the same names.
_HOSTS = re.compile(
    r"^(?:(?:docker\.io|index\.docker\.io|registry-1\.docker\.io|public\.ecr\.aws/docker|mirror\.gcr\.io)/)"
)
_NGC_CUDA = "nvcr.io/nvidia/cuda"
# Any other host that has these has them from Docker Hub.
_COPIED = re.compile(r"^[\w-]*(?:[.:][\w.:-]*|(?<=localhost))/((?:nvidia/cuda|pytorch/pytorch)$)")


@dataclass(frozen=True, slots=True)
class Name:
    """The parts of an image's name.

    Attributes:
        repository: As the catalogue writes it: ``nvidia/cuda``, ``python``.
        tag: ``latest`` if none is given; empty if there is only a digest.
    """

    repository: str
    tag: str

    @classmethod
    def of(cls, text: str) -> Name:
        """Parse a name."""
        name, at, _ = text.partition("@")
        repository, colon, tag = name.rpartition(":")
        if not colon or "/" in tag:
            repository, tag = name, "" if at else "latest"
        if repository == _NGC_CUDA:
            repository = "nvidia/cuda"
        repository = _COPIED.sub(r"\1", _HOSTS.sub("", repository))
        return cls(repository.removeprefix("library/"), tag)

    @property
    def known(self) -> bool:
        """Whether it has a tag and contains no variable that is given at build time."""
        return bool(self.tag) and "$" not in self.repository + self.tag

    def image(self, images: Sequence[Image]) -> Image | None:
        """The catalogue's record of it."""
        # A tag begins with its version, and a repository has hundreds of images.
        of_version = (i for i in images if i.repository == self.repository and self.tag.startswith(i.version))
        return next((i for i in of_version if self.tag in i.tags or not i.kinds), None)

    def python(self) -> str | None:
        """The Python of an official image of Python, or of uv: ``python:3.12-slim``, ``uv:python3.12-bookworm``."""
        if self.repository != "python" and not self.repository.endswith("/uv"):
            return None
        match = re.match(r"(?:0[\d.]*-)?(?:python)?(3\.\d+)(?![\d])", self.tag)
        return match[1] if match else None

    def distribution(self, distributions: Mapping[str, Distribution]) -> Distribution | None:
        """The distribution that it is an image of, or that its tag names last."""
        for name in (self.repository + self.tag, *reversed(self.tag.split("-"))):
            known = distributions.get(re.sub(r"^(alpine)(?:\d.*|latest|edge)$", r"\1", name.removesuffix("-slim")))
            if known:
                return known
        return None

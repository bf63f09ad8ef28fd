"""Compute capabilities: the one number that says which machine code a GPU executes."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

_TEXT = re.compile(
    r"^(?:(?:sm|compute)_?)?(?P<digits>\d{2,3})[af]?$|^(?P<major>\d{1,2})\.(?P<minor>\d)$", re.IGNORECASE
)


class ComputeCapability(NamedTuple):
    """A GPU's compute capability, ``8.9`` as ``(8, 9)``; orders as CUDA orders them."""

    major: int
    minor: int

    @classmethod
    def parse(cls, text: str) -> ComputeCapability:
        """Read ``8.9``, ``89``, ``sm_89``, ``compute_89`` or ``sm_90a``.

        Raises:
            ValueError: ``text`` is none of these forms.
        """
        return _parsed(text)

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"

    @property
    def sm(self) -> str:
        """The SASS name, ``sm_89``."""
        return f"sm_{self.major}{self.minor}"


@lru_cache(maxsize=256)
def _parsed(text: str) -> ComputeCapability:
    match = _TEXT.match(text.strip())
    if match is None:
        raise ValueError(f"not a compute capability: {text!r}")
    if match["digits"]:
        return ComputeCapability(int(match["digits"][:-1]), int(match["digits"][-1]))
    return ComputeCapability(int(match["major"]), int(match["minor"]))

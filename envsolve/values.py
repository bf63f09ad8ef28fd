"""Comparing dotted versions of drivers and toolkits, where the shorter of two may simply be less precise."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal, NamedTuple

import msgspec


@lru_cache(maxsize=4096)
def numbers(version: str) -> tuple[int, ...]:
    """``550.54.15`` as ``(550, 54, 15)``; anything after the digits and dots is ignored."""
    match = re.match(r"\d+(?:\.\d+)*", version.strip())
    return tuple(int(part) for part in match[0].split(".")) if match else ()


def reaches(have: str, need: str) -> bool | None:
    """Whether ``have`` is ``need`` or newer; None where ``have`` is too imprecise to tell (``580`` for ``580.65``)."""
    got, wanted = numbers(have), numbers(need)
    if not got or not wanted:
        return None
    shared = min(len(got), len(wanted))
    if got[:shared] != wanted[:shared]:
        return got > wanted
    return None if len(got) < len(wanted) and any(wanted[shared:]) else True


def minor(cuda: str) -> tuple[int, int]:
    """A CUDA version's major and minor: ``12.8.1`` as ``(12, 8)``."""
    parts = (*numbers(cuda), 0, 0)
    return parts[0], parts[1]


# Compute capabilities: the one number that says which machine code a GPU executes.


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


# Names of GPU code: ``sm_90a`` (SASS) and ``compute_90`` (PTX).


_NAME = re.compile(r"^(sm|compute)_(\d+)(\d)([af]?)$")


class Arch(msgspec.Struct, frozen=True):
    """One piece of code in a build.

    Attributes:
        kind: ``sass`` (a cubin) or ``ptx``.
        cc: The compute capability it was made for.
        suffix: ``a`` (that very card), ``f`` (its family), or empty.
    """

    kind: Literal["sass", "ptx"]
    cc: ComputeCapability
    suffix: str
    name: str


@lru_cache(maxsize=512)
def parse_arch(name: str) -> Arch:
    """Read ``sm_90``, ``sm_90a``, ``sm_100f`` or ``compute_90``.

    Raises:
        ValueError: ``name`` is not of that form.
    """
    match = _NAME.match(name)
    if match is None:
        raise ValueError(f"not the name of GPU code: {name!r}")
    kind: Literal["sass", "ptx"] = "sass" if match[1] == "sm" else "ptx"
    return Arch(kind, ComputeCapability(int(match[2]), int(match[3])), match[4], name)


# Names of processor architectures.


_SPELT = {"amd64": "x86_64", "x64": "x86_64", "x86-64": "x86_64", "arm64": "aarch64"}


def architecture(name: str) -> str:
    """The architecture's name as wheels spell it on Linux: ``AMD64`` is ``x86_64``, ``arm64`` is ``aarch64``."""
    return _SPELT.get(name.lower(), name.lower())

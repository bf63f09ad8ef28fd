"""Names of GPU code: ``sm_90a`` (SASS) and ``compute_90`` (PTX)."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal

import msgspec

from envsolve.machine.cc import ComputeCapability

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

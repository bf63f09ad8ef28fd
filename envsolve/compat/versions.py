"""Comparing dotted versions of drivers and toolkits, where the shorter of two may simply be less precise."""

from __future__ import annotations

import re
from functools import lru_cache


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

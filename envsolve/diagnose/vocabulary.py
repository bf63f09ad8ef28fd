"""Whether a text can hold a word at all: asked of the few distinct words of a large text in place of all of it.

A log of ten megabytes has some thousand distinct words, and hundreds of literals are looked for in it, nearly all of
which it does not have. The distinct words are gathered in one pass; a literal is looked for only where they allow it.
"""

from __future__ import annotations

import re
from functools import lru_cache

_LETTERS = bytes(byte if chr(byte).islower() and byte < 128 else 0x20 for byte in range(256))


class Vocabulary:
    """The distinct runs of ASCII letters of a lower-case text."""

    def __init__(self, lowered: str) -> None:
        """Gather them; what is no ASCII letter only separates."""
        runs = set(lowered.encode("ascii", "replace").translate(_LETTERS).split())
        self._runs = b" ".join(runs).decode("ascii")

    def allows(self, word: str) -> bool:
        """Whether the text may hold ``word`` (lower case, ASCII). False is certain, True is not."""
        return _longest_run(word) in self._runs


@lru_cache(maxsize=4096)
def _longest_run(word: str) -> str:
    return max(re.findall("[a-z]+", word), key=len, default="")

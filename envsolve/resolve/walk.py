"""A search for things in order, begun once and gone on with by whoever wants more of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

Thing = TypeVar("Thing")


class Walk(Generic[Thing]):
    """What an iterator yields, found as far as somebody asked for it, any number of times from the start.

    Backtracking comes back to the same package with the same specifiers thousands of times, and takes the first.
    """

    def __init__(self, source: Iterator[Thing]) -> None:
        self._source = source
        self._found: list[Thing] = []

    def __iter__(self) -> Iterator[Thing]:
        place = 0
        while True:
            if place == len(self._found):
                try:
                    self._found.append(next(self._source))
                except StopIteration:
                    return
            yield self._found[place]
            place += 1

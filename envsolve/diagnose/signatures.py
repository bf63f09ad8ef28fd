"""Finding error signatures in a text of any size and kind, in time that grows linearly with it.

A signature names literal anchors; only windows around them are matched with its pattern. The windows are of bounded
length, and their number per signature is bounded: neither a long line nor a repeated error costs more than that.
"""

from __future__ import annotations

import re
import time
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import chain

from envsolve.diagnose.cause_files import Signature, signatures
from envsolve.diagnose.model import Vocabulary
from envsolve.system.limits import SIGNATURE_SECONDS

#: Characters of a window before and after the anchor: the longest symbol names and requirement lines fit.
_BEFORE, _AFTER = 600, 1200
#: Lines of a window: messages are wrapped, but not over more than these.
_LINES = 3
_MATCHES = 8
_TRIES = 200
_ESCAPES = re.compile(r"\x1b\[[0-9;]{0,12}[A-Za-z]")
# What frames a line: quoting, boxes, the bullets of uv and conda, and the names that Docker Compose, vLLM and torchrun
# put before each line of a process.
_FRAME = re.compile(
    r"\n[\s|>?]{0,40}(?:[\w.-]{1,40} {0,8}\| )?(?:(?:\(\w[\w ]{0,40}pid=\d{1,8}\)|\[rank\d{1,4}\]:)\s{0,16}){0,3}"
)
_SPACE = re.compile(r"\s+")
# No version or number is as long, and a pattern with two of them takes a second for a thousand digits.
_NUMBER = re.compile(r"([\d.]{80})[\d.]+")
_QUOTED = 240


@dataclass(frozen=True, slots=True)
class Match:
    """A signature found in a text.

    Attributes:
        line: Number of the anchor's line, from 1.
        quote: That line, shortened.
        groups: The named groups that took part.
    """

    signature: Signature
    line: int
    quote: str
    groups: Mapping[str, str]

    def group(self, *names: str) -> str | None:
        """The first named group that matched."""
        return next((self.groups[name] for name in names if name in self.groups), None)

    @property
    def evidence(self) -> str:
        """The line as evidence: ``line 12: ...``."""
        return f"line {self.line}: {self.quote}"


@dataclass(frozen=True)
class Text:
    """A text made ready for the search: ASCII of the same length, its lower case, and where its lines begin."""

    original: str
    plain: str = field(init=False)

    def __post_init__(self) -> None:
        plain = self.original.encode("ascii", "replace").decode("ascii").replace("\r", "\n").replace("\0", " ")
        object.__setattr__(self, "plain", plain)

    @cached_property
    def lower(self) -> str:
        """The text in lower case, position by position."""
        return self.plain.lower()

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """Determines which anchors cannot occur, so that they are not searched for."""
        return Vocabulary(self.lower)

    @cached_property
    def _breaks(self) -> Sequence[int]:
        """Where the lines end that an editor counts: a carriage return in a line, or before its end, begins none."""
        end = "\n" if "\n" in self.original else "\r"
        # A list of Python's numbers takes ten times the memory.
        return array("Q", (match.start() for match in re.finditer(end, self.original)))

    def number_at(self, position: int) -> int:
        """The number of the line that a position is on, as an editor counts, from 1."""
        return 1 + bisect_right(self._breaks, position)

    @cached_property
    def starts(self) -> Sequence[int]:
        """Where each line begins."""
        return array("Q", chain((0,), (match.end() for match in re.finditer("\n", self.plain))))

    def line_at(self, position: int) -> int:
        """The place of the line that a position is on, from 1; carriage returns end lines, too."""
        return bisect_right(self.starts, position)

    def end_of(self, line: int) -> int:
        """Where a line ends; the end of the text for a line that it does not have."""
        return self.starts[line] - 1 if line < len(self.starts) else len(self.plain)

    def quote(self, line: int, position: int) -> str:
        """The words around a position of a line, on one line."""
        begin, end = self.starts[line - 1], self.end_of(line)
        start = begin if end - begin <= _QUOTED else max(begin, position - _QUOTED // 2)
        words = self.original[start : min(end, start + 2 * _QUOTED)]
        shown = "".join(c if c.isprintable() else " " for c in _ESCAPES.sub("", words))
        if start > begin:
            shown = "..." + shown.partition(" ")[2]
        return _SPACE.sub(" ", shown).strip()[:_QUOTED]


def find_matches(text: str, signatures: Sequence[Signature]) -> tuple[Match, ...]:
    """Every signature that a text shows, in the order of the signatures, each with its first few places.

    A text made to be slow is not searched to its end (:data:`SIGNATURE_SECONDS`).
    """
    ready, until = Text(text), time.thread_time() + SIGNATURE_SECONDS
    return tuple(match for signature in signatures for match in _matches(ready, signature, until))


def cause_of(text: str) -> str | None:
    """The most likely cause by the words only; None if they indicate none."""
    return next((m.signature.causes[0] for m in find_matches(text, signatures()) if m.signature.causes), None)


def explain(text: str) -> tuple[str | None, str | None]:
    """The most likely cause of an error text, and its explanation; for the checks of ``verify``."""
    return cause_of(text), explanation_of(text)


def explanation_of(text: str) -> str | None:
    """The meaning of an error that is not a cause of a broken environment, or None."""
    return next((m.signature.says for m in find_matches(text, signatures()) if m.signature.says), None)


def _matches(text: Text, signature: Signature, until: float) -> Iterator[Match]:
    # The clock last: it is asked for each of hundreds of signatures, and most texts have the letters of a few anchors.
    anchors = [anchor for anchor in signature.anchors if text.vocabulary.allows(anchor)]
    places = _places(text, anchors) if anchors and time.thread_time() < until else ()
    if not places:
        # Compiling all patterns takes 0.2 s, and most texts have the anchors of a few.
        return
    pattern = _compiled(signature.pattern)
    seen: set[tuple[tuple[str, str], ...]] = set()
    for position in places:
        found = pattern.search(_window(text, position))
        if found is None:
            if time.thread_time() > until:
                return
            continue
        groups = {name: value.strip() for name, value in found.groupdict().items() if value}
        if (key := tuple(groups.items())) in seen:
            continue
        seen.add(key)
        line = text.line_at(position)
        yield Match(signature, text.number_at(position), text.quote(line, position), groups)
        if len(seen) == _MATCHES:
            return


def _places(text: Text, anchors: Sequence[str]) -> list[int]:
    """The places of anchors in order; places within the same window of lines count once."""
    found: list[int] = []
    for anchor in anchors:
        position, tries = text.lower.find(anchor), 0
        while position >= 0 and tries < _TRIES:
            found.append(position)
            tries += 1
            after = min(text.end_of(text.line_at(position)), position + _AFTER)
            position = text.lower.find(anchor, max(after, position + 1))
    return sorted(found)


def _window(text: Text, position: int) -> str:
    line = text.line_at(position)
    start = max(text.starts[line - 1], position - _BEFORE)
    end = min(text.end_of(line + _LINES - 1), position + _AFTER)
    words = _ESCAPES.sub("", text.plain[start:end])
    return _NUMBER.sub(r"\1", _SPACE.sub(" ", _FRAME.sub(" ", words)))


def search_near(text: str, pattern: re.Pattern[str], *words: str) -> re.Match[str] | None:
    """A match of a pattern near one of the literals that every match of it holds, if the text has one.

    A pattern that may begin at any character takes five seconds for 20 MiB; finding literals takes 0.01.
    """
    for word in words:
        at = text.find(word)
        for _ in range(_TRIES):
            if at < 0:
                break
            start = max(text.rfind("\n", 0, at) + 1, at - _BEFORE)
            end = text.find("\n", at, at + _AFTER)
            end = min(len(text), at + _AFTER) if end < 0 else end
            if found := pattern.search(text, start, end):
                return found
            at = text.find(word, end)
    return None


@lru_cache(maxsize=512)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE | re.ASCII)

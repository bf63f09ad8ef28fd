"""A report as lines that can be searched: decoded, without colour codes and prefixes, in time linear in its size."""

from __future__ import annotations

import codecs
import re
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, chain, islice
from typing import BinaryIO

from envsolve.diagnose.model import Vocabulary
from envsolve.system.limits import LOG_BYTES, LOG_LINES, LOG_READ, LOG_SECONDS, MIB, LimitError, has_long_number

MAX_LINE = 10_000
"""Characters of a line that are looked at: pip lists all that it installed in one line."""
MAX_LINES = 200_000
"""Lines that hold something and are looked at from the start of a text, and as many from its end."""
SAME_SHAPE = 20
"""How many lines that differ only in numbers are searched from the start and from the end.

A program that repeats a message a hundred thousand times says nothing new in the middle: the first and last ones do.
"""
MOST_FOUND = 1_000
"""Lines with the words of one kind of fact that are looked at from the start, and as many from the end.

With 5,000 a log made of all the words takes half a minute.
"""
_MAX_QUOTE = 200
_DIGITS = {ord(digit): "0" for digit in "123456789"}
#: Each halves a run of zeros: enough for numbers of 32 digits.
_HALVINGS = 5

_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_ESCAPES = re.compile(
    r"\x1b\[[0-?]{0,30}[ -/]{0,5}[@-~]"  # colours and cursor movements
    r"|\x1b\][^\x07\x1b]{0,300}(?:\x07|\x1b\\)"  # titles and links
    r"|\x1b[@-Z\\-_]"
)
# What log collectors put before a program's own line: GitHub's time stamp, BuildKit's step and seconds.
_STAMP = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?Z?\s")
_BUILDKIT = re.compile(r"#\d{1,4} (?:\d{1,6}\.\d{1,4} )?")
# Control and format characters, which could make a terminal show another thing than what is there; lone surrogates.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\xa0\xad\u061c\u200b-\u200f\u2028-\u202f\u2060-\u206f\ufeff\ud800-\udfff]")
# As Chinese and Japanese reports write "GPU: ..., driver: ...".
_FULL_WIDTH = str.maketrans("\uff1a\uff0c\uff08\uff09\uff1d\u3000\u3001", ":,()= ,")
_LONG_NUMBER = re.compile(r"\d{100,}")
_PART = re.compile(r"[^\r\n]+")
_ASTRAL = re.compile("[\U00010000-\U0010ffff]")
_QUOTED = re.compile(r"(?:> ?){1,5}(?!>)")


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a report.

    Attributes:
        number: As an editor counts, from 1.
        index: Its place in :attr:`Log.lines`.
        text: Without colour codes, prefixes of log collectors, and what is beyond :data:`MAX_LINE`.
    """

    number: int
    index: int
    text: str

    @property
    def quote(self) -> str:
        """The line as evidence: printable, without superfluous space, shortened."""
        words = "".join(c if c.isprintable() else " " for c in self.text[: 4 * _MAX_QUOTE]).split()
        text = " ".join(words)
        return text if len(text) <= _MAX_QUOTE else f"{text[: _MAX_QUOTE - 3]}..."


class Log:
    """A report's lines, with a search that costs one pass per word however many lines there are."""

    def __init__(self, text: str) -> None:
        """Split and clean ``text``; a carriage return within a line begins a new one with the same number."""
        if "\n" not in text:
            text = text.replace("\r", "\n")
        lines: list[Line] = []
        for number, part in _numbered(text):
            lines.append(Line(number, len(lines), _clean(part[:MAX_LINE])))
        self.lines = tuple(lines)
        lowered = "\n".join(line.text for line in lines).lower()
        kept = _without_repetition(lowered)
        self._searched = [lines[index] for index in kept] if lines else []
        every = lowered.split("\n")
        lowered = "\n".join(every[index] for index in kept)
        self._lowered = lowered
        self._starts = [0, *accumulate(len(every[index]) + 1 for index in kept[:-1])]
        self._vocabulary = Vocabulary(lowered)
        self._until = time.thread_time() + LOG_SECONDS

    def containing(self, *words: str) -> Iterator[Line]:
        """Lines that hold any of the words (lower case, ASCII), in order; case does not count.

        Of lines that differ in nothing but numbers the first and the last few stand for all (:data:`SAME_SHAPE`), and
        of very many that hold the words the first and the last (:data:`MOST_FOUND`). A log made of all words at once
        is not searched for all of them (:data:`~envsolve.system.limits.LOG_SECONDS`).
        """
        found: set[int] = set()
        for word in words:
            if not self._vocabulary.allows(word) or time.thread_time() > self._until:
                continue
            at = self._lowered.find(word)
            while at >= 0:
                index = bisect_right(self._starts, at) - 1
                found.add(index)
                if index + 1 == len(self._starts):
                    break
                at = self._lowered.find(word, self._starts[index + 1])
        places = sorted(found)
        if len(places) > 2 * MOST_FOUND:
            places = places[:MOST_FOUND] + places[-MOST_FOUND:]
        for index in places if self._searched else ():
            if time.thread_time() > self._until:
                return
            yield self._searched[index]

    def after(self, line: Line, count: int) -> tuple[Line, ...]:
        """The ``count`` lines that follow."""
        return self.lines[line.index + 1 : line.index + 1 + count]

    def before(self, line: Line, count: int) -> tuple[Line, ...]:
        """The ``count`` lines that precede, the nearest first."""
        return self.lines[max(0, line.index - count) : line.index][::-1]


def _numbered(text: str) -> Iterator[tuple[int, str]]:
    """The parts at both ends of a text that hold something, with their line numbers.

    50 million empty lines take 6 GB as a list.
    """
    parts, number, counted = _PART.finditer(text), 1, 0
    for part in chain(islice(parts, MAX_LINES), _last(parts)):
        number += text.count("\n", counted, part.start())
        counted = part.start()
        yield number, part[0]


def _last(parts: Iterator[re.Match[str]]) -> Iterator[re.Match[str]]:
    yield from deque(parts, MAX_LINES)


def _without_repetition(lowered: str) -> list[int]:
    """The places of the lines to search: all but the middle ones of those that differ only in numbers."""
    shapes = lowered.translate(_DIGITS)
    for _ in range(_HALVINGS):
        shapes = shapes.replace("00", "0")
    seen: dict[str, list[int]] = {}
    for index, shape in enumerate(shapes.split("\n")):
        seen.setdefault(shape, []).append(index)
    if all(len(places) <= 2 * SAME_SHAPE for places in seen.values()):
        return list(range(lowered.count("\n") + 1))
    ends = (
        places if len(places) <= 2 * SAME_SHAPE else places[:SAME_SHAPE] + places[-SAME_SHAPE:]
        for places in seen.values()
    )
    return sorted(chain.from_iterable(ends))


def with_short_numbers(text: str) -> str:
    """A text without numbers of more digits than Python converts: a report is read for what it says elsewhere."""
    if has_long_number(text.encode("utf-8", "replace")):
        return _LONG_NUMBER.sub("...", text)
    return text


def decode(data: bytes) -> str:
    """The text of a file that a shell or an editor wrote: UTF-8, UTF-16 as PowerShell writes it, otherwise Latin-1.

    Every input decodes; bytes that are not text become odd characters, not an error.
    """
    mark, encoding = _encoding(data[:4000])
    if encoding is not None:
        return data[mark:].decode(encoding, "replace")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        pass
    # One odd byte in a log of UTF-8 is damage; many are another encoding.
    text = data.decode("utf-8", "replace")
    return text if text.count("\ufffd") <= len(text) // 1000 else data.decode("latin-1")


def _encoding(start: bytes) -> tuple[int, str | None]:
    """The length of the byte order mark that a file starts with, and the encoding; None if only the whole shows it."""
    for mark, encoding in _BOMS:
        if start.startswith(mark):
            return len(mark), encoding
    if start and start.count(0) > len(start) // 3:  # ASCII as UTF-16 has a zero in every second byte
        odd = start[1::2].count(0) >= start[::2].count(0)
        return 0, "utf-16-le" if odd else "utf-16-be"
    return 0, None


def read_log(file: BinaryIO) -> tuple[str, int]:
    """The text of a log and its size in bytes; of a large one the text from both ends, with the line ends between.

    Raises:
        LimitError: The log has no end within :data:`LOG_READ`.
    """
    half = LOG_BYTES // 2
    head, tail, size, breaks = bytearray(), deque[bytes](), 0, 0
    while data := file.read(MIB):
        size += len(data)
        if size > LOG_READ:
            raise LimitError(f"the text is larger than {LOG_READ // MIB} MiB")
        taken = data[: half - len(head)]
        head += taken
        if len(taken) < len(data):
            tail.append(data[len(taken) :])
        while len(tail) > half // MIB + 1:
            breaks += tail.popleft().count(b"\n")
    mark, encoding = _encoding(bytes(head[:4000]))
    rest = b"".join(tail)
    if len(rest) <= half:
        return decode(bytes(head) + rest), size
    # A character of UTF-32 has four bytes: the cut must not go through one.
    cut = len(rest) - half + (half - size) % 4
    breaks += rest.count(b"\n", 0, cut)
    name = "utf-8" if encoding is None else encoding
    last = rest[cut:].decode(name, "replace")
    first = head[mark:].decode(name, "replace")
    # Characters beyond the basic plane make Python store every one of the text in four bytes.
    texts = (_ASTRAL.sub("?", part) for part in (first, "\n" * min(breaks, LOG_LINES), last))
    return "".join(texts), size


def _clean(text: str) -> str:
    if "\x1b" in text:
        text = _ESCAPES.sub("", text)
    if "\t" in text:
        text = text.replace("\t", "    ")
    if not text.isascii():
        text = text.translate(_FULL_WIDTH)
    if not text.isprintable():
        text = _UNPRINTABLE.sub(" ", text)
    if text[:1] in "0123456789#" and (match := _STAMP.match(text) or _BUILDKIT.match(text)):
        text = text[match.end() :]
    if text[:1] == ">" and text[:3] != ">>>" and (match := _QUOTED.match(text)):
        text = text[match.end() :] if _is_quotation(text, match.end()) else text
    return text.rstrip()


def _is_quotation(text: str, end: int) -> bool:
    """Whether ``>`` quotes a line; ``> pip install x`` is a Windows prompt, and the command keeps it."""
    return not re.match(r"(?:pip|python|py|conda|uv|set|nvcc|nvidia-smi)\b", text[end : end + 12])

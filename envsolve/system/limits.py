"""Every limit on input from others, and the functions that enforce them.

An index, a wheel, a log or a Dockerfile may be written by anybody. A reader that goes over one of these limits stops
with an error that names the limit; it never waits or grows without end.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Protocol

MIB = 2**20
PAGE_BYTES = 256 * MIB
"""A project page, decompressed. The largest on the default index had 40 MB in 2026."""
METADATA_BYTES = 16 * MIB
"""A METADATA, PKG-INFO or ``.metadata`` file; real ones have a few kilobytes."""
RANGE_BYTES = 64 * MIB
"""One part of a file. The largest step that is requested has 8 MiB; a table of contents may be larger."""
SDIST_BYTES = 256 * MIB
"""Limit on decompressed bytes of an sdist before its PKG-INFO is found."""
DOWNLOAD_BYTES = 16 * 1024 * MIB
"""A file that is downloaded and whose size its index does not say. The largest wheels have 4 GiB."""
SLOWEST = 8 * 1024
"""Bytes per second: a response gets its time limit and one second more for each of these."""
NAME_LENGTH = 255
"""Characters of a file name: no file system takes a longer one."""
TAGS = 1000
"""Combinations of the tags in a wheel's name: ``py2.py3-none-any`` has two, real wheels fewer than a hundred."""
SUMMARY_LENGTH = 200
"""Characters of the summary of a package that are kept."""
ODD_FILES = 20
"""Files whose metadata cannot be had and that a plan leaves out: for each the search begins anew."""
TARGET_LENGTH = 1000
"""Characters of a machine in words."""
REQUIREMENT_FILES = 500
"""Requirement files read for one request, each as often as it is named."""
REQUIREMENT_DEPTH = 30
"""Requirement files that name each other in a chain."""
INSTRUCTION_LINES = 50_000
"""Lines of a Dockerfile: to join the lines of one instruction takes the square of their number."""
STAGES = 100
"""Stages of a Dockerfile: each is judged with all commands that led to it. Real ones have up to thirty."""
COMMANDS = 4000
"""Commands of a Dockerfile; ten times as many if each stage counts those of the stages that it is built on again."""
VARIABLE_LENGTH = 64 * 1024
"""Characters of a Dockerfile variable or word with its variables expanded."""
NODE_BYTES = 4 * MIB
"""The answer of one node of a fleet: its profile, or its report. The largest have a few hundred kilobytes."""
LOG_BYTES = 20 * MIB
"""A log: half of it from the start, half from the end. The lines between are counted."""
LOG_READ = 4096 * MIB
"""Limit on bytes read to find the end of a log; a pipe may be endless."""
LOG_LINES = 4_000_000
"""Lines of a log that are counted: beyond, the numbers of its last lines are too low."""
SIGNATURE_SECONDS = 3.0
"""Seconds of work that all signatures may take on one text. A build log of 30 MiB takes less than one."""
LOG_SECONDS = 3.0
"""Seconds of work after which a log is not searched for more words. A build log of 20 MiB takes less than one."""
YAML_DEPTH = 50
"""Brackets within each other in YAML: its parser takes 15 seconds for 800, without an end in sight for more."""
KEY_PARTS = 500
"""Parts of a dotted key in TOML (``tool.uv.sources`` has 3): its parser takes 2 seconds for 10,000, 7 for 20,000."""
REQUIREMENT_LENGTH = 16 * 1024
"""Characters of one requirement, version or specifier."""

NUMBER_DIGITS = 4300
"""Digits of a number in a file: Python refuses to convert more, and without that limit takes the square of them."""

# packaging converts the numbers of a version only when it is compared. A version of more than 20 digits exceeds what
# an index stores.
_LONG_NUMBER = re.compile(r"\d{100}")
_AS_ZERO = bytes(48 if chr(code) in "0123456789" else 32 for code in range(256))
_BRACKET = re.compile(r"[][{}]")
#: Strings and comments of TOML, whose dots separate nothing; unclosed ones go on to the end of the line or file.
_TOML_TEXT = re.compile(
    r"""\"{3}[\s\S]*?(?:\"{3}|\Z)|'{3}[\s\S]*?(?:'{3}|\Z)|"(?:[^"\\\n]|\\.)*"?|'[^'\n]*'?|\#[^\n]*"""
)
_NO_KEY = re.compile(r"[^\w.\s-]|\n")
# C0 without tab and line feed, DEL, C1, and the characters that reorder or hide text in a terminal.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
# Runners of GitHub ignore blanks before a command.
_COMMAND = re.compile(r"^([^\S\n]*)(?=::)", re.MULTILINE)


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


class LimitError(ValueError):
    """Input is larger than a limit of this module; the text names both."""


def joined(parts: Iterable[bytes], limit: int, what: str) -> bytes:
    """The parts of a body as one; a gigabyte of blanks compresses to a megabyte.

    Raises:
        LimitError: They are larger than the limit.
    """
    kept, left = [], limit
    for part in parts:
        kept.append(part)
        left -= len(part)
        if left < 0:
            raise LimitError(f"{what} is larger than {limit // MIB} MiB")
    return b"".join(kept)


class Counted:
    """A stream that may be read up to a limit, for readers that take a stream."""

    def __init__(self, file: _Readable, limit: int, what: str) -> None:
        self._file, self._left = file, limit
        self._message = f"more than {limit // MIB} MiB of {what} were read"

    def read(self, size: int, /) -> bytes:
        """Read as the stream does, and raise LimitError past the limit."""
        data = self._file.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise LimitError(self._message)
        return data


def depth(text: str) -> int:
    """How deep brackets and braces are nested, those in strings included."""
    deepest = level = 0
    for found in _BRACKET.finditer(text):
        level = level + 1 if found[0] in "[{" else max(level - 1, 0)
        deepest = max(deepest, level)
    return deepest


def key_parts(text: str) -> int:
    """The most parts that a dotted key in TOML has, if they are more than :data:`KEY_PARTS`; otherwise 0."""
    # Strings are only told apart where a line has so many dots: almost no file has one.
    if all(line.count(".") < KEY_PARTS for line in text.split("\n") if len(line) > KEY_PARTS):
        return 0
    most = 1 + max(piece.count(".") for piece in _NO_KEY.split(_TOML_TEXT.sub("x", text)))
    return most if most > KEY_PARTS else 0


def has_long_number(data: bytes) -> bool:
    """Whether a text has a number of more than :data:`NUMBER_DIGITS` digits; no reader is given one."""
    # A pattern would take the square of many numbers that are a little shorter.
    return len(data) > NUMBER_DIGITS and b"0" * (NUMBER_DIGITS + 1) in data.translate(_AS_ZERO)


def is_sane(text: str) -> bool:
    """Whether a version, specifier or requirement is one that packaging can compare and any file can hold.

    It is short, without numbers that are too long to convert, and without control characters, which a URL in it would
    carry into every output.
    """
    return len(text) <= REQUIREMENT_LENGTH and not (_LONG_NUMBER.search(text) or _CONTROL.search(text.strip()))


def single_line(text: str) -> str:
    """A text with white space as spaces, and ``?`` for others that are invisible (ESC, right-to-left marks)."""
    # One question in C for what nearly all texts are: thousands of profiles of a fleet are read at once.
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else " " if one.isspace() else "?" for one in text)


def count_of(number: int, noun: str = "package", plural: str | None = None) -> str:
    """``1 package``, ``2 packages``."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def printable(text: str, *, commands: bool = False) -> str:
    """Escape control characters, which a terminal would obey; line feeds and tabs stay.

    In a workflow of GitHub a line that begins with ``::`` sets variables, or ends all other commands.

    Args:
        text: What is printed.
        commands: Whether it is made of such commands.
    """
    if not text.isprintable():
        text = _CONTROL.sub(lambda found: ascii(found[0])[1:-1], text)
    return _COMMAND.sub(r"\1\\", text) if "::" in text and not commands and os.environ.get("GITHUB_ACTIONS") else text

"""The text of a requirement file, by the rules of pip's "Requirements File Format".

A backslash joins lines, ``#`` after white space starts a comment, ``${NAME}`` is a variable, and a byte order mark or a
``coding:`` comment names the encoding.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Mapping

from envsolve.packages.requirements import wrong

# Not with the white space in front of it: a long run would be looked through once for every character of it.
_COMMENT = re.compile(r"(?<!\S)#.*$")
_CODING = re.compile(rb"coding[:=]\s*([-\w.]+)")
_VARIABLE = re.compile(r"\$\{([A-Z0-9_]+)\}")
# The marks of UTF-32 begin with those of UTF-16 and must be looked for first.
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


def decode(data: bytes, origin: str) -> str:
    """The text of a file: by its byte order mark, otherwise its ``coding:`` comment, otherwise UTF-8.

    Raises:
        UsageError: The bytes are not of that encoding, or the encoding is unknown.
    """
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return _decode(data[len(mark) :], encoding, origin)
    for line in data.split(b"\n")[:2]:
        if line.startswith(b"#") and (match := _CODING.search(line)):
            return _decode(data, match[1].decode("ascii"), origin)
    return _decode(data, "utf-8", origin)


def logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Number (from 1) and content of each line that is not empty, continuations joined and comments taken off."""
    start, pieces = 0, list[str]()
    for number, line in enumerate([*text.splitlines(), ""], 1):
        start = start if pieces else number
        is_comment = line.lstrip().startswith("#")
        if line.endswith("\\") and not is_comment:
            pieces.append(line[:-1])
            continue
        # The space keeps a comment line apart from the continuation that it ends.
        joined = "".join([*pieces, f" {line}" if is_comment else line])
        pieces.clear()
        if content := _COMMENT.sub("", joined).strip():
            yield start, content


def expand(line: str, environment: Mapping[str, str], origin: str) -> str:
    """Put the values of environment variables in place of ``${NAME}``.

    Raises:
        UsageError: A variable is not set: a URL with a hole in it would fail later, and less clearly.
    """

    def value(match: re.Match[str]) -> str:
        name = match[1]
        if name not in environment:
            raise wrong(origin, f"the environment variable {name} is not set", f"set {name}, or write its value")
        return environment[name]

    return _VARIABLE.sub(value, line)


def _decode(data: bytes, encoding: str, origin: str) -> str:
    try:
        text = data.decode(encoding)
    except LookupError:
        raise wrong(origin, f"unknown encoding {encoding}", "save the file as UTF-8") from None
    except UnicodeDecodeError as error:
        raise wrong(origin, f"byte {error.start} is not {encoding} text", "save the file as UTF-8") from None
    if "\0" in text:
        raise wrong(origin, "the file is not text")
    return text

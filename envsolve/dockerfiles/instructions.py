"""A Dockerfile split into instructions, with the documents that are written inside it. Pure.

dockerfile-parse splits the text. It knows neither documents (``RUN <<EOF``) nor a byte order mark: documents are folded
away before, so that their lines are not read as instructions.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

_OPENED = re.compile(r"(?<!<)<<(-?)([\"']?)([A-Za-z_]\w*)\2")
_TAKES_DOCUMENTS = re.compile(r"\s*(ONBUILD\s+)?(RUN|COPY|ADD)\b", re.IGNORECASE)
_ESCAPE = re.compile(r"#\s*escape\s*=\s*(\S)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction.

    Attributes:
        line: Where it begins, from 1.
        name: ``RUN``, in capitals.
        value: What follows it, continued lines joined.
        documents: What is written inside the file for it, by the word that ends each.
    """

    line: int
    name: str
    value: str
    documents: Mapping[str, str]


def instructions(text: str) -> Iterator[Instruction]:
    """The instructions of a Dockerfile, in order; comments are none."""
    from dockerfile_parse import DockerfileParser

    text = re.sub(r"\r\n?", "\n", text.removeprefix("\ufeff"))
    escape = _escape(text)
    text = re.sub(rf"{re.escape(escape)}\s*\Z", "", text)  # it continues nothing
    lines, documents = _fold(text.split("\n"), escape)
    folded = "\n".join(_continued(lines, escape))
    parser = DockerfileParser(fileobj=io.BytesIO(folded.encode("utf-8", "replace")))
    for found in parser.structure:
        if found["instruction"] != "COMMENT":
            own = documents.get(found["endline"], {})
            yield Instruction(found["startline"] + 1, found["instruction"], found["value"], own)


def shell_text(instruction: Instruction) -> str:
    """What a shell is given to run by a RUN: the document, where the words before it name no program but a shell."""
    value = re.sub(r"^(\s*--\w+(=\S+)?)+", "", instruction.value)
    if instruction.documents:
        program = _OPENED.sub("", value).strip()
        if re.fullmatch(r"((\S*/)?(ba|da|z)?sh(\s+-\w+)*)?", program):
            return next(iter(instruction.documents.values()))
    return value


def _escape(text: str) -> str:
    """What continues a line: a backslash, if no directive at the top of the file says otherwise."""
    for line in text.split("\n"):
        if not re.match(r"\s*#\s*\w+\s*=", line):
            break
        if match := _ESCAPE.match(line.strip()):
            return match[1]
    return "\\"


def _continued(lines: Sequence[str], escape: str) -> Iterator[str]:
    """Lines as dockerfile-parse joins them: builders pass over blanks behind a backslash, and over empty lines."""
    continued = False
    for line in lines:
        said = line.strip()
        if continued and not said:
            yield "#"
            continue
        if not said.startswith("#"):
            continued = said.endswith(escape)
        yield line.rstrip() if continued else line


def _fold(lines: list[str], escape: str) -> tuple[list[str], dict[int, dict[str, str]]]:
    """The text with every document blanked out, so that lines keep their numbers; documents by the line before them."""
    documents: dict[int, dict[str, str]] = {}
    number, inside = 0, False
    while number < len(lines):
        line = lines[number]
        inside = inside or bool(_TAKES_DOCUMENTS.match(line))
        here = number
        for opened in _OPENED.finditer(line) if inside and not line.lstrip().startswith("#") else ():
            end = _end(lines, number + 1, opened[3], bool(opened[1]))
            if end is not None:
                documents.setdefault(here, {})[opened[3]] = "\n".join(lines[number + 1 : end])
                lines[number + 1 : end + 1] = [""] * (end - number)
                number = end
        inside = inside and (line.rstrip().endswith(escape) or not line.strip() or line.lstrip().startswith("#"))
        number += 1
    return lines, documents


def _end(lines: Sequence[str], start: int, word: str, indented: bool) -> int | None:
    ends = (n for n in range(start, len(lines)) if (lines[n].lstrip("\t") if indented else lines[n]) == word)
    return next(ends, None)

"""Reading a Dockerfile: stages, variables, and the commands of RUN instructions.

dockerfile-parse splits the text into instructions. It does not know documents inside a Dockerfile (``RUN <<EOF``):
those are folded away before.
"""

from __future__ import annotations

import io
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from envsolve.dockerfiles.model import Command, Stage
from envsolve.errors import UsageError
from envsolve.files import read_regular

_HEREDOC = re.compile(r"<<-?([\"']?)(\w+)\1")
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)(?::?([-+])([^}]*))?\})")
_SEPARATORS = frozenset(";&|()\n")
# What may stand before a command, and is not one.
_KEYWORDS = frozenset(
    {"if", "then", "else", "elif", "do", "while", "until", "!", "{", "time", "exec", "sudo", "command"}
)
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)


@dataclass(slots=True)
class _Open:
    """A stage that is being read."""

    line: int
    image: str
    name: str | None
    base: Stage | None
    variables: dict[str, str]
    commands: list[Command] = field(default_factory=list)

    def closed(self) -> Stage:
        return Stage(self.line, self.image, self.name, self.base, tuple(self.commands), dict(self.variables))


def read_file(path: Path) -> str:
    """The text of a Dockerfile.

    Raises:
        UsageError: It cannot be read.
    """
    try:
        return read_regular(path).decode("utf-8", "replace")
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}", hint="name a Dockerfile") from error


def read_stages(text: str) -> tuple[Stage, ...]:
    """The stages of a Dockerfile, in order.

    Raises:
        UsageError: It has no FROM, so it is no Dockerfile.
    """
    outside: dict[str, str] = {}
    stages: list[Stage] = []
    stage: _Open | None = None
    for line, instruction, value in _instructions(text):
        if instruction == "FROM":
            if stage:
                stages.append(stage.closed())
            stage = _opened(line, _words(value, outside), stages)
        elif instruction == "ARG":
            scope = outside if stage is None else stage.variables
            for name, default in _declared(value, scope):
                scope[name] = outside.get(name, "") if default is None else default
        elif stage is None:
            continue
        elif instruction == "ENV":
            stage.variables |= {name: given or "" for name, given in _declared(value, stage.variables)}
        elif instruction == "RUN":
            stage.commands += _commands(line, value, stage.variables)
    if stage is None:
        raise UsageError("there is no FROM in it", hint="name a Dockerfile")
    return (*stages, stage.closed())


def _instructions(text: str) -> Iterator[tuple[int, str, str]]:
    """Line, instruction and value of each; the document of a RUN is its value."""
    from dockerfile_parse import DockerfileParser

    folded, documents = _fold(text)
    parser = DockerfileParser(fileobj=io.BytesIO(folded.encode()))
    for found in parser.structure:
        value = found["value"]
        line = found["startline"] + 1
        if found["instruction"] == "RUN" and _HEREDOC.search(value):
            value = documents.get(found["endline"], value)
        yield line, found["instruction"], value


def _fold(text: str) -> tuple[str, dict[int, str]]:
    """The text with every document blanked out, so that lines keep their numbers; documents by the line before them."""
    lines = text.replace("\r\n", "\n").split("\n")
    documents: dict[int, str] = {}
    number = 0
    while number < len(lines):
        opened = _HEREDOC.search(lines[number])
        starts = re.match(r"\s*(RUN|COPY|ADD)\b", lines[number], re.IGNORECASE)
        if opened and starts and (end := _end(lines, number, opened[2])) is not None:
            documents[number] = "\n".join(lines[number + 1 : end])
            lines[number + 1 : end + 1] = [""] * (end - number)
            number = end
        number += 1
    return "\n".join(lines), documents


def _end(lines: Sequence[str], number: int, word: str) -> int | None:
    return next((n for n in range(number + 1, len(lines)) if lines[n].strip() == word), None)


def _opened(line: int, words: Sequence[str], stages: Sequence[Stage]) -> _Open:
    parts = [word for word in words if not word.startswith("--")]
    image = parts[0] if parts else ""
    name = parts[2] if len(parts) > 2 and parts[1].lower() == "as" else None
    base = next((s for s in reversed(stages) if s.name and s.name.lower() == image.lower()), None)
    return _Open(line, image, name, base, dict(base.variables) if base else {})


def _declared(value: str, scope: Mapping[str, str]) -> Iterator[tuple[str, str | None]]:
    """Names and values of ENV or ARG; None for a name without a value. The old form is ``ENV NAME VALUE``."""
    words = _words(value, scope)
    if len(words) > 1 and not _ASSIGNMENT.fullmatch(words[0]):
        yield words[0], " ".join(words[1:])
        return
    for word in words:
        name, equals, given = word.partition("=")
        yield name, given if equals else None


def _commands(line: int, value: str, variables: Mapping[str, str]) -> Iterator[Command]:
    """The simple commands of a RUN; what ``export`` sets holds for those after it."""
    scope = dict(variables)
    for words in _split(re.sub(r"^(\s*--\w+=\S+)+", "", value), scope):
        given: dict[str, str] = {}
        while words and (match := _ASSIGNMENT.fullmatch(words[0])):
            given[match[1]] = match[2]
            words = words[1:]
        if not words:
            scope |= given
        elif words[0] == "export":
            scope |= {m[1]: m[2] for word in words[1:] if (m := _ASSIGNMENT.fullmatch(word))}
        else:
            yield Command(line, tuple(words), {**scope, **given})


def _split(value: str, scope: Mapping[str, str]) -> Iterator[list[str]]:
    words: list[str] = []
    for token in _tokens(value):
        if set(token) <= _SEPARATORS:
            yield from ([words] if words else [])
            words = []
        elif words or token not in _KEYWORDS:
            words.append(_resolved(token, scope))
    if words:
        yield words


def _words(value: str, scope: Mapping[str, str]) -> list[str]:
    return [_resolved(token, scope) for token in _tokens(value) if not set(token) <= _SEPARATORS]


def _tokens(value: str) -> list[str]:
    """Words and separators of a shell text; split at blanks where its quotes do not match."""
    lexer = shlex.shlex(value, posix=True, punctuation_chars=";&|()\n")
    lexer.whitespace = " \t\r"
    lexer.whitespace_split = True
    try:
        return list(lexer)
    except ValueError:
        return value.split()


def _resolved(word: str, scope: Mapping[str, str]) -> str:
    """A word with the variables that the file sets; others stay as they are written."""

    def given(match: re.Match[str]) -> str:
        name, operator, other = match[1] or match[2], match[3], match[4]
        value = scope.get(name)
        if operator == "+":
            return other if value else ""
        return value or (other if operator else match[0] if value is None else "")

    return _VARIABLE.sub(given, word)

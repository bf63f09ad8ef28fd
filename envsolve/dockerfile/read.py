"""Dockerfiles read into stages: variables, commands of RUN instructions, and the files copied before them."""

from __future__ import annotations

import io
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from envsolve.dockerfile.installs import set_by
from envsolve.dockerfile.model import Command, Copied, Stage, Text
from envsolve.errors import UsageError
from envsolve.packages.shell import assigned, simple_commands, unset, words
from envsolve.system.files import read_regular
from envsolve.system.limits import COMMANDS, INSTRUCTION_LINES, STAGES

# dockerfile-parse splits the text into instructions. It supports neither documents (``RUN <<EOF``) nor a byte order
# mark, so documents are cut out first: their lines are not instructions.


_OPENED = re.compile(r"(?<!<)<<(-?)([\"']?)([A-Za-z_]\w*)\2")
_TAKES_DOCUMENTS = re.compile(r"\s*(ONBUILD\s+)?(RUN|COPY|ADD)\b", re.IGNORECASE)
_ESCAPE = re.compile(r"#\s*escape\s*=\s*(\S)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction.

    Attributes:
        line: The line on which it begins, from 1.
        name: ``RUN``, in capitals.
        value: The rest, with continued lines joined.
        documents: Its documents, by the word that ends each.
    """

    line: int
    name: str
    value: str
    documents: Mapping[str, str]


def instructions(text: str) -> Iterator[Instruction]:
    """The instructions of a Dockerfile, in order, without comments.

    Raises:
        UsageError: It has more lines than anybody writes.
    """
    from dockerfile_parse import DockerfileParser

    if text.count("\n") > INSTRUCTION_LINES:
        raise UsageError(f"an instruction has more than {INSTRUCTION_LINES} lines", hint="give a Dockerfile")
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
    """The text that the shell of a RUN runs: the document, if no program but a shell is named before it."""
    value = re.sub(r"^(\s*--\w+(=\S+)?)+", "", instruction.value)
    if instruction.documents:
        program = _OPENED.sub("", value).strip()
        if re.fullmatch(r"((\S*/)?(ba|da|z)?sh(\s+-\w+)*)?", program):
            return next(iter(instruction.documents.values()))
    return value


def _escape(text: str) -> str:
    """The character that continues a line: a backslash, unless a directive at the top of the file says otherwise."""
    for line in text.split("\n"):
        if not re.match(r"\s*#\s*\w+\s*=", line):
            break
        if match := _ESCAPE.match(line.strip()):
            return match[1]
    return "\\"


def _continued(lines: Sequence[str], escape: str) -> Iterator[str]:
    """Lines as dockerfile-parse joins them."""
    # Builders ignore blanks behind a backslash and empty lines in a continued instruction. dockerfile-parse does not.
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
    """The text without its documents, with the same line numbers, and the documents by the line before each."""
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


# Source: Dockerfile reference. ENTRYPOINT and CMD run where the image runs.
_BUILDS_NOTHING = frozenset({"CMD", "ENTRYPOINT", "EXPOSE", "HEALTHCHECK", "LABEL", "MAINTAINER", "STOPSIGNAL"})
# Beyond what people write, even with a lock file in a document.
_LARGEST = 2**20
_AGAIN = 10  # see COMMANDS
_RUNS_NOTHING = _BUILDS_NOTHING | {"ADD", "COPY", "ENV", "SHELL", "USER", "VOLUME", "WORKDIR"}


@dataclass(slots=True)
class _Open:
    """A stage that is being read.

    Attributes:
        fixed: Names that ENV set. ARG does not change them.
        settings: What ``pip config`` sets, as variables, which override it.
    """

    line: int
    image: str
    name: str | None
    base: Stage | None
    variables: dict[str, str]
    fixed: set[str]
    platform: str = ""
    directory: str = "/"
    commands: list[Command] = field(default_factory=list)
    texts: list[Text] = field(default_factory=list)
    copied: tuple[Copied, ...] = ()
    settings: dict[str, str] = field(default_factory=dict)

    def closed(self, outside: Mapping[str, str]) -> Stage:
        variables, texts = dict(self.variables), tuple(self.texts)
        commands, names = tuple(self.commands), frozenset(outside)
        return Stage(self.line, self.image, self.name, self.base, commands, variables, self.platform, texts, names)


def read_file(path: Path) -> str:
    """The text of a Dockerfile.

    Raises:
        UsageError: It cannot be read, or is not text in UTF-8.
    """
    try:
        data = read_regular(path, _LARGEST)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}", hint="give a Dockerfile") from error
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise UsageError(f"{path} is UTF-16, which no builder reads", hint="save it as UTF-8")
    if b"\0" in data:
        raise UsageError(f"{path} is not text", hint="give a Dockerfile")
    return data.decode("utf-8", "replace")


def read_stages(text: str) -> tuple[Stage, ...]:
    """The stages of a Dockerfile, in order.

    Raises:
        UsageError: It has no FROM, or more lines, stages or commands than anybody writes.
    """
    outside: dict[str, str] = {}
    stages: list[Stage] = []
    opened: dict[int, _Open] = {}
    stage: _Open | None = None
    for one in instructions(text):
        if one.name == "FROM":
            if len(stages) >= STAGES:
                raise UsageError(f"it has more than {STAGES} stages", hint="give a Dockerfile")
            if stage:
                stages.append(stage.closed(outside))
            stage = _opened(one.line, words(one.value, outside), stages, opened)
            opened[one.line] = stage
        elif one.name == "ARG":
            _argument(one, outside, stage)
        elif stage is not None:
            _read(one, stage)
    if stage is None:
        raise UsageError("this is not a Dockerfile: it has no FROM instruction", hint="give a Dockerfile")
    stages.append(stage.closed(outside))
    _limit(stages)
    return tuple(stages)


def _limit(stages: Sequence[Stage]) -> None:
    led: dict[int, int] = {}
    for stage in stages:
        led[id(stage)] = len(stage.commands) + (led.get(id(stage.base), 0) if stage.base else 0)
    if sum(len(stage.commands) for stage in stages) > COMMANDS or sum(led.values()) > _AGAIN * COMMANDS:
        raise UsageError(f"it runs more than {COMMANDS} commands", hint="give a Dockerfile")


def _opened(line: int, given: Sequence[str], stages: Sequence[Stage], opened: Mapping[int, _Open]) -> _Open:
    parts = [word for word in given if not word.startswith("--")]
    platform = next((word.partition("=")[2] for word in given if word.startswith("--platform=")), "")
    image = parts[0] if parts else ""
    name = parts[2] if len(parts) > 2 and parts[1].lower() == "as" else None
    base = next((s for s in reversed(stages) if s.name and s.name.lower() == image.lower()), None)
    if base is None:
        return _Open(line, image, name, None, {}, set(), platform)
    before = opened[base.line]
    made = _Open(line, image, name, base, dict(base.variables), set(before.fixed), base.platform, before.directory)
    made.copied, made.settings = before.copied, dict(before.settings)
    return made


def _argument(one: Instruction, outside: dict[str, str], stage: _Open | None) -> None:
    """ARG. Without a default its value is given at build time, so the variable stays as it is written."""
    scope = outside if stage is None else stage.variables
    for name, default in _declared(one.value, scope):
        if stage is None or name not in stage.fixed:
            scope[name] = outside.get(name, unset(name)) if default is None else default


def _read(one: Instruction, stage: _Open) -> None:
    if one.name == "ENV":
        given = {name: value or "" for name, value in _declared(one.value, stage.variables)}
        stage.variables |= given
        stage.fixed |= set(given)
    elif one.name == "WORKDIR":
        stage.directory = posixpath.join(stage.directory, " ".join(words(one.value, stage.variables)))
    elif one.name in ("COPY", "ADD"):
        stage.copied += tuple(_copied(one, stage))
    elif one.name == "RUN":
        stage.commands += _commands(one, stage)
    if one.name not in _RUNS_NOTHING:
        stage.texts.append(Text(one.line, one.name, "\n".join((one.value, *one.documents.values()))))


def _declared(value: str, scope: Mapping[str, str]) -> Iterator[tuple[str, str | None]]:
    """Names and values of ENV or ARG; None for a name without a value. The old form is ``ENV NAME VALUE``."""
    given = words(value, scope)
    if len(given) > 1 and not assigned(given[0]):
        yield given[0], " ".join(given[1:])
        return
    for word in given:
        name, equals, rest = word.partition("=")
        yield name, rest if equals else None


def _copied(one: Instruction, stage: _Open) -> Iterator[Copied]:
    """Files copied from the context or from documents. Of other stages and images only the target is known."""
    given = words(one.value, stage.variables)
    while given and given[0].startswith("--"):
        if given[0].startswith("--from"):
            yield Copied((), given[-1], stage.directory)
            return
        given = given[1:]
    given = [word for word in re.sub(r'^\[|"|,|\]$', " ", " ".join(given)).split() if word]
    if one.documents and given:
        for name, document in one.documents.items():
            target = posixpath.join(given[-1], name) if given[-1].endswith("/") else given[-1]
            yield Copied((), target, stage.directory, document)
    elif len(given) > 1:
        yield Copied(tuple(given[:-1]), given[-1], stage.directory)


def _commands(one: Instruction, stage: _Open) -> Iterator[Command]:
    copied, directory = (*stage.copied, *_mounted(one.value, stage)), stage.directory
    for found, variables in simple_commands(shell_text(one), stage.variables):
        if found[0] == "cd" and len(found) > 1:
            directory = posixpath.join(directory, found[1])
        yield Command(one.line, found, {**stage.settings, **variables}, directory, copied)
        stage.settings |= set_by(found)


def _mounted(value: str, stage: _Open) -> Iterator[Copied]:
    """Files of the context that are mounted for one RUN."""
    for mount in re.findall(r"--mount=(\S+)", value):
        parts = dict(part.partition("=")[::2] for part in mount.split(","))
        target = parts.get("target") or parts.get("dst") or parts.get("destination")
        if parts.get("type", "bind") == "bind" and "from" not in parts and target:
            yield Copied((parts.get("source") or parts.get("src") or ".",), target, stage.directory)

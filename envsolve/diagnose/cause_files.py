"""The data of the causes: one ``causes/<code>/cause.toml`` each, beside the module that weighs it.

Parsing the TOML of all causes takes about a tenth of a second, so the build writes them into one JSON file
(``hatch_build.py``), which is used as long as its digest is that of the files.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Literal, TypeVar

import msgspec
from msgspec import structs

from envsolve.facts.evidence import Evidence, Source

File = TypeVar("File")

DIRECTORY = Path(__file__).parent / "causes"
#: Errors that no cause explains: faults of the program, the hardware, the disk.
_OTHER = "other_errors.toml"
_COMPILED = DIRECTORY / "_compiled.json"


class Signature(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Words of an error that suggest causes; the facts decide which of them applies.

    A text is read in windows of a line and the two after it, as ASCII (any other character is ``?``), with white space
    collapsed, whatever the case.

    Attributes:
        id: Stable name.
        anchors: Lower-case literals, one of which every match contains: they find the windows worth looking at.
        pattern: Regular expression; its named groups are explained in ``groups``.
        example: A text that matches.
        source: Key into the file's sources.
        role: What the words mean to their cause. A ``clue`` proposes no cause by itself.
        also: Further causes that the words speak for, likeliest first.
        says: What the words mean if they are about something else than a broken environment, and what to do about it.
        groups: Meaning of each named group.
        rank: Place in the order of all signatures, the specific before the general; 0 takes that of the cause.
        causes: Filled in by the loader: the cause of the file, then ``also``.
    """

    id: str
    anchors: tuple[str, ...]
    pattern: str
    example: str
    source: str
    evidence: Evidence = Evidence.DOCUMENTED
    role: str = "error"
    also: tuple[str, ...] = ()
    says: str | None = None
    groups: Mapping[str, str] = {}
    rank: int = 0
    causes: tuple[str, ...] = ()


class FixText(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One way to remove a cause, with ``str.format`` placeholders.

    Attributes:
        text: What it does and what it costs.
        command: The command; None if no command does it.
        where: The system that it is for, or ``conda`` if it is for conda environments; None for all. Only the findings
            of ``stated`` respect it.
    """

    text: str
    command: str | None = None
    where: Literal["linux", "windows", "conda"] | None = None


class Stated(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A role whose words alone prove the cause, so that no code is needed.

    Attributes:
        fixes: Names of the fixes, the smallest change first.
        explains: Causes that are consequences of this one.
    """

    fixes: tuple[str, ...]
    explains: frozenset[str] = frozenset()


Stops = Literal["running", "importing", "compiling"]


class CauseFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One ``cause.toml``.

    Attributes:
        title: The cause in one sentence, as ``docs/causes.md`` lists it.
        example: An example of what it looks like, in Markdown.
        rank: Place of its signatures in the order of all.
        stops: Whether it keeps torch from running, or only from being imported until a package is added, or only
            kernels from being compiled while torch itself runs.
        explains: Other causes that are mere consequences of this one: they are listed after it.
        sources: Where the signatures are from.
        signatures: Its own words, in the order in which they decide.
        stated: Roles that need no weighing; the explanation of each has the name of the role.
        explanations: At most three sentences that teach what happened, by name.
        fixes: By name.
        words: Parts of sentences that explanations and fixes insert, by name.
    """

    title: str
    example: str
    rank: int
    stops: Stops = "running"
    explains: frozenset[str] = frozenset()
    sources: Mapping[str, Source] = {}
    signatures: tuple[Signature, ...] = ()
    stated: Mapping[str, Stated] = {}
    explanations: Mapping[str, str] = {}
    fixes: Mapping[str, FixText] = {}
    words: Mapping[str, str] = {}


class _OtherErrors(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    rank: int
    sources: Mapping[str, Source]
    signatures: tuple[Signature, ...]


class _Files(msgspec.Struct, frozen=True):
    """The cause files by directory, and the SHA-256 of those that the compiled file was made from."""

    causes: Mapping[str, CauseFile]
    other: _OtherErrors
    digest: str = ""


class Causes(msgspec.Struct, frozen=True):
    """The data of all causes.

    Attributes:
        files: By code, in the order of the codes.
        signatures: Of all causes and of other errors, the specific before the general.
        sources: Of the signatures, by key.
    """

    files: Mapping[str, CauseFile]
    signatures: tuple[Signature, ...]
    sources: Mapping[str, Source]


@cache
def causes() -> Causes:
    """The data of all causes, from the compiled file if it matches the present files."""
    texts = {path.relative_to(DIRECTORY).as_posix(): path.read_bytes() for path in _paths()}
    try:
        read = msgspec.json.decode(_COMPILED.read_bytes(), type=_Files)
    except (OSError, msgspec.MsgspecError):
        read = None
    # An editable install may have edited files, so the digest decides.
    if read is None or read.digest != hashlib.sha256(b"".join(texts.values())).hexdigest():
        read = _parsed(texts)
    files = {code_of(directory): _folded(file) for directory, file in read.causes.items()}
    found = [s for code, file in files.items() for s in _proposing(code, file)]
    found += [structs.replace(s, rank=read.other.rank, says=_fold(s.says or "")) for s in read.other.signatures]
    sources = {key: source for file in files.values() for key, source in file.sources.items()}
    return Causes(files, tuple(sorted(found, key=lambda s: s.rank)), {**sources, **read.other.sources})


def signatures() -> tuple[Signature, ...]:
    """All signatures, the specific before the general."""
    return causes().signatures


def code_of(directory: str) -> str:
    """The code of a cause by the name of its directory: ``no_driver`` holds ``no-driver``."""
    return directory.replace("_", "-")


def _paths() -> list[Path]:
    """The cause files, in the order in which the build hashes them."""
    return [*sorted(DIRECTORY.glob("*/cause.toml")), DIRECTORY / _OTHER]


def _parsed(texts: Mapping[str, bytes]) -> _Files:
    def decoded(name: str, kind: type[File]) -> File:
        try:
            return msgspec.toml.decode(texts[name], type=kind)
        except msgspec.MsgspecError as error:
            raise ValueError(f"{DIRECTORY / name}: {error}") from error

    files = {name.partition("/")[0]: decoded(name, CauseFile) for name in texts if name != _OTHER}
    return _Files(files, decoded(_OTHER, _OtherErrors))


def _proposing(code: str, file: CauseFile) -> Iterator[Signature]:
    for signature in file.signatures:
        causes = () if signature.role == "clue" else (code, *signature.also)
        yield structs.replace(signature, causes=causes, rank=signature.rank or file.rank)


def _folded(file: CauseFile) -> CauseFile:
    """The file with its sentences on one line each, however they are wrapped in it."""
    return structs.replace(
        file,
        title=_fold(file.title),
        explanations={name: _fold(text) for name, text in file.explanations.items()},
        fixes={name: structs.replace(fix, text=_fold(fix.text)) for name, fix in file.fixes.items()},
        words={name: _fold(text) for name, text in file.words.items()},
    )


def _fold(text: str) -> str:
    return " ".join(text.split())


# docs/causes.md


_BEGIN, _END = "<!-- begin: python -m envsolve.diagnose.cause_files docs -->", "<!-- end -->"
PAGE = "causes.md"


def with_table(page: str) -> str:
    """The page with the table of causes between its markers, in the order of the ranks.

    Raises:
        ValueError: It has no markers.
    """
    before, rest = page.split(_BEGIN)
    _, after = rest.split(_END, 1)
    rows = [
        f"| `{code}` | {file.title} | {file.example} |"
        for code, file in sorted(causes().files.items(), key=lambda item: item[1].rank)
    ]
    head = ["| code | the cause | an example of what it looks like |", "|---|---|---|"]
    return "\n".join([before + _BEGIN, "", *head, *rows, "", _END]) + after


if __name__ == "__main__":
    _page = Path(sys.argv[1]) / PAGE
    _page.write_text(with_table(_page.read_text("utf-8")), "utf-8")

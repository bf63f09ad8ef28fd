"""Facts in people's words and forms: labelled values (collect_env's variants, issue templates), and sentences."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain

from envsolve.diagnose.report.gpus import counted, named
from envsolve.diagnose.report.observation import (
    VERSION,
    Fact,
    GpuGroup,
    Observation,
    Package,
    Readers,
    Trust,
    facts_of,
    is_related,
    labels,
    normalised,
    readers,
    sentences,
    shape,
    wishes,
)
from envsolve.diagnose.report.packages import frozen_line
from envsolve.diagnose.report.text import Log
from envsolve.facts.catalogue import Catalogue

READERS = Readers()

# Labelled values.

_LABELLED = re.compile(
    r"[^\w]{0,16}(?P<label>\w[^:=|\n]{1,44}?)[ *`_]{0,4}(?:[:|][ *`|]{0,30}|(?P<gap>\s{3,40})|\s=\s)(?P<value>\S.*)"
)
_NOT_WORD = re.compile(r"[^a-z0-9_.]+")
_VERSION = shape("{{START}}({{VERSION}}){{END}}")
_LABELS = labels()
# The words of the labels that programs print; those of people's labels, and of labels that name a package.
_LABEL_WORDS = (
    *(label for label, (trust, _) in _LABELS.items() if trust == Trust.PRINTED),
    "pytorch version (gpu?)", "cuda capability major/minor", "driver version / runtime", "gpu", "graphics card",
    "hardware", "driver", "gcc", "python", "torch", "vision", "version", "mmcv", "detectron2", "device 0",
    "compute cap", "jax", "numpy", "triton", "vllm", "xformers", "flash", "sglang", "bitsandbytes",
)  # fmt: skip


@READERS.log
def _labelled(log: Log, catalogue: Catalogue) -> Iterator[Observation]:
    """One fact or more of each line whose label is known."""
    for line in log.containing(*_LABEL_WORDS):
        match = _LABELLED.match(line.text)
        if match is None:
            continue
        value = match["value"].lstrip(": ")  # columns padded to a colon
        label = _NOT_WORD.sub(" ", match["label"].lower()).strip()
        if label in _LABELS:
            trust, pattern = _LABELS[label]
            if trust == Trust.PRINTED or any(sentences(line.text)):
                yield from (Observation(fact, line, trust) for fact in _of_value(pattern, value))
        elif not match["gap"] or value != match["value"] or " @/" in value:  # otherwise a row of a table of packages
            name = normalised(label.removesuffix(" version"))
            if " " not in name and is_related(name) and (version := _VERSION.match(value)):
                trust = Trust.PRINTED if " @/" in value else Trust.STATED  # Detectron2 adds the directory
                yield Observation(Package("torch" if name == "pytorch" else name, version[1]), line, trust)


def _of_value(pattern: re.Pattern[str] | None, value: str) -> Iterator[Fact]:
    if pattern is None:
        yield from counted(value)
    elif match := pattern.match(value):
        yield from facts_of(match)


# Sentences.

_PACKAGE = shape(
    r"(?<![\w./=<>-])([A-Za-z][A-Za-z0-9_-]{2,30})(?: [Vv]ersion)?"
    r"(?: is (?:now )?| bec[ao]mes? | ?: ?| = | )v?({{VERSION}}){{ENDS}}"
)
# "after updating pytorch to 2.9"
_MOVED = shape(
    r"(?i:\b(?:updat|mov|switch|upgrad)\w{1,3}) (?:my |the )?([A-Za-z][A-Za-z0-9_-]{2,30}) to v?({{VERSION}}){{ENDS}}"
)
# "pytorch2.2.1+cu118", "torchcodec0.9.1", and no name of a file.
_JOINED = re.compile(
    r"(?<![\w./-])(?:py)?(torch(?:codec|vision|audio|ao)?)(\d\.\d{1,2}\.\d(?:\+cu\d{2,3}|\+cpu)?)(?![\w.-])",
    re.IGNORECASE,
)
# People write "2.8.0 + cu129".
_VARIANT = re.compile(r" ?\+ ?(cu\d{2,3}|cpu|rocm\d\.\d)\b")
# "I have torch==2.1.0 installed"; but in a command, a requirement or a resolver's words it is a request.
_PINNED = re.compile(rf"(?<![\w.'\"-])([A-Za-z][A-Za-z0-9_.-]{{2,40}})==({VERSION})(?![\w.*])")
_REQUESTED = re.compile(
    r"\b(?:install(?!ed)\w{0,3}|pip3?|uv|conda|poetry|require\w{0,6}|satisf\w{0,5}|pin\w{0,4}|because|dependenc\w{1,4}|found)\b"
    r"|^\s{0,8}(?:ERROR|error|[-+~\"'])",
)
_ALTERNATIVE = re.compile(r"(?:[<>]=?|~=|/|[-\u2013])\s?$")
# "a card of capability 8.6, one of 8.9"; "GPUs with compute capability 7.5 and 8.0".
_CAPABILITIES = re.compile(
    r"\b(?:capabilit(?:y|ies)|of|and|cc)[ :(]{1,3}(?:of |is )?(\d{1,2}\.\d)\b(?!\.\d)", re.IGNORECASE
)
_OF_A_GPU = re.compile(r"(?=.{0,400}\b(?:cards?|GPUs?|devices?|nodes?)\b).{0,400}\b(?:capabilit|cc \d)", re.IGNORECASE)
_DIGIT = re.compile(r"\d")
_LONGEST = 2000  # characters of a paragraph
_SPOKEN = {"pytorch": "torch", "libtorch": "torch", "flash-attention": "flash-attn", "flashattention": "flash-attn"}
# People do not mean a package of the environment by these, although conda has packages with these names.
_TOOLS = frozenset({"gcc", "gxx", "cuda-compat"})
_NO_PROSE = shape("{{NO_PROSE}}")
(_SENTENCES,) = readers("sentences")


@READERS.log
def _stated(log: Log, catalogue: Catalogue) -> Iterator[Observation]:
    """Versions, GPUs, driver and tools that a sentence states."""
    for line in log.containing(*_SENTENCES.words):
        for sentence in () if _NO_PROSE.match(line.text) else sentences(line.text[:_LONGEST]):
            # A version has a digit; of what else is stated, only names of GPUs may have none.
            if _DIGIT.search(sentence):
                yield from (Observation(fact, line, Trust.STATED) for fact in _versions(sentence))
            yield from (Observation(fact, line, Trust.STATED) for fact in _gpus(sentence, catalogue))
        for sentence in () if _NO_PROSE.match(line.text) else wishes(line.text[:_LONGEST]):
            yield from (Observation(fact, line, Trust.HINTED) for fact in named(sentence, catalogue))


def _versions(sentence: str) -> Iterator[Fact]:
    for package in chain(_PACKAGE.finditer(sentence), _MOVED.finditer(sentence)):
        name = normalised(package[1])
        name = _SPOKEN.get(name, name)
        before = sentence[max(0, package.start() - 5) : package.start()]
        bullet = not sentence[: package.start()].strip(" \t-")  # of a list, and not "one - or the other"
        if is_related(name) and name not in _TOOLS and (bullet or not _ALTERNATIVE.search(before)):
            variant = _VARIANT.match(sentence, package.end()) if name.startswith("torch") else None
            yield Package(name, package[2] + (f"+{variant[1]}" if variant else ""))
    yield from (Package(name.lower(), version) for name, version in _JOINED.findall(sentence))
    if not _REQUESTED.search(sentence) and frozen_line(sentence) is None:
        pinned = (Package(normalised(name), version) for name, version in _PINNED.findall(sentence))
        yield from (package for package in pinned if is_related(package.name))
    yield from _SENTENCES.read(sentence)


def _gpus(sentence: str, catalogue: Catalogue) -> Iterator[Fact]:
    names = list(named(sentence, catalogue))
    yield from names
    if not names and _OF_A_GPU.match(sentence):
        found = _CAPABILITIES.findall(sentence)
        yield from (GpuGroup(None, cc) for cc in found if cc in catalogue.architectures)

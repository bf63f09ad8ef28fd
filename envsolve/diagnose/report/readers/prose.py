"""What people say in their own words of versions, cards and drivers; of the environment at hand alone."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envsolve.diagnose.report.observation import Card, Fact, Field, Observation, Package, Scalar, Trust
from envsolve.diagnose.report.readers._gpus import named
from envsolve.diagnose.report.readers._listing import frozen_line
from envsolve.diagnose.report.readers._words import VERSION, is_related, normalised, sentences
from envsolve.diagnose.report.text import Log
from envsolve.facts.catalogue import Catalogue
from envsolve.machine.model import HostCompiler, Toolkit

_END = r"(?![\w.+-]{0,20}\w)(?!\+)(?! ?(?:or|and|to|through|/|-|~|,) ?v?\d{1,2}\.\d)"
_PACKAGE = re.compile(
    rf"(?<![\w./=<>-])([A-Za-z][A-Za-z0-9_-]{{2,30}})(?: [Vv]ersion)?(?: is | ?: ?| = | )v?({VERSION}){_END}"
)
# "I have torch==2.1.0 installed"; but in a command, a requirement or a resolver's words it is what was asked for.
_PINNED = re.compile(rf"(?<![\w.'\"-])([A-Za-z][A-Za-z0-9_.-]{{2,40}})==({VERSION})(?![\w.*])")
_ASKED_FOR = re.compile(
    r"\b(?:install(?!ed)\w{0,3}|pip3?|uv|conda|poetry|require\w{0,6}|satisf\w{0,5}|pin\w{0,4}|because|dependenc\w{1,4}|found)\b"
    r"|^\s{0,8}(?:ERROR|error|[-+~\"'])",
)
_ALTERNATIVE = re.compile(r"(?:[<>]=?|~=|/|[-\u2013])\s?$")
_PYTHON = re.compile(
    rf"(?<!for )\bC?[Pp]ython(?: version)?[ :=]{{0,3}}v?(3\.\d{{1,2}})(?:\.\d{{1,2}})?(?:rc\d)?{_END}(?![+x])"
    rf"|\bpy(3\d{{1,2}})\b"
)
_DRIVER = re.compile(
    r"\b[Dd]rivers?(?:\s(?:version|branch|is|installed"
    r"|v))?[ :=(]{1,3}(?:version )?[vR]?(\d{3}(?:\.\d{1,3}){0,2})\b(?!\.?\d)(?! ?(?:or|and|to|/|\+) ?v?\d)(?!\+)"
    r"|\b(\d{3}(?:\.\d{1,3}){1,2}|\d{3}(?=[ -](?:series )?driver))(?:[ -](?:series))? driver\b"
    r"|\bdriver[^.\n\d]{0,12}\((\d{3}) series|(?<=\()(\d{3}) series"
)
_DRIVER_CUDA = re.compile(
    r"\b(?:driver|nvidia-smi)\b[^\n]{0,40}?\bCUDA(?: Version)?[: ]{1,2}(\d{1,2}\.\d)\b"
    r"|\bCUDA version reported by the driver[: ]{1,3}(\d{1,2}\.\d)\b",
    re.IGNORECASE,
)
_TOOLKIT = re.compile(
    r"\b(?:nvcc|(?:CUDA )?toolkit)(?: version)?[ :]{1,2}v?(\d{1,2}\.\d)(?:\.\d{1,3})?\b"
    r"|\b(?:CUDA )?(\d{1,2}\.\d) toolkit\b",
    re.IGNORECASE,
)
_GCC = re.compile(
    rf"(?<![\[\w])(?<!- )(?<!\s\s)(?:gcc|g\+\+)(?: version)?[ :]{{1,2}}v?(\d{{1,2}}(?:\.\d{{1,2}}){{0,2}}){_END}",
    re.IGNORECASE,
)
# "a card of capability 8.6, one of 8.9"; "GPUs with compute capability 7.5 and 8.0".
_CAPABILITY = re.compile(
    r"\b(?:capabilit(?:y|ies)|of|and|cc)[ :(]{1,3}(?:of |is )?(\d{1,2}\.\d)\b(?!\.\d)", re.IGNORECASE
)
_OF_A_CARD = re.compile(r"(?=.{0,400}\b(?:cards?|GPUs?|devices?|nodes?)\b).{0,400}\b(?:capabilit|cc \d)", re.IGNORECASE)
_DIGIT = re.compile(r"\d")
_LONGEST = 2000  # characters of a paragraph
_SPOKEN = {"pytorch": "torch", "libtorch": "torch", "flash-attention": "flash-attn", "flashattention": "flash-attn"}
# Outside any environment as people speak of them, although conda packages have these names.
_TOOLS = frozenset({"gcc", "gxx", "cuda-compat"})
_NO_PROSE = re.compile(
    r"\s{0,12}(?:File \"|Traceback|\||\+--|https?://|--|building |running |copying |\[\d{1,5}/\d{1,5}\]|#include"
    r"|at::|from \S{1,80}:\d)|>>> |.*\.(?:cpp|cu|h|cuh|py):\d"
)


def read(log: Log, catalogue: Catalogue) -> Iterator[Observation]:
    """Versions, cards, driver and tools that a sentence states."""
    for line in log.containing(*_WORDS):
        if _NO_PROSE.match(line.text):
            continue
        for sentence in sentences(line.text[:_LONGEST]):
            # A version has a digit; of what else is stated, only names of cards may have none.
            facts = _stated if _DIGIT.search(sentence) else _cards
            yield from (Observation(fact, line, Trust.STATED) for fact in facts(sentence, catalogue))


def _stated(sentence: str, catalogue: Catalogue) -> Iterator[Fact]:
    for package in _PACKAGE.finditer(sentence):
        name = normalised(package[1])
        name = _SPOKEN.get(name, name)
        if (
            is_related(name)
            and name not in _TOOLS
            and not _ALTERNATIVE.search(sentence[max(0, package.start() - 5) : package.start()])
        ):
            yield Package(name, package[2])
    if not _ASKED_FOR.search(sentence) and frozen_line(sentence) is None:
        for name, version in _PINNED.findall(sentence):
            if is_related(normalised(name)):
                yield Package(normalised(name), version)
    if match := _PYTHON.search(sentence):
        yield Scalar(Field.PYTHON, match[1] or f"{match[2][0]}.{match[2][1:]}")
    if match := _DRIVER.search(sentence):
        yield Scalar(Field.DRIVER, next(filter(None, match.groups())))
    if match := _DRIVER_CUDA.search(sentence):
        yield Scalar(Field.DRIVER_CUDA, next(filter(None, match.groups())))
    if match := _TOOLKIT.search(sentence):
        yield Toolkit(match[1] or match[2], None, True if "nvcc" in match[0].lower() else None)
        if "nvcc" in match[0].lower():
            yield Scalar(Field.NVCC, match[1])
    if (match := _GCC.search(sentence)) and 4 <= int(match[1].split(".")[0]) <= 30:
        yield HostCompiler("gcc", match[1])
    yield from _cards(sentence, catalogue)


def _cards(sentence: str, catalogue: Catalogue) -> Iterator[Fact]:
    names = list(named(sentence, catalogue))
    for count, name in names:
        yield Card(name, count=count)
    if not names and _OF_A_CARD.match(sentence):
        told = _CAPABILITY.findall(sentence)
        yield from (Card(None, capability) for capability in told if capability in catalogue.architectures)


_WORDS = (
    "torch", "triton", "vllm", "python", "driver", "nvidia", "nvcc", "toolkit", "gcc", "g++", "cuda", "rtx", "gtx",
    "geforce", "tesla", "quadro", "titan", "jetson", "spark", "gpu", "card", "node", "capability", "numba", "jax",
    "xformers", "flash", "py3", "a100", "h100", "h200", "v100", "b200", "b300", "a10", "a30", "a40", "l40", "l4",
    "t4", "p100", "p40", "k80", "gb10", "gb200", "gb300", "gh200", "h20", "h800", "a800", "a6000", "a5000", "a4000",
    "numpy", "mmcv", "sglang", "deepspeed", "5090", "5080", "5070", "5060", "4090",
    "4080", "4070", "4060", "3090", "3080", "3070", "3060", "2080", "1080",
)  # fmt: skip

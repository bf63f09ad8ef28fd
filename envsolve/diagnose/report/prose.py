"""What people and forms say: labelled values (collect_env in its variants, issue templates), and sentences."""

from __future__ import annotations

import re
from collections.abc import Iterator

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
    normalised,
    sentences,
    shape,
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
_START = r"[v^\"'`]?"
_END = r"(?![\w.]*[<>*])"
_VERSION = re.compile(rf"{_START}({VERSION}){_END}")
_DRIVER = r"[^\d\n]{0,30}(?P<driver>\d{3}(?:\.\d{1,3}){0,2})\b"
_DRIVER_CUDA = r"(?P<driver_number>\d{4,5})\b|(?P<driver_cuda>\d{1,2}\.\d)\b"
_PYTHON = r"\D{0,20}(?P<python>3\.\d{1,2})(?:\.\d|\b)"
_TORCH = rf"{_START}(?P<torch>{VERSION}){_END}"
_COMPILER = r"(?:gcc )?\s*(?:\([^)]{0,80}\)\s)?(?P<gcc>(?:[4-9]|[1-9]\d)(?:\.\d{1,2}){0,2})\b"
_CAPABILITY = r"(?P<cc>\d{1,2}\.\d\b|\d{2,3}\b)"
_GPUS = ""  # read by ``counted``
_PROGRAMS = {
    "pytorch version": _TORCH,
    "pytorch version gpu": _TORCH,
    "torch version": _TORCH,
    "cuda used to build pytorch": r"v?(?P<cuda>\d{1,3}(?:\.\d{1,8}){0,3})\b|(?P<cuda_none>None)\s*$",
    # collect_env's "CUDA runtime version" is what nvcc --version prints.
    "cuda runtime version": r"v?(?P<nvcc>\d{1,3}(?:\.\d{1,8}){1,3})\b",
    "nvidia driver version": _DRIVER,
    "driver version": _DRIVER,
    "cuda driver version": _DRIVER_CUDA,
    "cuda driver version runtime version": _DRIVER_CUDA,
    "gcc version": _COMPILER,
    "clang version": _COMPILER.replace("<gcc>", "<clang>"),
    "libc version": r"(?i)glibc[- ](?P<glibc>\d\.\d{1,2})|musl[- ](?P<musl>\d\.\d{1,2})",
    "python version": _PYTHON,
    "gpu models and configuration": _GPUS,
    "vllm version": _TORCH.replace("<torch>", "<vllm>"),
    "cuda_home": r"(?P<cuda_home>(?:/|[Cc]:)\S*)",
    "sys.platform": r"(?i)(?P<os>linux|win32|darwin)(?!\S)",
    "device 0 compute capability": _CAPABILITY,
    "cuda capability major minor version number": _CAPABILITY,
}
_PEOPLE = {
    "python": _PYTHON,
    **dict.fromkeys(("gpu", "gpus", "gpu model", "gpu type", "graphics card", "hardware"), _GPUS),
    **dict.fromkeys(("driver", "gpu driver", "nvidia driver", "gpu driver version"), _DRIVER),
    **dict.fromkeys(("gcc", "gcc compiler version"), _COMPILER),
    "compute capability": _CAPABILITY,
}
_LABELS = {
    label: (trust, re.compile(pattern) if pattern else None)
    for trust, table in ((Trust.PRINTED, _PROGRAMS), (Trust.STATED, _PEOPLE))
    for label, pattern in table.items()
}
_LABEL_WORDS = (
    *_PROGRAMS, "pytorch version (gpu?)", "cuda capability major/minor", "driver version / runtime", "gpu",
    "graphics card", "hardware", "driver", "gcc", "python", "torch", "vision", "version", "mmcv", "detectron2",
    "device 0", "compute cap", "jax", "numpy",
    "triton", "vllm", "xformers", "flash", "sglang", "bitsandbytes",
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

_ENDS = r"(?![\w.+-]{0,20}\w)(?!\+)(?! ?(?:or|and|to|through|/|-|~|,) ?v?\d{1,2}\.\d)"
_PACKAGE = re.compile(
    rf"(?<![\w./=<>-])([A-Za-z][A-Za-z0-9_-]{{2,30}})(?: [Vv]ersion)?(?: is | ?: ?| = | )v?({VERSION}){_ENDS}"
)
# "I have torch==2.1.0 installed"; but in a command, a requirement or a resolver's words it is a request.
_PINNED = re.compile(rf"(?<![\w.'\"-])([A-Za-z][A-Za-z0-9_.-]{{2,40}})==({VERSION})(?![\w.*])")
_REQUESTED = re.compile(
    r"\b(?:install(?!ed)\w{0,3}|pip3?|uv|conda|poetry|require\w{0,6}|satisf\w{0,5}|pin\w{0,4}|because|dependenc\w{1,4}|found)\b"
    r"|^\s{0,8}(?:ERROR|error|[-+~\"'])",
)
_ALTERNATIVE = re.compile(r"(?:[<>]=?|~=|/|[-\u2013])\s?$")
_STATED = tuple(
    re.compile(pattern)
    for pattern in (
        rf"(?<!for )\bC?[Pp]ython(?: version)?[ :=]{{0,3}}v?(?P<python>3\.\d{{1,2}})(?:\.\d{{1,2}})?(?:rc\d)?{_ENDS}"
        r"(?![+x])"
        rf"|\bpy(?P<py>3\d{{1,2}})\b",
        r"\b[Dd]rivers?(?:\s(?:version|branch|is|installed|v))?[ :=(]{1,3}(?:version )?[vR]?"
        r"(?P<driver>\d{3}(?:\.\d{1,3}){0,2})\b(?!\.?\d)"
        r"(?! ?(?:or|and|to|/|\+) ?v?\d)(?!\+)"
        r"|\b(?P<driver_2>\d{3}(?:\.\d{1,3}){1,2}|\d{3}(?=[ -](?:series )?driver))(?:[ -](?:series))? driver\b"
        r"|\bdriver[^.\n\d]{0,12}\((?P<driver_3>\d{3}) series|(?<=\()(?P<driver_4>\d{3}) series",
        r"(?i)\b(?:driver|nvidia-smi)\b[^\n]{0,40}?\bCUDA(?: Version)?[: ]{1,2}(?P<driver_cuda>\d{1,2}\.\d)\b"
        r"|\bCUDA version reported by the driver[: ]{1,3}(?P<driver_cuda_2>\d{1,2}\.\d)\b",
        r"(?i)\bnvcc(?: version)?[ :]{1,2}v?(?P<nvcc>\d{1,2}\.\d)(?:\.\d{1,3})?\b"
        r"|\b(?:CUDA )?toolkit(?: version)?[ :]{1,2}v?(?P<toolkit>\d{1,2}\.\d)(?:\.\d{1,3})?\b"
        r"|\b(?:CUDA )?(?P<toolkit_2>\d{1,2}\.\d) toolkit\b",
        rf"(?i)(?<![\[\w])(?<!- )(?<!\s\s)(?:gcc|g\+\+)(?: version)?[ :]{{1,2}}v?"
        rf"(?P<gcc>(?:[4-9]|[12]\d|30)(?:\.\d{{1,2}}){{0,2}}){_ENDS}",
    )
)
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
_WORDS = (
    "torch", "triton", "vllm", "python", "driver", "nvidia", "nvcc", "toolkit", "gcc", "g++", "cuda", "rtx", "gtx",
    "geforce", "tesla", "quadro", "titan", "jetson", "spark", "gpu", "card", "node", "capability", "numba", "jax",
    "xformers", "flash", "py3", "a100", "h100", "h200", "v100", "b200", "b300", "a10", "a30", "a40", "l40", "l4",
    "t4", "p100", "p40", "k80", "gb10", "gb200", "gb300", "gh200", "h20", "h800", "a800", "a6000", "a5000", "a4000",
    "numpy", "mmcv", "sglang", "deepspeed", "5090", "5080", "5070", "5060", "4090",
    "4080", "4070", "4060", "3090", "3080", "3070", "3060", "2080", "1080",
)  # fmt: skip


@READERS.log
def _stated(log: Log, catalogue: Catalogue) -> Iterator[Observation]:
    """Versions, GPUs, driver and tools that a sentence states."""
    for line in log.containing(*_WORDS):
        for sentence in () if _NO_PROSE.match(line.text) else sentences(line.text[:_LONGEST]):
            # A version has a digit; of what else is stated, only names of GPUs may have none.
            if _DIGIT.search(sentence):
                yield from (Observation(fact, line, Trust.STATED) for fact in _versions(sentence))
            yield from (Observation(fact, line, Trust.STATED) for fact in _gpus(sentence, catalogue))


def _versions(sentence: str) -> Iterator[Fact]:
    for package in _PACKAGE.finditer(sentence):
        name = normalised(package[1])
        name = _SPOKEN.get(name, name)
        before = sentence[max(0, package.start() - 5) : package.start()]
        if is_related(name) and name not in _TOOLS and not _ALTERNATIVE.search(before):
            yield Package(name, package[2])
    if not _REQUESTED.search(sentence) and frozen_line(sentence) is None:
        pinned = (Package(normalised(name), version) for name, version in _PINNED.findall(sentence))
        yield from (package for package in pinned if is_related(package.name))
    for pattern in _STATED:
        if match := pattern.search(sentence):
            yield from facts_of(match)


def _gpus(sentence: str, catalogue: Catalogue) -> Iterator[Fact]:
    names = list(named(sentence, catalogue))
    yield from names
    if not names and _OF_A_GPU.match(sentence):
        found = _CAPABILITIES.findall(sentence)
        yield from (GpuGroup(None, cc) for cc in found if cc in catalogue.architectures)

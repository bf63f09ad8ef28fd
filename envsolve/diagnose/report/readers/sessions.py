"""Python sessions and one-liners: ``torch.__version__``, ``torch.version.cuda``, device names and capabilities."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envsolve.diagnose.report.observation import Card, Codes, Fact, Field, Observation, Package, Scalar, Trust
from envsolve.diagnose.report.readers._gpus import GPU
from envsolve.diagnose.report.readers._words import VERSION, is_related, normalised
from envsolve.diagnose.report.text import Line, Log
from envsolve.facts.catalogue import Catalogue

_ASKED = re.compile(
    r"\b(\w{2,40})\.__version__|torch\.version\.(cuda)\b|(get_device_name)\(|(get_device_capability)\(|(get_arch_list)\("
    r"|(is_available)\(|version\(['\"]([\w-]{2,40})['\"]\)"
)
_ANSWER = re.compile(
    rf"['\"]?(?P<version>{VERSION})['\"]?(?![\w.])|(?P<bool>True|False)\b|(?P<none>None)\b"
    rf"|(?P<pair>\(\d{{1,2}}, \d\))|(?P<text>['\"][^'\"]{{2,60}}['\"])"
)
_BARE = re.compile(rf"\s{{0,4}}['\"]?({VERSION})['\"]?\s{{0,4}}")
_ASSIGNED = re.compile(rf"torch\.__version__\)?\s{{0,4}}(?:==?|:|->|is)?\s{{0,4}}['\"`]?({VERSION})")
_CUDA = re.compile(r"torch\.version\.cuda\)?\s{0,4}(?:==?|:|->|is)?\s{0,4}['\"`]?(\d{1,2}\.\d)\b")
_CAPABILITY = re.compile(r"get_device_capability\([^)]{0,20}\)\s{0,4}(?:==|:|->|=|is)\s{0,4}\((\d{1,2}), (\d)\)")
_PAIR = re.compile(r"\s{0,4}\((\d{1,2}), (\d)\)\s{0,4}")
_PROPERTIES = re.compile(r"_CudaDeviceProperties\(name='([^']{2,60})', major=(\d{1,2}), minor=(\d)")
_CODES = re.compile(r"\b(?:sm|compute)_\d{2,3}[af]?\b")
_BANNER = re.compile(r"Python (3\.\d{1,2})\.\d{1,2}\S{0,10} (?:\(|\|)")
_ON = re.compile(r"\] (?:\([^)]{1,40}\) )?on (linux|win32)")


def read(log: Log, catalogue: Catalogue) -> Iterator[Observation]:
    """What an interpreter answered, on the same line or the next."""
    for line in log.containing(
        ".__version__", "torch.version.cuda", "get_device", "get_arch_list", "version('", 'version("'
    ):
        yield from (Observation(fact, line, Trust.PRINTED) for fact in _on_the_line(line.text))
        yield from _below(line, log)
    for line in log.containing("_cudadeviceproperties("):
        if match := _PROPERTIES.search(line.text):
            card = Card(match[1], f"{match[2]}.{match[3]}", listing=line.index)
            yield Observation(card, line, Trust.PRINTED)
    for line in log.containing("['sm_", "[sm_", "arch_list"):
        codes = tuple(_CODES.findall(line.text))
        if len(codes) > 1:
            yield Observation(Codes(codes), line, Trust.PRINTED)
    for line in log.containing("python 3."):
        if match := _BANNER.match(line.text.lstrip()):
            yield Observation(Scalar(Field.PYTHON, match[1]), line, Trust.PRINTED)
    for line in log.containing("] on linux", "] on win32", ") on win32"):
        if match := _ON.search(line.text):
            system = "linux" if match[1] == "linux" else "windows"
            yield Observation(Scalar(Field.OS, system), line, Trust.PRINTED)


def _on_the_line(text: str) -> Iterator[Fact]:
    if match := _ASSIGNED.search(text):
        yield Package("torch", match[1])
    if match := _CUDA.search(text):
        yield Scalar(Field.TORCH_CUDA, match[1])
    if match := _CAPABILITY.search(text):
        yield Card(None, f"{match[1]}.{match[2]}")


def _below(line: Line, log: Log) -> Iterator[Observation]:
    """The answers of the next line, matched to the questions of this one in their order."""
    asked = [next(filter(None, groups)) for groups in _ASKED.findall(line.text)]
    after = log.after(line, 1)
    if not asked or not after or not _is_question(line.text):
        return
    answers = [(match.lastgroup or "", match[0].strip("'\"")) for match in _ANSWER.finditer(after[0].text)]
    name = after[0].text.strip(" '\"")
    if asked == ["get_device_name"] and GPU.fullmatch(name):
        yield Observation(Card(name, listing=line.index), after[0], Trust.PRINTED)
        return
    if len(answers) != len(asked) or not _is_answer(after[0].text):
        return
    for question, (kind, answer) in zip(asked, answers, strict=True):
        if fact := _fact(question, kind, answer):
            yield Observation(fact, after[0], Trust.PRINTED)


def _is_question(text: str) -> bool:
    return (
        text.lstrip().startswith(
            (">>>", "$", ">", "In [", "!", "print(", "python", "(", "#", "RUN", "PS ", "+", "import", "torch.")
        )
        or "python" in text
    )


def _is_answer(text: str) -> bool:
    """Whether a line is made of values and no words: an interpreter's answer."""
    rest = _ANSWER.sub("", text.replace("Out[", ""))
    return len(re.sub(r"[\s()\[\],:'\"\d]", "", rest)) <= 3


def _fact(question: str, kind: str, answer: str) -> Fact | None:
    if question == "cuda":
        if kind == "none":
            return Scalar(Field.TORCH_CUDA, "none")
        return Scalar(Field.TORCH_CUDA, answer) if kind == "version" else None
    if question == "get_device_capability" and (pair := _PAIR.fullmatch(answer)):
        return Card(None, f"{pair[1]}.{pair[2]}")
    if question == "get_device_name" and kind == "text":
        return Card(answer)
    if kind == "version" and is_related(normalised(question)):
        return Package(normalised(question), answer)
    return None

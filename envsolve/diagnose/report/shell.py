"""Shells, Python sessions and build tools: commands, variables, answers of an interpreter, toolkits and compilers."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envsolve.diagnose.report.gpus import GPU
from envsolve.diagnose.report.observation import (
    Command,
    Fact,
    Field,
    GpuGroup,
    Observation,
    Package,
    Readers,
    Scalar,
    Trust,
    Variable,
    capability,
    is_related,
    normalised,
    shape,
)
from envsolve.diagnose.report.text import Line, Log
from envsolve.facts.catalogue import Catalogue
from envsolve.machine.model import HostCompiler, Toolkit

READERS = Readers()

# Commands.

# After a sign that also means other things (a quotation, a comment, an added line), a command begins with these.
_PROMPT = shape("{{PROMPT}}")
_BARE = shape("{{BARE}}")
_TICKED = shape("{{TICKED}}")
_SAID = shape("{{SAID}}")
_PYTHON_ASKED = shape("{{PYTHON_ASKED}}")
# What stands beside a command, far to the right: its outcome, or a remark.
_REMARK = re.compile(r"\s{3,}(?=\S)|\s{2,}(?:#|->)\s")
_MOST_PARTS = 20
_GOES_ON = frozenset(
    {
        "on", "a", "an", "the", "with", "and", "then", "it", "is", "was", "to", "in", "gives", "fails", "works", "but",
        "which", "after", "before", "for", "or", "as", "by", "when", "if", "(the",
    }
)  # fmt: skip
_COMMAND_WORDS = (
    "$", "> ", "# ", "run ", "+ ", "!", "%", "pip", "uv ", "conda ", "mamba ", "pixi ", "poetry ", "docker ",
    "podman ", "setup.py", "apt", "singularity ",
)  # fmt: skip


@READERS.log
def _shown(log: Log, catalogue: Catalogue) -> Iterator[Observation]:
    """Commands in their order, and the Python that one of them requests."""
    last = -1
    for line in log.containing(*_COMMAND_WORDS):
        if line.index <= last:
            continue
        parts = _joined(line.text, line, log)
        last = line.index + len(parts) - 1
        for command in _commands(line, log):
            yield Observation(Command(command), line, Trust.PRINTED)
            if match := _PYTHON_ASKED.search(command):
                yield Observation(Scalar(Field.PYTHON, match[1] or match[2] or match[3]), line, Trust.STATED)


def _joined(start: str, line: Line, log: Log) -> list[str]:
    """The parts of a command that begins with ``start``: trailing backslashes add the lines that follow."""
    parts = [start]
    for following in log.after(line, _MOST_PARTS):
        if not parts[-1].endswith("\\"):
            break
        parts[-1] = parts[-1][:-1].rstrip()
        parts.append(following.text.strip())
    return parts


def _commands(line: Line, log: Log) -> Iterator[str]:
    text = line.text
    if text.lstrip().startswith((">>>", "...")):
        return
    if match := _PROMPT.match(text) or _BARE.match(text):
        command = " ".join(_joined(_REMARK.split(match[1], maxsplit=1)[0], line, log)).strip()
        yield command if match.re is _PROMPT else _without_words(command)
    elif "`" in text:
        yield from (match[1] for match in _TICKED.finditer(text))
    elif match := _SAID.search(text):
        yield _without_words(match[1].strip())


def _without_words(command: str) -> str:
    """A command that begins a sentence, to where the sentence goes on: ``pip install jax`` of "... on a Jetson"."""
    words = command.split(" ")
    end = next((place for place, word in enumerate(words) if place > 2 and word.lower() in _GOES_ON), len(words))
    return " ".join(words[:end]).rstrip(" ,;")


# Environment variables.

_ASSIGNMENT = shape("{{ASSIGNMENT}}")
_WITHIN = shape("{{WITHIN}}")
_DOCKER_ENV = re.compile(r"\s{0,8}ENV ([A-Z][A-Z0-9_]{1,60}) (\S.{0,500})")
_PYTHON_ENV = re.compile(r"os\.environ\[['\"]([A-Z][A-Z0-9_]{1,60})['\"]\]\s?=\s?['\"]([^'\"]{0,300})['\"]")
_OF_INTEREST = shape("{{OF_INTEREST}}")


@READERS.text(Trust.PRINTED, "=")
def _assigned(text: str) -> Iterator[Fact]:
    if text.startswith("|"):
        return
    found = dict(reversed((*_PYTHON_ENV.findall(text), *_WITHIN.findall(text))))  # the first value of each
    if match := _ASSIGNMENT.match(text):
        found.setdefault(match[1], match[2])
    for name, value in found.items():
        if _OF_INTEREST.fullmatch(name) and not value.startswith("="):
            yield Variable(name, _unquoted(value if name != "TORCH_CUDA_ARCH_LIST" else _whole(text, name, value)))


@READERS.text(Trust.PRINTED, "env ")
def _of_dockerfile(text: str) -> Iterator[Fact]:
    if match := _DOCKER_ENV.match(text):
        yield Variable(match[1], _unquoted(match[2]))


def _whole(text: str, name: str, value: str) -> str:
    """A list of architectures to its end: collect_env prints it without quotes, spaces included."""
    rest = text[text.find(name) + len(name) :].lstrip(" =")
    match = re.match(r"(?:\d{1,2}\.\d[af]?(?:\+PTX)?[ ;,]{0,2}){1,30}", rest)
    return match[0].strip() if match else value


def _unquoted(value: str) -> str:
    value = value.strip()
    if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
        return value[1:-1]
    return value.rstrip(".,") if value[-2:-1].isalnum() else value


# Python: an answer on the line of the question, or on the next.

_QUESTION_WORDS = (".__version__", "torch.version.cuda", "get_device", "get_arch_list", "version('", 'version("')
_QUESTION = shape("{{QUESTION}}")
_ANSWER = shape("{{ANSWER}}")
_PROMPTS = (">>>", "$", ">", "In [", "!", "print(", "(", "#", "RUN", "PS ", "+", "import", "torch.")

READERS.patterns("python")


@READERS.log
def _answers(log: Log, catalogue: Catalogue) -> Iterator[Observation]:
    """The answers of the next line, matched to the questions of this one in their order."""
    for line in log.containing(*_QUESTION_WORDS):
        questions = [next(filter(None, groups)) for groups in _QUESTION.findall(line.text)]
        is_asked = line.text.lstrip().startswith(_PROMPTS) or "python" in line.text
        for below in log.after(line, 1) if questions and is_asked else ():
            yield from (Observation(fact, below, Trust.PRINTED) for fact in _answered(questions, below.text))


def _answered(questions: list[str], text: str) -> Iterator[Fact]:
    name = text.strip(" '\"")
    if questions == ["get_device_name"] and GPU.fullmatch(name):
        yield GpuGroup(name)
        return
    answers = [(match.lastgroup or "", match[0].strip("'\"")) for match in _ANSWER.finditer(text)]
    # An interpreter's answer is made of values and no words.
    words = re.sub(r"[\s()\[\],:'\"\d]", "", _ANSWER.sub("", text.replace("Out[", "")))
    if len(answers) != len(questions) or len(words) > 3:
        return
    for question, (kind, answer) in zip(questions, answers, strict=True):
        match question, kind:
            case "cuda", "version" | "none":
                yield Scalar(Field.TORCH_CUDA, answer.lower())
            case "get_device_capability", "pair":
                yield GpuGroup(None, capability(answer))
            case "get_device_name", "text":
                yield GpuGroup(answer)
            case _, "version" if question != "cuda" and is_related(normalised(question)):
                yield Package(normalised(question), answer)


# Toolkits and host compilers, as nvcc, compilers, CMake and extension builders print them.

_RELEASE = re.compile(r"Cuda compilation tools, release (\d{1,2}\.\d)|\bBuild cuda_(\d{1,2}\.\d)\.r", re.IGNORECASE)
_RUN_NVCC = re.compile(r"((?:/|\$)[\w./{}-]{1,200})/bin/nvcc\b")
_OTHER_TOOL = re.compile("ptxas|ptx optimizing|cuobjdump|nvdisasm")
_DIRECTORY = re.compile(
    r"(/usr/local/cuda-(\d{1,2}\.\d))(?!/compat)\b|NVIDIA GPU Computing Toolkit[\\/]{1,2}CUDA[\\/]{1,2}v(\d{1,2}\.\d)"
)


@READERS.log
def _releases(log: Log, catalogue: Catalogue) -> Iterator[Observation]:
    for line in log.containing("cuda compilation tools", "build cuda_"):
        if match := _RELEASE.search(line.text):
            yield from _nvcc(match[1] or match[2], line, log)


def _nvcc(version: str, line: Line, log: Log) -> Iterator[Observation]:
    """nvcc's own line; ``ptxas --version`` and ``cuobjdump --version`` print the same."""
    path = None
    for above in log.before(line, 6):
        lowered = above.text.lower()
        if _OTHER_TOOL.search(lowered):
            return
        if "nvcc" in lowered and (found := _RUN_NVCC.search(above.text)):
            path = found[1]
        if "cuda compiler driver" not in lowered and "nvcc" in lowered and "copyright" not in lowered:
            break
    yield Observation(Scalar(Field.NVCC, version), line, Trust.PRINTED)
    yield Observation(Toolkit(version, path, True), line, Trust.PRINTED)


@READERS.log
def _toolkit_directories(log: Log, catalogue: Catalogue) -> Iterator[Observation]:
    """Each directory of a toolkit, at its first place only: a build names the same ones in each of its commands."""
    found: set[Toolkit] = set()
    for line in log.containing("/bin/nvcc", "/usr/local/cuda-", "gpu computing toolkit"):
        run = _RUN_NVCC.search(line.text)
        toolkits = [Toolkit(None, run[1], True)] if run else []
        toolkits += [Toolkit(v or windows, path or None) for path, v, windows in _DIRECTORY.findall(line.text)]
        for toolkit in toolkits:
            if toolkit not in found:
                found.add(toolkit)
                yield Observation(toolkit, line, Trust.IMPLIED)


# What a build found, or expected: the versions that decided.
READERS.patterns("tools")


@READERS.text(Trust.PRINTED, "optimizing compiler version", "\\msvc\\14.")
def _msvc(text: str) -> Iterator[Fact]:
    """The compiler's version; that of its directory is 5 less."""
    if match := re.search(r"(?:Optimizing Compiler Version (19\.\d{2})|\\MSVC\\14\.(\d{2})\.\d{5})", text):
        yield HostCompiler("msvc", match[1] or f"19.{match[2]}")


# What ds_report, Unsloth, bitsandbytes and conda print of their surroundings.

READERS.patterns("programs")

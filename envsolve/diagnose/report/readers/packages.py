"""Lists of installed packages: pip freeze, pip list, conda list, uv and pixi, and what collect_env repeats of them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envsolve.catalogue.load import Catalogue
from envsolve.diagnose.report.observation import Field, Observation, Scalar, Trust
from envsolve.diagnose.report.readers._listing import frozen_line, is_heading, lone_table_line, table_line
from envsolve.diagnose.report.readers._words import is_related
from envsolve.diagnose.report.text import Line, Log

_COLLECTED = re.compile(r"\s{0,8}\[(?:pip3?|conda|uv)\]\s{1,4}(.{3,200})")
_LISTING_COMMAND = re.compile(
    r"(?:pip3?|uv pip|conda|mamba|micromamba|pixi|poetry(?: run pip)?)\s(?:\S{1,40}\s){0,3}?(?:freeze|list|show)\b"
)
_REQUIREMENTS = re.compile(
    r"requirements?[\w-]{0,20}\.(?:txt|in)|environment\.ya?ml|pyproject|constraints?|dependencies|docker ?file",
    re.IGNORECASE,
)
_BUILD_PYTHON = re.compile(r"(?:^|_)py3\.?(\d{1,2})(?:h|_|$)")
_BUILD_CUDA = re.compile(r"(?:^|_)(?:cuda_?(\d{2})\.?(\d)|cpu)(?=[_\d]|$)")
_PYTHON_VERSION = re.compile(r"(3\.\d{1,2})(?:\.|$)")
_FAR = 60


def read(log: Log, catalogue: Catalogue) -> Iterator[Observation]:
    """Every package that a list gives; without a list around it, a line counts for packages that matter to GPUs."""
    for line in log.containing("[pip3]", "[pip]", "[conda]", "[uv]"):
        if (match := _COLLECTED.match(line.text)) and (package := frozen_line(match[1]) or table_line(match[1])):
            yield Observation(package, line, Trust.PRINTED)
    for line in log.containing("=="):
        if (package := frozen_line(line.text)) and is_related(package.name) and not _asked_for(line, log):
            yield Observation(package, line, Trust.IMPLIED)
    yield from _tables(log)


def _tables(log: Log) -> Iterator[Observation]:
    """Columns of name and version, below a heading, below the command that prints them, or of known names."""
    until = -1
    for line in log.lines:
        text = line.text
        if "ersion" in text and is_heading(text):
            until = line.index + 2000
        elif text[:1] in "$>!#(" and _LISTING_COMMAND.search(text):
            until = line.index + _FAR
        elif line.index <= until:
            if package := frozen_line(text) or (table_line(text) if text[:1] != "|" else None):
                yield Observation(package, line, Trust.PRINTED)
                yield from _of_conda_build(line)
            elif not text.startswith(("#", "-", " ")) and "  " not in text:
                until = line.index  # prose or the next command: the table is over
        elif "  " in text and (package := lone_table_line(text)) and is_related(package.name):
            yield Observation(package, line, Trust.IMPLIED)
            yield from _of_conda_build(line)


def _of_conda_build(line: Line) -> Iterator[Observation]:
    """What the build string of a conda package says: ``py3.11_cuda12.4_cudnn9.1.0_0``, ``cpu_mkl_py312h...``."""
    words = line.text.split()
    if len(words) < 3 or words[0] not in {"pytorch", "libtorch", "python", "torchvision", "pytorch-gpu"}:
        return
    if match := _BUILD_PYTHON.search(words[2]):
        yield Observation(Scalar(Field.PYTHON, f"3.{match[1]}"), line, Trust.IMPLIED)
    if words[0] == "python" and (match := _PYTHON_VERSION.match(words[1])):
        yield Observation(Scalar(Field.PYTHON, match[1]), line, Trust.PRINTED)
    if words[0] in {"pytorch", "libtorch"} and (match := _BUILD_CUDA.search(words[2])):
        cuda = "none" if match[0].startswith("cpu") else f"{match[1]}.{match[2]}"
        yield Observation(Scalar(Field.TORCH_CUDA, cuda), line, Trust.IMPLIED)


def _asked_for(line: Line, log: Log) -> bool:
    """Whether the block that a ``name==version`` stands in is a list of requirements."""
    for above in log.before(line, 40):
        if _REQUIREMENTS.search(above.text):
            return True
        if _LISTING_COMMAND.search(above.text):
            return False
        if "==" not in above.text and above.index != line.index - 1:
            return False
    return False

"""What PyTorch, Triton, vLLM, TensorFlow and ptxas say of the card, and of the code that a build carries."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envsolve.diagnose.report.observation import Card, Codes, Fact, Field, Observation, Scalar, Trust
from envsolve.diagnose.report.readers._gpus import clean
from envsolve.diagnose.report.text import Log
from envsolve.facts.catalogue import Catalogue

_NAME = r"([A-Z][\w .()/-]{1,60})"
_INCOMPATIBLE = re.compile(rf"{_NAME} with CUDA capability sm_(\d{{2,3}}) is not compatible")
_FOUND_OLD = re.compile(
    rf"Found GPU\d{{1,2}} {_NAME} which is of (?:cuda|compute) capability (\d{{1,2}})\.(\d)", re.IGNORECASE
)
_TRITON = re.compile(r"Found ([A-Z][\w ()/-]{1,60}) which is too old to be supported by the triton")
_YOURS = re.compile(r"\bYour ([A-Z][\w ()/-]{1,60}) GPU (?:has|instead has) compute capability (\d{1,2})\.(\d)")
_TENSORFLOW = re.compile(r"name: ([A-Z][\w ()/-]{1,60}), pci bus id: [^,]{1,40}, compute capability: (\d{1,2})\.(\d)")
_PTXAS = re.compile(r"--gpu-name[= ',]{1,5}sm_(\d{2,3})[af]?\b")
_NOT_DEFINED = re.compile(r"Value 'sm_(\d{2,3})[af]?' is not defined for option 'gpu-name'")
_YOUR_DEVICE = re.compile(r"your device is of CUDA capability (\d{1,2})\.(\d)", re.IGNORECASE)
_CARRIES = re.compile(r"supports CUDA capabilities\s((?:(?:sm|compute)_\d{2,3}[af]?[\s,.]{0,4}){1,40})")
_FLAGS = re.compile(r"code=((?:sm|compute)_\d{2,3}[af]?)")
_RUNTIME = re.compile(r"\s{1,8}- CUDA Runtime (\d{1,2}\.\d)\s{0,4}$")
_CODE = re.compile(r"(?:sm|compute)_\d{2,3}[af]?")


def read(log: Log, catalogue: Catalogue) -> Iterator[Observation]:
    """The cards that the messages name, and the list of code."""
    for line in log.containing(
        "cuda capability", "compute capability", "triton gpu compiler", "gpu-name", "supported by the triton"
    ):
        yield from (Observation(fact, line, Trust.IMPLIED) for fact in _cards(line.text))
    for line in log.containing("supports cuda capabilities"):
        text = " ".join(
            (
                line.text,
                *(after.text for after in log.after(line, 1) if after.text.lstrip().startswith(("sm_", "comp"))),
            )
        )
        if match := _CARRIES.search(text):
            yield Observation(Codes(tuple(_CODE.findall(match[1]))), line, Trust.PRINTED)
    for line in log.containing("nvcc architecture flags"):
        if codes := _FLAGS.findall(line.text):
            yield Observation(Codes(tuple(dict.fromkeys(codes))), line, Trust.PRINTED)
    for line in log.containing("- cuda runtime "):
        if match := _RUNTIME.match(line.text):
            yield Observation(Scalar(Field.TORCH_CUDA, match[1]), line, Trust.PRINTED)


def _cards(text: str) -> Iterator[Fact]:
    if match := _INCOMPATIBLE.search(text):
        yield Card(clean(match[1].rpartition(": ")[2]), _dotted(match[2]))
    elif match := _FOUND_OLD.search(text) or _YOURS.search(text) or _TENSORFLOW.search(text):
        yield Card(clean(match[1]), f"{match[2]}.{match[3]}")
    elif match := _TRITON.search(text):
        yield Card(clean(match[1]))
    elif match := _PTXAS.search(text) or _NOT_DEFINED.search(text):
        yield Card(None, _dotted(match[1]))
    elif match := _YOUR_DEVICE.search(text):
        yield Card(None, f"{match[1]}.{match[2]}")


def _dotted(digits: str) -> str:
    return f"{digits[:-1]}.{digits[-1]}"

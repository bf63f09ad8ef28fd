"""What messages and files say of the driver and of the ``libcuda`` in use."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envsolve.diagnose.report.observation import Field, Observation, Scalar, Trust
from envsolve.diagnose.report.readers._words import cuda_of_number
from envsolve.diagnose.report.text import Log
from envsolve.facts.catalogue import Catalogue

_FOUND = re.compile(r"\(found version (\d{4,5})\)")
_NVRM = re.compile(
    r"NVRM version: NVIDIA UNIX (?:Open Kernel Module for )?(?:\w{3,8})?\s{0,4}(?:Kernel Module)?"
    r"\s{0,8}(\d{3}(?:\.\d{1,3}){0,2})"
)
_LIBCUDA = re.compile(r"libcuda\.so\.(\d{3}\.\d{1,3}(?:\.\d{1,3})?)\b")
_COMPAT_FOLDER = re.compile(r"cuda-(\d{1,2}\.\d)/compat\b")
_COMPAT_PACKAGE = re.compile(r"\bcuda-compat[- ](\d{1,2})[.-](\d)\b")
# NVIDIA's own images compare the driver that they need with the host's.
_DETECTED = re.compile(r"but version (\d{3}\.\d{1,3}(?:\.\d{1,3})?) was detected")
_WANTED = re.compile(r"\b(?:install|try|use|need|should|without|remove)\w{0,3}\b(?! in\b)", re.IGNORECASE)


def read(log: Log, catalogue: Catalogue) -> Iterator[Observation]:
    """Driver version, its CUDA, and a compat ``libcuda``."""
    for line in log.containing("(found version"):
        if match := _FOUND.search(line.text):
            yield Observation(Scalar(Field.DRIVER_CUDA, cuda_of_number(int(match[1]))), line, Trust.PRINTED)
    for line in log.containing("nvrm version"):
        if match := _NVRM.search(line.text):
            yield Observation(Scalar(Field.DRIVER, match[1]), line, Trust.PRINTED)
    for line in log.containing("nvidia driver release"):
        if match := _DETECTED.search(line.text):
            yield Observation(Scalar(Field.DRIVER, match[1]), line, Trust.PRINTED)
    for line in log.containing("libcuda.so."):
        if (match := _LIBCUDA.search(line.text)) and "compat" not in line.text:
            yield Observation(Scalar(Field.DRIVER, match[1]), line, Trust.IMPLIED)
    for line in log.containing("/compat"):
        # A loader takes the first that its cache lists.
        if (match := _COMPAT_FOLDER.search(line.text)) and not any("libcuda.so" in b.text for b in log.before(line, 1)):
            yield Observation(Scalar(Field.COMPAT, match[1]), line, Trust.IMPLIED)
    for line in log.containing("cuda-compat"):
        if (match := _COMPAT_PACKAGE.search(line.text)) and (
            "installed in" in line.text or not _WANTED.search(line.text)
        ):
            yield Observation(Scalar(Field.COMPAT, f"{match[1]}.{match[2]}"), line, Trust.STATED)

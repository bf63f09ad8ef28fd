"""Container images and runtimes that a text names."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envsolve.diagnose.report.observation import Field, Image, Observation, Scalar, Trust
from envsolve.diagnose.report.text import Log
from envsolve.facts.catalogue import Catalogue

_TAG = r":([A-Za-z0-9_][\w.-]{0,120})"
# Repositories whose references are known without a word such as "image" before them.
_REPOSITORIES = (
    "nvidia/cuda", "pytorch/pytorch", "vllm/vllm-openai", "lmsysorg/sglang", "tensorflow/tensorflow",
    r"(?:nvcr|ghcr|quay)\.io/[\w./-]{1,80}", r"dustynv/[\w.-]{1,40}", r"huggingface/[\w.-]{1,60}",
    r"(?:continuumio|mambaorg|rayproject)/\w{1,20}",
    r"(?:python|ubuntu|debian)(?=:(?:\d|latest|slim|focal|jammy|noble|bullseye|bookworm))",
)  # fmt: skip
_KNOWN = re.compile(rf"(?<![\w/.-])((?:docker\.io/)?(?:{'|'.join(_REPOSITORIES)}){_TAG})")
_NAMED = re.compile(
    r"(?:\bFROM (?:--\S{1,60} )?|\b(?:[Ii]mage|[Cc]ontainer):? [\"'`]?|docker pull |docker://|\bTag [\"'`]?)"
    r"((?:[\w.-]{1,80}(?::\d{2,5})?/){0,4}[a-z0-9][\w.-]{0,80}(?::[\w][\w.-]{0,120})?)(?=[\s\"'`,;)]|\.?$)"
)
_DISTRO = re.compile(
    r"(ubuntu|debian|rockylinux|ubi|centos)-?(\d{1,2}(?:\.\d{2})?)\b"
    r"|\b(bionic|focal|jammy|noble|bullseye|bookworm|trixie)\b"
)
# Code names in tags, as the distributions' release pages give them.
_CODE_NAMES = {
    "bionic": "ubuntu 18.04", "focal": "ubuntu 20.04", "jammy": "ubuntu 22.04", "noble": "ubuntu 24.04",
    "bullseye": "debian 11", "bookworm": "debian 12", "trixie": "debian 13",
}  # fmt: skip
_NAMES = {"rockylinux": "rocky", "ubi": "rhel"}
_PYTHON = re.compile(r"(?:^|/)python:(3\.\d{1,2})\b")
_DOCKER = re.compile(
    r"\bdocker(?: run\b|file\b|: Error|-compose\b| (?:build|container|image)\b)|(?<![\w-])container(?![\w-])"
    r"|\b(?:base|serving|runtime|CI) image\b|\b(?:inside|in) (?:a |the |my )?docker\b|/\.dockerenv|^RUN "
    r"|nvidia-container-cli",
    re.IGNORECASE,
)
_OTHERS = (
    ("apptainer", re.compile(r"\b(?:apptainer|singularity)\b", re.IGNORECASE)),
    ("podman", re.compile(r"\bpodman\b", re.IGNORECASE)),
    ("kubernetes", re.compile(r"\b(?:kubernetes|kubectl|k8s|kubelet)\b", re.IGNORECASE)),
)
_ABSENT = re.compile(r"\b(?:outside|without|no|not in|not using)\b[\w ]{0,12}\b(?:docker|container)", re.IGNORECASE)


def read(log: Log, catalogue: Catalogue) -> Iterator[Observation]:
    """Images with a tag (or after FROM), and the runtime around the program."""
    for line in log.containing(":", "from ", "image", "docker"):
        if line.text.lstrip().startswith(("http", "Traceback", "File ")):
            continue
        references = dict.fromkeys(
            [match[1] for match in _KNOWN.finditer(line.text)] + [match[1] for match in _NAMED.finditer(line.text)]
        )
        for reference in references:
            if ":" not in reference and "/" not in reference:
                continue
            yield Observation(Image(reference), line, Trust.PRINTED)
            yield Observation(Scalar(Field.CONTAINER, "docker"), line, Trust.HINTED)
            if match := _DISTRO.search(reference):
                distro = _CODE_NAMES.get(match[3]) or f"{_NAMES.get(match[1], match[1])} {match[2]}"
                yield Observation(Scalar(Field.DISTRO, distro), line, Trust.HINTED)
            if match := _PYTHON.search(reference):
                yield Observation(Scalar(Field.PYTHON, match[1]), line, Trust.STATED)
    for line in log.containing("docker", "container", "run "):
        if _DOCKER.search(line.text) and not _ABSENT.search(line.text):
            yield Observation(Scalar(Field.CONTAINER, "docker"), line, Trust.STATED)
    for line in log.containing("apptainer", "singularity", "podman", "kube", "k8s"):
        for name, pattern in _OTHERS:
            if pattern.search(line.text) and not _ABSENT.search(line.text):
                yield Observation(Scalar(Field.CONTAINER, name), line, Trust.IMPLIED)

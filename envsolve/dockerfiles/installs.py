"""What commands of pip, uv and nvcc in a Dockerfile say. Pure."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from packaging.requirements import InvalidRequirement, Requirement

from envsolve.dockerfiles.model import Command

_PIP = re.compile(r"(?:\S*/)?pip[\d.]*")
_PYTHON = re.compile(r"(?:\S*/)?python[\d.]*")
_ARCH = re.compile(r"(?:sm|compute)_\d+[af]?")
_VARIANT = re.compile(r"/whl/(?:nightly/)?(cu\d+|cpu)/?$")


@dataclass(frozen=True, slots=True)
class Install:
    """One ``pip install``, or uv's form of it.

    Attributes:
        requirements: Those that name a package.
        sources: What is built from a folder or an address: ``.``, ``git+https://...``.
        files: Of ``-r``.
        index: Of ``--index-url``; None for the default one.
        constrained: Whether constraints are named, by option or by variable.
        isolated: Whether builds get an environment of their own.
    """

    command: Command
    requirements: tuple[Requirement, ...]
    sources: tuple[str, ...]
    files: tuple[str, ...]
    index: str | None
    constrained: bool
    isolated: bool
    dependencies: bool

    @property
    def variant(self) -> str | None:
        """The CUDA variant that the index is for, where its address says so: PyTorch has an index for each."""
        match = _VARIANT.search(self.index or "")
        return match[1] if match else None


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(add_help=False, allow_abbrev=False)
    parser.add_argument("asked", nargs="*")
    for names in (("-r", "--requirement"), ("-c", "--constraint"), ("-e", "--editable")):
        parser.add_argument(*names, action="append", default=[])
    parser.add_argument("-i", "--index-url", "--default-index", "--index", dest="index")
    parser.add_argument("--torch-backend")
    for name in ("--no-deps", "--no-build-isolation"):
        parser.add_argument(name, action="store_true")
    # Options with a value that must not be taken for a requirement.
    for name in ("-f", "--find-links", "--extra-index-url", "-t", "--target", "--prefix", "--root", "--python", "-p"):
        parser.add_argument(name, action="append")
    for name in ("--platform", "--python-version", "--cache-dir", "--trusted-host", "--timeout", "--retries"):
        parser.add_argument(name, action="append")
    for name in ("--only-binary", "--no-binary", "--config-settings", "--global-option", "--build-option"):
        parser.add_argument(name, action="append")
    return parser


def installs(commands: Sequence[Command]) -> Iterator[Install]:
    """The installs among commands, in order."""
    for command in commands:
        options = _options(command.words)
        if options is not None:
            try:
                given, _ = _parser().parse_known_intermixed_args(options)
            except (ValueError, TypeError):
                continue
            yield _install(command, given)


def _options(words: Sequence[str]) -> Sequence[str] | None:
    """What follows the verb of an install; None for another command."""
    head = list(words)
    if head and _PYTHON.fullmatch(head[0]) and head[1:3] == ["-m", "pip"]:
        head = head[2:]
    elif head and head[0].endswith("uv") and head[1:2] == ["pip"]:
        head = head[1:]
    if not head or not _PIP.fullmatch(head[0]) or "install" not in head:
        return None
    return head[head.index("install") + 1 :]


def _install(command: Command, given: Any) -> Install:
    requirements, sources = [], list(given.editable)
    for word in given.asked:
        try:
            requirement = Requirement(word)
        except InvalidRequirement:
            if word.startswith((".", "/")) or "://" in word:
                sources.append(word)
            continue
        if requirement.url:
            sources.append(word)
        requirements.append(requirement)
    variables = command.variables
    index = given.index or variables.get("PIP_INDEX_URL") or variables.get("UV_DEFAULT_INDEX")
    if given.torch_backend and given.torch_backend != "auto":
        index = f"https://download.pytorch.org/whl/{given.torch_backend}"
    return Install(
        command,
        tuple(requirements),
        tuple(sources),
        tuple(given.requirement),
        index,
        bool(given.constraint or variables.get("PIP_CONSTRAINT") or variables.get("UV_CONSTRAINT")),
        not (given.no_build_isolation or variables.get("PIP_NO_BUILD_ISOLATION")),
        not given.no_deps,
    )


def nvcc_code(command: Command) -> tuple[str, ...] | None:
    """The code that an nvcc command makes, ``("sm_75", "compute_75")``; None for another command.

    Empty where it names none, and takes its own default. Source: CUDA Compiler Driver NVCC, "Options for Steering GPU
    Code Generation": ``-arch=sm_NN`` alone is short for its SASS and its PTX.
    """
    if not command.words or command.words[0].rsplit("/", 1)[-1] != "nvcc":
        return None
    text = " ".join(command.words[1:])
    made: list[str] = []
    for codes in re.findall(r"(?:-gencode|--generate-code)[= ]\S*?code=(\S+)", text):
        made += _ARCH.findall(codes)
    alone = re.search(r"(?:-arch|--gpu-architecture)[= ](\S+)", text)
    code = re.search(r"(?:^| )(?:-code|--gpu-code)[= ](\S+)", text)
    if code:
        made += _ARCH.findall(code[1])
    elif alone and (named := _ARCH.fullmatch(alone[1])):
        made += [named[0], named[0].replace("sm_", "compute_")]
    return tuple(dict.fromkeys(made))

"""Target strings, ``"2x RTX 4090, driver 550.54, python 3.12, linux-x86_64"``: pure syntax.

The catalogue knows GPU names; this module treats them as text.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import msgspec
from msgspec.structs import replace

from envsolve.errors import UsageError
from envsolve.system.limits import TARGET_LENGTH
from envsolve.values import processor

GRAMMAR = """\
a target is a list of parts, separated by commas, in any order and case:
  GPUs      RTX 4090 | 2x RTX 4090 | A100 + T4 | Turing | sm_90 | 8.6 | no gpu
  driver    driver 550.54.15 | driver 550
  CUDA      cuda 12.4           the newest CUDA that the driver supports
  Python    python 3.12 | py312
  platform  linux-x86_64 | linux-aarch64 | win-amd64 | linux | aarch64
  system    ubuntu 22.04 | debian 12 | rhel 9
  libc      glibc 2.35 | musl 1.2"""


_NO_PARTS = tuple(
    (re.compile(pattern, re.IGNORECASE), advice)
    for pattern, advice in (
        (r"(free|open)bsd.*", "CUDA does not support this system: use a target with Linux or Windows"),
        (
            r"docker|podman|container|k8s|kubernetes",
            "a container uses the driver and the GPUs of its host: describe those",
        ),
        (r"mig.*", "write the MIG profile after its GPU: A100 MIG 1g.5gb"),
    )
)
_Reader: TypeAlias = "Callable[[re.Match[str]], Target]"


class Target(msgspec.Struct, frozen=True):
    """A machine as a person names it; None if the string does not say.

    Attributes:
        gpus: (count, name) pairs; empty for "no gpu".
        driver: Driver version or branch, ``550.54`` or ``550``.
        cuda: The newest CUDA version that the driver supports, ``12.4``.
        python: ``3.12``.
        os: ``linux`` or ``windows``.
        arch: ``x86_64`` or ``aarch64``.
        libc: ``glibc 2.35`` or ``musl 1.2``.
        distro: ``ubuntu 22.04``; it implies no libc.
    """

    gpus: tuple[tuple[int, str], ...] | None = None
    driver: str | None = None
    cuda: str | None = None
    python: str | None = None
    os: str | None = None
    arch: str | None = None
    libc: str | None = None
    distro: str | None = None

    def __str__(self) -> str:
        """The target string that reads back as this value."""
        gpus = [name if count == 1 else f"{count}x {name}" for count, name in self.gpus or ()]
        parts = [
            "no gpu" if self.gpus == () else " + ".join(gpus),
            self.driver and f"driver {self.driver}",
            self.cuda and f"cuda {self.cuda}",
            self.python and f"python {self.python}",
            "-".join(filter(None, (self.os, self.arch))),
            self.libc,
            self.distro,
        ]
        return ", ".join(part for part in parts if part)


def parse_target(text: str) -> Target:
    """Read a target string.

    Raises:
        UsageError: A part cannot be read, or two parts contradict each other; the message names the part, the hint
            what to write instead or, if that is not clear, the grammar.
    """
    if len(text) > TARGET_LENGTH:
        raise UsageError(f"the target has more than {TARGET_LENGTH} characters", hint=GRAMMAR)
    target = Target()
    for part in filter(None, (" ".join(part.split()) for part in re.split(r"[,;]", text))):
        target = merged(target, _parse_part(part), part)
    if target == Target():
        raise UsageError("the target is empty", hint=GRAMMAR)
    return target


def _parse_part(part: str) -> Target:
    if (found := _formed(part)) is not None:
        return found
    if hint := _told_otherwise(part) or _joined(part) or _bare_version(part) or _mistyped(part):
        raise unreadable(part, hint)
    return Target(gpus=tuple(_gpu(name.strip(), part) for name in part.split("+")))


def _formed(part: str) -> Target | None:
    """The part's meaning, if it describes anything but GPUs."""
    for pattern, read in _FORMS:
        if match := pattern.fullmatch(part):
            return read(match)
    return None


def _joined(part: str) -> str | None:
    """Advice on parts with no comma between them: some of them read on their own."""
    pieces = _apart(part.split())
    return f"separate the parts with commas: {', '.join(pieces)}" if len(pieces) > 1 else None


def _apart(words: Sequence[str]) -> list[str]:
    """The parts of a target among words, each the longest that reads on its own, and what lies between them."""
    for start in range(len(words)):
        for end in range(min(len(words), start + 12), start, -1):  # no form has more words
            if _formed(" ".join(words[start:end])) is not None:
                pieces = [" ".join(words[:start]), " ".join(words[start:end]), *_apart(words[end:])]
                return [piece for piece in pieces if piece]
    return [" ".join(words)] if words else []


def _told_otherwise(part: str) -> str | None:
    """Advice on words that describe a machine but that no part accepts; they are not names of GPUs either."""
    return next((advice for pattern, advice in _NO_PARTS if pattern.fullmatch(part)), None)


def _bare_version(part: str) -> str | None:
    """Advice on a bare version number; a bare ``8.6`` is a compute capability."""
    if _DRIVER_VERSION.fullmatch(part):
        return f"for the driver write: driver {part}"
    if _PYTHON_VERSION.fullmatch(part):
        return f"for the Python write: python {part}"
    return None


def _mistyped(part: str) -> str | None:
    """Advice on a part that starts like one of the known parts: it is a mistyped one, not a GPU's name."""
    first = part.split()[0].lower()
    if match := _KEYWORD.match(part):
        return _write(match.lastgroup or "")
    # What no keyword is like, most names of GPUs, is not worth the import.
    alike = [keyword for keyword in _EXAMPLES if _in_common(first, keyword) >= _ALIKE]
    if not alike:
        return None
    from difflib import get_close_matches

    close = get_close_matches(first, alike, 1, _ALIKE)
    if not close:
        return None
    corrected = f"{close[0]}{part[len(first) :]}"
    return f"did you mean: {corrected}" if _formed(corrected) is not None else _write(close[0])


def _in_common(one: str, other: str) -> float:
    """An upper bound of difflib's similarity: the share of characters that two words have in common."""
    return 2 * (Counter(one) & Counter(other)).total() / (len(one) + len(other))


def _write(keyword: str) -> str:
    return f"write it as: {_EXAMPLES[keyword]}"


def merged(target: Target, found: Target, part: str) -> Target:
    """A target with what a further part says.

    Raises:
        UsageError: It says something else than the target.
    """
    values: dict[str, Any] = {}
    for name in Target.__struct_fields__:
        old, new = getattr(target, name), getattr(found, name)
        if new is None:
            continue
        if old and new and name == "gpus":
            new = (*old, *new)
        elif old is not None and old != new:
            raise UsageError(
                f'the target part "{part}" contradicts an earlier part of the target', hint="remove one of them"
            )
        values[name] = new
    return replace(target, **values)


def _gpu(text: str, part: str) -> tuple[int, str]:
    count, name = 1, text
    if match := _COUNT_FIRST.fullmatch(text) or _COUNT_LAST.fullmatch(text):
        count, name = int(match["count"]), match["name"]
    if count < 1 or not _GPU_NAME.fullmatch(name.strip()):
        raise unreadable(part)
    return count, name.strip()


def unreadable(part: str, hint: str = GRAMMAR) -> UsageError:
    """The error for a part that means nothing."""
    return UsageError(f'cannot read the target part "{part}"', hint=hint)


def _form(pattern: str, read: _Reader) -> tuple[re.Pattern[str], _Reader]:
    return re.compile(pattern, re.IGNORECASE | re.ASCII), read


_OS = {"linux": "linux", "windows": "windows", "win": "windows"}
_OS_NAME = "(?P<os>linux|windows|win)"
_ARCH_NAME = "(?P<arch>x86[_-]64|amd64|x64|aarch64|arm64)"
# As os-release names them.
_DISTRO_NAME = "(?:ubuntu|debian|rhel|rocky|almalinux|centos|fedora|amzn|alpine|opensuse|sles|arch)"
_IS = r"\s*[=:]?\s*"
# nvidia-smi writes "NVIDIA-SMI 550.54.15", "Driver Version: 550.54.15" and "CUDA Version: 12.4".
_VERSION = rf"(?: version)?{_IS}"


def _platform(match: re.Match[str]) -> Target:
    found = match.groupdict()
    os, arch = found.get("os"), found.get("arch")
    return Target(os=_OS[os.lower()] if os else None, arch=processor(arch) if arch else None)


def _distro(text: str) -> str:
    """A distribution as detection writes it: ``ubuntu 22.04``."""
    return re.sub(r"(?<=[a-z])[-_ ]?(?=\d)", " ", text.lower())


_FORMS = (
    _form(r"no[ -]?gpus?|cpu(?:[ -]?only)?", lambda match: Target(gpus=())),
    _form(
        rf"(?:nvidia-smi |(?:nvidia )?driver{_VERSION})[vr]?(\d{{3,4}}(?:\.\d+){{0,3}})",
        lambda match: Target(driver=match[1]),
    ),
    _form(rf"cuda{_VERSION}(\d+\.\d+)", lambda match: Target(cuda=match[1])),
    # A patch release is left out: environments are planned per minor version.
    _form(
        rf"(?:c?python|py|cp){_IS}(3)\.?([1-9]?\d)(?:\.\d+)?",
        lambda match: Target(python=f"{match[1]}.{int(match[2])}"),
    ),
    _form(rf"{_OS_NAME}[-_ /]{_ARCH_NAME}", _platform),
    _form(_OS_NAME, _platform),
    # Which Windows it is decides nothing.
    _form(r"(?P<os>windows|win)(?: server)?[- ]?(?:1[01]|2016|2019|2022|2025)", _platform),
    _form(_ARCH_NAME, _platform),
    _form(rf"{_DISTRO_NAME}(?:[-_ ]?\d+(?:\.\d+)*)?", lambda match: Target(distro=_distro(match[0]))),
    _form(rf"(glibc|musl){_IS}(\d+\.\d+)(?:\.\d+)?", lambda match: Target(libc=f"{match[1].lower()} {match[2]}")),
)
# How each kind of part is written, by the word that it starts with.
_EXAMPLES = {
    "driver": "driver 550.54.15, or driver 550",
    "python": "python 3.12",
    "cuda": "cuda 12.4 (the newest that the driver supports)",
    "linux": "linux-x86_64, or linux-aarch64",
    "windows": "win-amd64",
    "aarch64": "linux-aarch64",
    "glibc": "glibc 2.35",
    "musl": "musl 1.2",
    "no": "no gpu",
}
# From which likeness on a word is a mistyped keyword.
_ALIKE = 0.75
_KEYWORD = re.compile(
    r"(?P<driver>driver)|(?P<python>(?:c?python|py|cp)[\s=:.\d])|(?P<cuda>cu(?:da)?[\s=:\d])|(?P<linux>linux)"
    r"|(?P<windows>win)|(?P<glibc>glibc)|(?P<musl>musl)|(?P<no>no\s|cpu)",
    re.IGNORECASE,
)
_DRIVER_VERSION = re.compile(r"\d{3,4}(?:\.\d+){1,3}")
_PYTHON_VERSION = re.compile(r"3\.(?:\d\d|\d+\.\d+)")
# "2x RTX 4090", "4x4090", "8 H100"; but "1080 Ti" and "3090 Ti" are names: a bare count has at most two digits.
_COUNT_FIRST = re.compile(r"(?P<count>\d{1,3})(?:\s*[x\u00d7*]\s*|(?<!\d\d\d)\s+(?=[A-Z]))(?P<name>.+)", re.IGNORECASE)
# "H100 x8", "4090x2"; but a letter before the x belongs to a name (TX2).
_COUNT_LAST = re.compile(r"(?P<name>.*[\d\s])[x\u00d7*]\s*(?P<count>\d{1,3})", re.IGNORECASE)
_GPU_NAME = re.compile(r"(?=.*[A-Za-z0-9])[\w .()/-]+", re.ASCII)

"""For which CUDA flavours and Pythons torch was ever published, and what people write for them."""

from __future__ import annotations

import re
from shlex import quote

from envsolve.catalogue.load import Catalogue
from envsolve.errors import UsageError

_CUDA = r"(?i)(?:cu(?:da)?)?[\s_=-]*(\d+)\.?(\d)(?:\.\d+)?"
_FLAVOUR = r"cu\d{2,3}"
_PYTHON = r"(?i)(?:c?python|cp|py)?\s*(\d+)\.?(\d+)?(?:\.\d+)?(t)?"
_TAG = re.compile(r"cp3(\d+)t?")


def flavours(catalogue: Catalogue) -> tuple[str, ...]:
    """Every flavour of a torch build, ``cpu`` first, then by CUDA version."""
    return tuple(sorted({build.variant for build in catalogue.builds("torch")}, key=lambda name: (len(name), name)))


def pythons(catalogue: Catalogue) -> tuple[str, ...]:
    """Every Python with a torch build, ``3.6``, oldest first."""
    tags = {_TAG.fullmatch(tag) for build in catalogue.builds("torch") for tag in build.pythons}
    return tuple(f"3.{minor}" for minor in sorted({int(match[1]) for match in tags if match}))


def check_flavour(text: str, catalogue: Catalogue) -> str:
    """The flavour, if it is one, or lies between two: that torch was never published for that one is a plan's answer.

    Raises:
        UsageError: It is none; the hint tells what was probably meant, and all that there are.
    """
    known = flavours(catalogue)
    if text in known or nearest_flavours(text, catalogue):
        return text
    plain = text.strip().lower()
    match = re.fullmatch(_CUDA, plain)
    meant = next((name for name in (f"cu{match[1]}{match[2]}" if match else plain, plain) if name in known), None)
    listed = f"there are {', '.join(known)}"
    guess = f"did you mean {meant}? " if meant else ""
    raise UsageError(
        f"--cuda {quote(text)}: torch was never published for it"
        if meant is None
        else f"--cuda {quote(text)}: not a flavour's name",
        hint=guess + listed,
    )


def nearest_flavours(name: str, catalogue: Catalogue) -> tuple[str, ...]:
    """The flavours of the next older and the next newer CUDA; empty for what does not lie between two."""
    if not re.fullmatch(_FLAVOUR, name):
        return ()
    of_cuda = sorted((known for known in flavours(catalogue) if known != "cpu"), key=lambda known: _cuda(known[2:]))
    older = [known for known in of_cuda if _cuda(known[2:]) < _cuda(name[2:])]
    newer = [known for known in of_cuda if _cuda(known[2:]) > _cuda(name[2:])]
    return (older[-1], newer[0]) if older and newer else ()


def _cuda(digits: str) -> tuple[int, int]:
    return int(digits[:-1] or 0), int(digits[-1])


def check_python(text: str, catalogue: Catalogue) -> str:
    """The Python as major and minor, ``3.12``, if torch was published for it, or for an older and for a newer one.

    Raises:
        UsageError: It was not, or the text is no version.
    """
    known = pythons(catalogue)
    span = f"torch builds are known for Python {known[0]} to {known[-1]}"
    match = _read_python(text)
    if match is None or match[2] is None:
        raise UsageError(f"--python {quote(text)}: not a Python version", hint=f"write it as 3.12; {span}")
    version = f"{match[1]}.{int(match[2])}"
    if match[3]:
        raise UsageError(
            f"--python {quote(text)}: no plans are made for free-threaded Pythons", hint=f"write {version}"
        )
    if match[1] != "3" or not _minor(known[0]) <= int(match[2]) <= _minor(known[-1]):
        raise UsageError(f"--python {quote(text)}: nothing is known of Python {version}", hint=span)
    return version


def python_named(text: str) -> str | None:
    """The Python 3 that a text names, as major and minor; None where it names none that is planned for."""
    match = _read_python(text)
    return f"3.{int(match[2])}" if match and match[1] == "3" and match[2] and not match[3] else None


def _read_python(text: str) -> re.Match[str] | None:
    return re.fullmatch(_PYTHON, text.strip())


def _minor(python: str) -> int:
    return int(python.partition(".")[2])

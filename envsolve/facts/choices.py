"""What people write for a variant and a Python, compared with those that torch was ever published for."""

from __future__ import annotations

import re
from shlex import quote

from envsolve.errors import UsageError
from envsolve.facts.catalogue import Catalogue, nearest_variants, pythons, variants

_CUDA = r"(?i)(?:cu(?:da)?)?[\s_=-]*(\d+)\.?(\d)(?:\.\d+)?"
_PYTHON = r"(?i)(?:c?python|cp|py)?\s*(\d+)\.?(\d+)?(?:\.\d+)?(t)?"


def check_variant(text: str, catalogue: Catalogue) -> str:
    """The variant, if it is known, or lies between two known ones, so that a plan can refuse it with a reason.

    Raises:
        UsageError: It is unknown. The hint names the likely intended ones and lists all.
    """
    known = variants(catalogue)
    if text in known or nearest_variants(text, catalogue):
        return text
    plain = text.strip().lower()
    match = re.fullmatch(_CUDA, plain)
    meant = next((name for name in (f"cu{match[1]}{match[2]}" if match else plain, plain) if name in known), None)
    what = "not the name of a variant" if meant else "torch was never published for it"
    guess = f"did you mean {meant}? " if meant else ""
    raise UsageError(f"--cuda {quote(text)}: {what}", hint=f"{guess}there are {', '.join(known)}")


def check_python(text: str, catalogue: Catalogue) -> str:
    """The Python as major and minor, ``3.12``, if torch was published for it, or for an older and for a newer one.

    Raises:
        UsageError: It was not, or the text is not a version.
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
        raise UsageError(f"--python {quote(text)}: Python {version} is not in the catalogue", hint=span)
    return version


def python_named(text: str) -> str | None:
    """The Python 3 that a text names, as major and minor; None if it names none that is planned for."""
    match = _read_python(text)
    return f"3.{int(match[2])}" if match and match[1] == "3" and match[2] and not match[3] else None


def _read_python(text: str) -> re.Match[str] | None:
    return re.fullmatch(_PYTHON, text.strip())


def _minor(python: str) -> int:
    return int(python.partition(".")[2])

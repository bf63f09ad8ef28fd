"""GPU names within text: where one begins and ends. Whether it is one, the catalogue says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from envsolve.errors import UsageError
from envsolve.facts.catalogue import Catalogue
from envsolve.facts.gpu_names import find_gpu
from envsolve.facts.hardware import GpuModel

_AFTER = (
    r"(?:[\s-]?(?:Ti|SUPER|D|M|Max-Q|Laptop|Mobile|Ada|Blackwell|Generation|SFF|Server|Workstation|Edition|PCIe|NVL|GPU"
    r"|v2|SXM\d?|HBM\d?e?|\d{2,3}\s?Gi?B))"
)
_NUMBERED = (
    rf"(?:GeForce\s)?(?:RTX|GTX|GT)[\s-]?(?:PRO\s)?(?:A\d{{3,4}}|\d{{3,4}}(?:Ti)?){_AFTER}{{0,7}}"
    rf"|GeForce\s(?:MX\s?)?\d{{3,4}}{_AFTER}{{0,2}}"
    rf"|(?:Tesla|Quadro)\s(?:RTX\s)?[A-Z]{{0,2}}\d{{1,4}}[a-zA-Z]{{0,2}}{_AFTER}{{0,3}}"
    r"|(?:GTX\s)?TITAN\s(?:Xp|X|V|RTX|Black|Z)(?:\s\(Pascal\))?"
    r"|Jetson\s(?:AGX\s)?(?:Orin|Xavier|Nano|TX[12]|Thor|T[45]000)(?:\s(?:NX|Nano|AGX))?"
    r"|DGX\sSpark"
    rf"|(?:GB|GH|[ABHLVPKMT])\d{{1,4}}[a-zA-Z]?{_AFTER}{{0,5}}"
)
GPU = re.compile(
    rf"(?:(?P<count>\d{{1,2}})\s?(?:[x\u00d7*]\s?)?)?(?P<name>\b(?:NVIDIA\s)?(?:{_NUMBERED})(?:-\d{{2}}[CQ])?)"
    r"(?:\s?[x\u00d7*]\s?(?P<after>\d{1,2})\b)?(?!\w|\.\d)",
    re.IGNORECASE,
)
# Letter and number alone: those that nothing else in such a text is called.
_SELF_EVIDENT = re.compile(
    r"(?:[ABHV]\d{3}S?|[AL]\d{2}[GSM]?|H20|P40|P100|K[248]0[cmX]?|M[46]0|G[BH]\d{2,3}|A[2456]\d{3})\b"
)
_BARE = re.compile(r"(?:GB|GH|[ABHLVPKMT])\d{1,4}[a-zA-Z]?\b", re.IGNORECASE)
_CONTEXT = re.compile(r"\b(?:GPUs?|cards?|nodes?|instances?|VRAM|Tesla|NVIDIA|colab)\b", re.IGNORECASE)
# "2x 5090": with a count before it, the bare number of a GeForce card.
_COUNTED_NUMBER = re.compile(r"\b(\d{1,2})\s?x\s?([1-5]0[5-9]0(?:\s?Ti)?)\b(?![.,]?\d)", re.IGNORECASE)
# "my GPU is a 3090"
_BARE_NUMBER = re.compile(
    r"\b(?:an?|my|the|is|on|with|using) ([1-5]0[5-9]0(?:\s?Ti)?(?:\s?Super)?)\b(?![.,]?\d|\s?(?:p|px"
    r"|x)\b)",
    re.IGNORECASE,
)
_PLURAL = re.compile(r"(?<=\d)s\b")


def named(text: str, catalogue: Catalogue) -> Iterator[tuple[int, str]]:
    """(count, name) of every GPU that a text names, as far as the catalogue knows it; in order."""
    text = _PLURAL.sub("", text)
    in_context = _CONTEXT.search(text) is not None
    for count, number in _COUNTED_NUMBER.findall(text):
        if model_of(number, catalogue):
            yield int(count), number
    if in_context:
        yield from ((1, number) for number in _BARE_NUMBER.findall(text) if model_of(number, catalogue))
    for match in GPU.finditer(text):
        name = match["name"].strip()
        bare = _BARE.match(name)
        if bare and not _SELF_EVIDENT.match(name) and not ((in_context or match["count"]) and bare[0].isupper()):
            continue
        words = name.split()
        beginnings = (" ".join(words[:end]) for end in range(len(words), 0, -1))
        if known := next((text for text in beginnings if model_of(text, catalogue)), None):
            yield int(match["count"] or match["after"] or 1) or 1, known


@lru_cache(maxsize=4096)
def model_of(name: str, catalogue: Catalogue) -> GpuModel | None:
    """The model that a name means; None where the catalogue knows none, or several that run different code."""
    try:
        return find_gpu(name, catalogue)
    except UsageError:
        return None


_LIST_COUNT = re.compile(r"(\d{1,3})\s?[x\u00d7*]\s?(?=[A-Za-z])")
_LIST_AFTER = re.compile(r"(?:(?<=[\d\sBbi])\s?[x\u00d7*]\s?(\d{1,2})|\s\((\d{1,2})x?\))$")


def counted(value: str) -> Iterator[tuple[int, str]]:
    """(count, name) of a label's value: ``NVIDIA A100``, ``3x RTX A6000``; nothing where it does not look like GPUs."""
    for part in value.split(",") if "," in value else value.split(" + "):
        text, count = part.strip(" *`|"), 1
        if match := _LIST_COUNT.match(text):
            text, count = text[match.end() :], int(match[1])
        elif match := _LIST_AFTER.search(text):
            text, count = text[: match.start()], int(match[1] or match[2])
        if text and GPU.match(text) and 0 < count < 100:
            yield count, clean(text)


def clean(name: str) -> str:
    """A printed name without what stands behind it."""
    for mark in (" (UUID", " (arch", " with ", " - ", ",", ";", " |", " (", "\u00ae"):
        if mark != " (" or not name.endswith(("(Pascal)", "(Pascal) ")):
            name = name.partition(mark)[0]
    return name.strip(" .'\"`*|")

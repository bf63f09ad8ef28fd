"""How programs write a GPU (``lspci``, ``nvidia-smi -L``, virtual GPUs), reduced to PCI device ids and names.

Pure text: whether there is a model of that id or name is for :mod:`envsolve.catalogue.gpu_names` to say. Most names are
plain ones, so that patterns are compiled when one is first held to them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

# "[10de:2684]" as lspci -nn has it, "0x268410DE" as nvidia-smi has it; "Device 2684" is lspci's word for an id that its
# list of names lacks.
_PCI_ID = re.compile(
    r"\b10de:([0-9a-f]{4})\b|\b0x([0-9a-f]{4})10de\b|\bNVIDIA Corporation Device ([0-9a-f]{4})\b", re.IGNORECASE
)
# "AD102 [GeForce RTX 4090]", "AD106M [GeForce RTX 4070 Max-Q / Mobile]": the chip, then the boards that have it.
_CHIP_AND_BOARDS = r"\b(?:G[A-Z]|TU|AD)\d{2,3}\w*(?: / [\w-]+)? \[([^]]*[^]:\d][^]]*)\]"
_FORM = r" (?:Mobile|Max-Q)$"
_REVISION = r"(?: Lite Hash Rate| Rev\. \w| Refresh)+$"
_SMI_LINE = r"(?i)\s*GPU \d+:\s*(.+?)\s*\(UUID:.*\)\s*"
# A virtual GPU's name is the board's, then an optional count of slices, the memory in GB, and the kind of licence.
_VIRTUAL = r"(?i)\s*(?:NVIDIA |GRID )*(.+?)-(?:\d-)?\d{1,3}(?:[ABCQ]|CME)\s*"
# Letters behind a virtual GPU's board tell its memory and socket: V100DX, A100D, H100XM, RTX8000P.
_BOARD_LETTERS = r"(?<=\d)(?:D|X|S|L|P|C|B|DX|XM|XL|XS|LX)$"


def pci_ids(text: str) -> tuple[str, ...]:
    """NVIDIA's PCI device ids in the text, as the catalogue writes them: ``2684``."""
    return tuple(dict.fromkeys((match[1] or match[2] or match[3]).lower() for match in _PCI_ID.finditer(text)))


def names(text: str) -> Iterator[str]:
    """The names that the text may stand for, the likeliest first: the text itself, then what a program wrote of it."""
    yield text
    if match := re.fullmatch(_SMI_LINE, text):
        yield match[1]
    if match := re.search(_CHIP_AND_BOARDS, text):
        yield from _boards(match[1])
    if match := re.fullmatch(_VIRTUAL, text):
        yield match[1]
        yield re.sub(_BOARD_LETTERS, "", match[1])


def _boards(text: str) -> Iterator[str]:
    """``GeForce RTX 4070 Max-Q / Mobile`` is one name with two endings; ``A40 / A16`` are two names."""
    first, *others = (re.sub(_REVISION, "", name) for name in text.split(" / "))
    stem = re.sub(_FORM, "", first)
    yield from (f"{stem} {other}" for other in others if re.fullmatch(_FORM, f" {other}"))
    yield first
    yield from (other for other in others if not re.fullmatch(_FORM, f" {other}"))
